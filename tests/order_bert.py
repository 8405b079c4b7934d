"""`order_task` for a BERT: which of two words comes first, a tiny model with random weights, and pairs to compare."""

from __future__ import annotations

import numpy as np

from lbzoo.models.bert import model_for
from lbzoo.models.config import BertConfig
from lbzoo.text.vocabulary import SPECIAL, Vocabulary

WORDS = ["good", "bad", "the", "film", "book", "."]
SETTINGS = {"epochs": 8, "batch_size": 16, "learning_rate": 5e-3, "validation_fraction": 0.25, "dropout": 0.0}


def small_bert(head: str | None = "pretraining", pooler: bool = True, dropout: float = 0.0, **card):
    """Random weights of a scale at which attention tells tokens apart."""
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.3,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        head=head,
        pooler=pooler,
    )
    return model_for(config)(config, card=card, vocabulary=Vocabulary([*SPECIAL, *WORDS]), seed=3)


def texts_and_labels(rows: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Four words in any order, and the one of "good" and "bad" that comes first."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(rng.permutation(WORDS[:4])) for _ in range(rows)]
    return texts, [min(("good", "bad"), key=text.index) for text in texts]


def pairs_and_numbers(rows: int, seed: int = 0) -> tuple[list[tuple[str, str]], list[float]]:
    """Two texts, and how many times "good" the first has more than the second, in a unit of its own."""
    rng = np.random.default_rng(seed)
    pairs = [tuple(" ".join(rng.choice(WORDS[:3], 4)) for _ in range(2)) for _ in range(rows)]
    return pairs, [1000 + 50.0 * (first.count("good") - second.count("good")) for first, second in pairs]
