"""A task that a frozen random model cannot do and a fine-tuned one can: which of two letters comes first."""

from __future__ import annotations

import numpy as np

from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel

SETTINGS = {
    "epochs": 3,
    "batch_size": 16,
    "learning_rate": 3e-2,
    "unfreeze": "all",
    "validation_fraction": 0.25,
    "dropout": 0.0,
}


def texts_and_labels(rows: int, seed: int = 0, names: tuple = ("x", "y")) -> tuple[list[str], list]:
    """Texts of five letters, and the name of the one of "x" and "y" that comes first."""
    rng = np.random.default_rng(seed)
    texts = ["".join(rng.permutation(list("xyabc"))) + "." for _ in range(rows)]
    return texts, [names[text.index("x") > text.index("y")] for text in texts]


def small_model(units: int = 16, output: bool = True, scale: float = 5, **card) -> MLSTMLanguageModel:
    """Random weights; the embedding is scaled so that states differ, yet not by the order of letters."""
    config = MLSTMConfig(units=units, embedding_dim=8, output=output)
    model = MLSTMLanguageModel(config, text="reviews", card=card, seed=3)
    embedding = model.named_weights()["embedding"]
    embedding.assign(scale * embedding)
    return model
