"""Hugging Face BERT folders made by hand, name by name, for the tests: an account of the format of its own.

The names and the order [out, in] are those of the files on the Hub; nothing here asks lbzoo's converter.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 8,
    "initializer_range": 0.02,
    "intermediate_size": 12,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 10,
    "model_type": "bert",
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 9,
}
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "##ly", "bad", "."]


def encoder(prefix: str = "bert.", norms: tuple[str, str] = ("weight", "bias"), pooler: bool = True) -> dict:
    """Random float32 arrays of an encoder."""
    rng = np.random.default_rng(5)
    shapes = {
        "embeddings.word_embeddings.weight": (9, 8),
        "embeddings.position_embeddings.weight": (10, 8),
        "embeddings.token_type_embeddings.weight": (2, 8),
        f"embeddings.LayerNorm.{norms[0]}": (8,),
        f"embeddings.LayerNorm.{norms[1]}": (8,),
    }
    for layer in ("encoder.layer.0", "encoder.layer.1"):
        for place, shape in (
            ("attention.self.query", (8, 8)),
            ("attention.self.key", (8, 8)),
            ("attention.self.value", (8, 8)),
            ("attention.output.dense", (8, 8)),
            ("intermediate.dense", (12, 8)),
            ("output.dense", (8, 12)),
        ):
            shapes[f"{layer}.{place}.weight"] = shape
            shapes[f"{layer}.{place}.bias"] = shape[:1]
        for place in ("attention.output", "output"):
            shapes[f"{layer}.{place}.LayerNorm.{norms[0]}"] = (8,)
            shapes[f"{layer}.{place}.LayerNorm.{norms[1]}"] = (8,)
    if pooler:
        shapes.update({"pooler.dense.weight": (8, 8), "pooler.dense.bias": (8,)})
    return {prefix + name: rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}


def masked_lm(root: str = "", norms: tuple[str, str] = ("weight", "bias")) -> dict:
    """Random arrays of the masked-lm head, its decoder left out."""
    rng = np.random.default_rng(6)
    shapes = {
        "transform.dense.weight": (8, 8),
        "transform.dense.bias": (8,),
        f"transform.LayerNorm.{norms[0]}": (8,),
        f"transform.LayerNorm.{norms[1]}": (8,),
        "bias": (9,),
    }
    return {f"{root}cls.predictions.{name}": rng.normal(size=shape).astype("f4") for name, shape in shapes.items()}


def next_sentence() -> dict:
    """Random arrays of the next-sentence head."""
    rng = np.random.default_rng(7)
    return {
        "cls.seq_relationship.weight": rng.normal(size=(2, 8)).astype("f4"),
        "cls.seq_relationship.bias": rng.normal(size=2).astype("f4"),
    }


def classifier(classes: int) -> dict:
    """Random arrays of a classifier."""
    rng = np.random.default_rng(8)
    return {
        "classifier.weight": rng.normal(size=(classes, 8)).astype("f4"),
        "classifier.bias": rng.normal(size=classes).astype("f4"),
    }


def write(folder: Path, tensors: dict, tokenizer: dict | None = None, **config) -> Path:
    """The folder: `config.json` (a value of None removes a field), `model.safetensors` and the tokenizer's files."""
    folder.mkdir(parents=True, exist_ok=True)
    values = {name: value for name, value in {**CONFIG, **config}.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(values))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True} if tokenizer is None else tokenizer)
    )
    return folder
