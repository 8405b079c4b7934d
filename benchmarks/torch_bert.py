"""The same BERT in transformers on torch: features of texts, and a step of pre-training with AdamW."""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable

import numpy as np
import torch
import transformers
from torch.nn import functional as F

ROWS, ATTENTION = (8, 32, 128), ("sdpa", "eager")

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class Features:
    """Mean of the last layer over the tokens of a text.

    All texts are tokenized at once by the fast tokenizer, sorted by their number of tokens, and padded batch by batch.

    Args:
        folder: with the weights and tokenizer, as transformers reads it.
        rows: texts of a batch.
        attention: which of its implementations.
    """

    def __init__(self, folder: Path, rows: int = 32, attention: str = "sdpa") -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.BertModel.from_pretrained(folder, attn_implementation=attention).eval()
        self.name, self.rows = f"{attention}, batches of {rows}", rows

    @torch.inference_mode()
    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [texts, units]."""
        limit = self.model.config.max_position_embeddings
        ids = self.tokenizer(list(texts), truncation=True, max_length=limit, padding=False)["input_ids"]
        order = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        out = np.empty((len(ids), self.model.config.hidden_size), np.float32)
        for start in range(0, len(order), self.rows):
            index = order[start : start + self.rows]
            batch = self.tokenizer.pad({"input_ids": [ids[row] for row in index]}, return_tensors="pt")
            hidden = self.model(**batch).last_hidden_state
            real = batch["attention_mask"][:, :, None]
            out[index] = ((hidden * real).sum(1) / real.sum(1)).numpy()
        return out


def fastest_features(folder: Path, texts: Sequence[str]) -> Features:
    """The settings that read these texts in the least time."""
    found = []
    for rows, attention in itertools.product(ROWS, ATTENTION):
        features = Features(folder, rows, attention)
        features(texts[:rows])
        start = time.perf_counter()
        features(texts)
        found.append((time.perf_counter() - start, len(found), features))
    return min(found)[2]


def training_step(
    folder: Path, batch: Mapping[str, np.ndarray], learning_rate: float
) -> tuple[Callable[[], float], Callable[[], float]]:
    """(the loss without dropout; one step: forward with dropout, backward, clip, AdamW -> its loss).

    Args:
        folder: a model with the heads of pre-training, as transformers reads it.
        batch: the fields of `training.bert_data.BertBatch`. Logits are made for its positions alone, as they are here.
    """
    model = transformers.BertForPreTraining.from_pretrained(folder, attn_implementation="sdpa")
    plain = [p for name, p in model.named_parameters() if "LayerNorm" in name or name.endswith("bias")]
    decayed = [p for p in model.parameters() if all(p is not other for other in plain)]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=learning_rate, eps=1e-6, fused=True)
    given = {name: torch.from_numpy(np.asarray(value)) for name, value in batch.items()}
    given = {name: value.long() if value.dtype == torch.int32 else value for name, value in given.items()}
    rows = torch.arange(len(given["ids"]))[:, None]

    def loss() -> torch.Tensor:
        found = model.bert(given["ids"], attention_mask=given["mask"].long(), token_type_ids=given["segments"])
        logits = model.cls.predictions(found.last_hidden_state[rows, given["positions"]])
        each = F.cross_entropy(logits.flatten(0, 1), given["labels"].flatten(), reduction="none")
        weights = given["weights"].flatten()
        following = F.cross_entropy(model.cls.seq_relationship(found.pooler_output), given["following"])
        return (each * weights).sum() / weights.sum() + following

    def evaluate() -> float:
        model.eval()
        with torch.inference_mode():
            return float(loss())

    def step() -> float:
        model.train()
        value = loss()
        optimizer.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return float(value.detach())

    return evaluate, step
