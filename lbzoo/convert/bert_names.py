"""Where a tensor of ours stands in the public tree of BERT, which Google's and Hugging Face's files share.

Google writes the tree with slashes and `kernel`, Hugging Face with dots and `weight`; each converter does that itself.
"""

from __future__ import annotations

from typing import NamedTuple

_PLACES = {
    "embeddings/token": "bert.embeddings.word_embeddings",
    "embeddings/position": "bert.embeddings.position_embeddings",
    "embeddings/segment": "bert.embeddings.token_type_embeddings",
    "embeddings": "bert.embeddings",
    "pooler": "bert.pooler.dense",
    "mlm/transform": "cls.predictions.transform.dense",
    "mlm": "cls.predictions.transform",
    "nsp": "cls.seq_relationship",
    "classifier": "classifier",
    "regressor": "classifier",
}
_IN_LAYER = {
    "attention/query": "attention.self.query",
    "attention/key": "attention.self.key",
    "attention/value": "attention.self.value",
    "attention/output": "attention.output.dense",
    "attention": "attention.output",
    "ffn/inner": "intermediate.dense",
    "ffn/output": "output.dense",
    "ffn": "output",
}


class Place(NamedTuple):
    """A module in the tree, and what of it: "table" of an embedding, "kernel", "bias", or a norm's "gamma", "beta"."""

    module: str
    part: str


def place_of(ours: str) -> Place:
    """The place of a tensor by its name in `BertConfig.shapes`."""
    if ours in _PLACES:
        return Place(_PLACES[ours], "table")
    if ours == "mlm/bias":
        return Place("cls.predictions", "bias")
    module, part = ours.rsplit("/", 1)
    module = module[: -len("/layer_norm")] if module.endswith("/layer_norm") else module
    if not module.startswith("layer_"):
        return Place(_PLACES[module], part)
    layer, inner = module.split("/", 1)
    return Place(f"bert.encoder.layer.{layer[len('layer_') :]}.{_IN_LAYER[inner]}", part)
