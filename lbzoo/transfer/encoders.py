"""What fine-tuning asks of an architecture: one interface, and which class has it for which model.

Everything else of `TextClassifier` (labels, the head, stages, early stopping, files) knows no architecture.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig


class Encoder(Protocol):
    """A model with its text policy, as something that makes features of texts and can be trained.

    Attributes:
        model: the model, whose variables training changes in place.
        width: number of features of a text.
        reads: which features these are, as options of `Probe`.
        signature: tf.TensorSpec of each array that `batch` gives, all [rows, ...].
    """

    model: Any
    width: int
    reads: dict[str, Any]
    signature: list[Any]

    def encode(self, text: Any) -> Sequence:
        """A text as what the model reads, tokens with a length, under the one text policy; TextError for others."""

    def read(self, rows: Sequence[Sequence], batch_size: int) -> np.ndarray:
        """Features of encoded texts under the present weights, float32 [rows, width]; no gradient is kept."""

    def batch(self, rows: Sequence[Sequence]) -> tuple[np.ndarray, ...]:
        """Encoded texts as arrays for `forward`; may read the part of a text that gradients do not reach."""

    def forward(self, *batch: Any, seed: Any = None) -> tuple[Any, Any]:
        """In a graph, both with gradients: (features, float32 [rows, width]; language-model loss, float32 scalar).

        Args:
            batch: what `batch` gave.
            seed: int32 [2], of dropout in the body, where it has some; None for none.
        """

    def groups(self) -> list[list[Any]]:
        """The body's variables from the head downwards, in the order in which they are unfrozen."""

    def language_model(self) -> list[Any]:
        """Variables that only the language-model loss uses; ConfigError where the model has no such loss."""


def encoder_of(model: Any, dtype: str = "float32", window: int = 256) -> Encoder:
    """An encoder on a copy of the model, so that what was given stays as it is.

    Args:
        model: a checkpoint's name, its folder, or a model.
        dtype: what the model computes in, "float32" or "bfloat16"; its variables are float32.
        window: how far back gradients go, in tokens of the model.

    Raises:
        ConfigError: an object that is no model of lbzoo, or an option outside these.
        UnknownModelError, DownloadError, CheckpointError: as `lbzoo.load`.
    """
    if isinstance(model, (str, os.PathLike)):
        from lbzoo.loading import load

        model = load(model)
    if isinstance(getattr(model, "config", None), MLSTMConfig):
        from lbzoo.transfer.mlstm_encoder import MLSTMEncoder

        return MLSTMEncoder(model, dtype, window)
    raise ConfigError(
        "fine-tuning needs the name of a checkpoint, its folder or an lbzoo mLSTM language model. "
        f"Received: {type(model).__name__}."
    )
