"""The same fine-tuning by transformers on torch: its classifier and its schedule, torch's AdamW."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from lbzoo.text.batching import shuffled_batches
from lbzoo.transfer.finetuning import Settings

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


class Classifier:
    """A folder's classifier of pairs of texts, and its tokenizer.

    Args:
        folder: with weights, head and tokenizer, as transformers reads it. Longer pairs are cut to its positions.
        pool: "pooled" for the model as transformers has it; "mean" puts the mean over the last layer's tokens in place
            of the pooler's output.
    """

    def __init__(self, folder: Path, pool: str) -> None:
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.model = transformers.BertForSequenceClassification.from_pretrained(folder, attn_implementation="sdpa")
        self.pool = pool

    def encode(self, pairs: Sequence[tuple[str, str]]) -> list[dict[str, list[int]]]:
        """Ids and segments of each pair."""
        limit = self.model.config.max_position_embeddings
        told = self.tokenizer(*map(list, zip(*pairs)), truncation="longest_first", max_length=limit, padding=False)
        return [dict(zip(told.keys(), row)) for row in zip(*told.values())]

    def logits(self, rows: Sequence[dict[str, list[int]]]) -> torch.Tensor:
        """float32 [rows, labels] of encoded rows, padded to the longest."""
        batch = self.tokenizer.pad(list(rows), return_tensors="pt")
        if self.pool == "pooled":
            return self.model(**batch).logits
        hidden = self.model.bert(**batch).last_hidden_state
        real = batch["attention_mask"][:, :, None]
        return self.model.classifier(self.model.dropout((hidden * real).sum(1) / real.sum(1)))

    @torch.inference_mode()
    def scores(self, rows: Sequence[dict[str, list[int]]], batch_size: int = 32) -> np.ndarray:
        """float32 [rows, labels], without dropout."""
        self.model.eval()
        return torch.cat([self.logits(rows[i : i + batch_size]) for i in range(0, len(rows), batch_size)]).numpy()

    def finetune(
        self, rows: Sequence[Any], targets: np.ndarray, settings: Settings, seed: int, same_batches: bool
    ) -> list[tuple[float, int]]:
        """Train all weights.

        Args:
            rows, targets: encoded pairs and the positions of their labels.
            settings: all of its fields filled.
            same_batches: those that lbzoo trains with this seed; else rows of any length, as transformers' Trainer.

        Returns:
            [(when a step began, by `time.perf_counter`; its rows)], and last the end with 0 rows.
        """
        torch.manual_seed(seed)
        optimizer = self._optimizer(settings)
        steps = -(-len(rows) // settings.batch_size) * settings.epochs
        warmup = min(round(settings.warmup * steps), steps - 1)
        schedule = transformers.get_linear_schedule_with_warmup(optimizer, warmup, steps)
        labels, began = torch.from_numpy(targets), []
        self.model.train()
        for epoch in range(settings.epochs):
            for index in _batches(rows, settings.batch_size, [seed, epoch], same_batches):
                began.append((time.perf_counter(), len(index)))
                logits = self.logits([rows[i] for i in index])
                loss = torch.nn.functional.cross_entropy(logits, labels[torch.from_numpy(index)])
                optimizer.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip_norm)
                optimizer.step()
                schedule.step()
        return [*began, (time.perf_counter(), 0)]

    def _optimizer(self, settings: Settings) -> torch.optim.Optimizer:
        """Layer norms and biases are not decayed."""
        named = dict(self.model.named_parameters())
        plain = [name for name in named if "LayerNorm" in name or name.endswith("bias")]
        groups = [
            {"params": [p for name, p in named.items() if name not in plain], "weight_decay": settings.weight_decay},
            {"params": [named[name] for name in plain], "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(groups, lr=settings.learning_rate, eps=1e-6, fused=True)


def _batches(rows: Sequence[Any], batch_size: int, seed: list[int], same: bool) -> Iterator[np.ndarray]:
    rng = np.random.default_rng(seed)
    if same:
        return iter(shuffled_batches([len(row["input_ids"]) for row in rows], batch_size, rng))
    order = rng.permutation(len(rows))
    return (order[start : start + batch_size] for start in range(0, len(order), batch_size))
