"""A trained model and its read-out -> a checkpoint folder that lbzoo loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping, Optional

from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.transfer.probe import Probe
from lbzoo.transfer.reviews import NEGATIVE, POSITIVE
from training.objectives import SentimentReadOut


def read_out_probe(read_out: SentimentReadOut) -> Probe:
    """The read-out as the checkpoint's probe: the last hidden state, as it was trained."""
    return Probe(
        coef=read_out.w.numpy()[None],
        intercept=read_out.b.numpy()[None],
        classes=[NEGATIVE, POSITIVE],
        state="hidden",
        meta={"made by": "the sentiment read-out trained with the language model (training/pretrain_mlstm.py)"},
    )


def export(
    model: MLSTMLanguageModel, read_out: SentimentReadOut, folder: Path, card: Optional[Mapping[str, Any]] = None
) -> Path:
    """Write the folded model in float16 with its read-out as the probe."""
    return model.folded().save_pretrained(folder, card=card, probe=read_out_probe(read_out), dtype="float16")
