"""What fine-tuning asks of an architecture: one interface, and which class has it for which model.

Everything else of `TextClassifier` (labels, the head, stages, early stopping, files) knows no architecture.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.models.config import BertConfig, MLSTMConfig
from lbzoo.text.pairs import Input
from lbzoo.transfer.probe import Probe


class Encoder(Protocol):
    """A model with its text policy, as something that makes features of texts and can be trained.

    Attributes:
        model: the model, whose variables training changes in place; a fine-tuned checkpoint is saved from it.
        width: number of features of a text.
        reads: which features these are, as options of `Probe`.
        signature: tf.TensorSpec of each array that `batch` gives, all [rows, ...].
        limit: most tokens of a text that are read; None where it is read whole.
        defaults: how this family is fine-tuned where nothing is said, by the names of `finetuning.Settings`.
    """

    model: Any
    width: int
    reads: dict[str, Any]
    signature: list[Any]
    limit: int | None
    defaults: Mapping[str, Any]

    def encode(self, inputs: Sequence[Input]) -> tuple[list[Sequence], int]:
        """(texts or pairs as what the model reads, tokens with a length, under the one text policy; how many were cut).

        TextError for what is no text.
        """

    def read(self, rows: Sequence[Sequence], batch_size: int) -> np.ndarray:
        """Features of encoded texts under the present weights, float32 [rows, width]; no gradient is kept."""

    def batch(self, rows: Sequence[Sequence]) -> tuple[np.ndarray, ...]:
        """Encoded texts as arrays for `forward`; may read the part of a text that gradients do not reach."""

    def forward(self, *batch: Any, seed: Any = None) -> tuple[Any, Any]:
        """In a graph, both with gradients: (features, float32 [rows, width]; language-model loss, float32 scalar).

        Args:
            batch: what `batch` gave.
            seed: int32 [2], of dropout in the body, where it has some; None for none. A BERT takes [rows, 2] too, one
                seed a row.
        """

    def groups(self) -> list[list[Any]]:
        """The body's variables from the head downwards, in the order in which they are unfrozen."""

    def language_model(self) -> list[Any]:
        """Variables that only the language-model loss uses; ConfigError where the model has no such loss."""


def encoder_of(
    model: Any,
    dtype: str = "float32",
    window: int | None = None,
    max_length: int | None = None,
    pool: str | None = None,
) -> Encoder:
    """An encoder on a copy of the model, so that what was given stays as it is.

    Args:
        model: a checkpoint's name, its folder, or a model.
        dtype: what the model computes in, "float32" or "bfloat16"; its variables are float32.
        window: of an mLSTM, how far back gradients go, in bytes; None for 256.
        max_length: of a BERT, most tokens of a text or pair; None for 256, or as many as it has positions for.
        pool: of a BERT, what a text's features are; None chooses by the checkpoint, see `bert_encoder`.

    Raises:
        ConfigError: an object that is no model of lbzoo, an option outside these or of the other architecture.
        UnknownModelError, DownloadError, CheckpointError: as `lbzoo.load`.
    """
    if isinstance(model, (str, os.PathLike)):
        from lbzoo.loading import load

        model = load(model)
    config = getattr(model, "config", None)
    if isinstance(config, MLSTMConfig):
        from lbzoo.transfer.mlstm_encoder import MLSTMEncoder

        _refuse("an mLSTM reads a text whole and has its last state as features", max_length=max_length, pool=pool)
        return MLSTMEncoder(model, dtype, 256 if window is None else window)
    if isinstance(config, BertConfig):
        from lbzoo.transfer.bert_encoder import BertTextEncoder

        _refuse("gradients go through all of what a BERT reads; max_length says how much that is", window=window)
        return BertTextEncoder(model, dtype, max_length, pool)
    raise ConfigError(
        "fine-tuning needs the name of a checkpoint, its folder or a model of lbzoo, an mLSTM or a BERT. "
        f"Received: {type(model).__name__}."
    )


def encoder_for(model: Any, head: Probe, dtype: str = "float32", window: int | None = None) -> Encoder:
    """An encoder of a model that was fine-tuned, which reads for its head what was read in training."""
    if isinstance(model.config, BertConfig):
        return encoder_of(model, dtype, max_length=model.config.max_position_embeddings, pool=head.pool)
    return encoder_of(model, dtype, window)


def _refuse(why: str, **options: Any) -> None:
    for name, value in options.items():
        if value is not None:
            raise ConfigError(f"{why}. Received: {name}={value!r}. Leave {name} out.")
