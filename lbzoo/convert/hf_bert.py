"""Hugging Face BERT folders <-> ours: `config.json`, `model.safetensors` and the tokenizer's files, as on the Hub.

A folder is read where it lies, tensor by tensor. Theirs are [out, in] where ours are [in, out]; layer norms are called
weight and bias, or gamma and beta in old files; the encoder stands under "bert." or under nothing or under a wrapper's
prefix; the decoder of masked-lm is the embedding and may be left out. TensorFlow and torch play no part.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lbzoo.convert.bert_names import place_of
from lbzoo.convert.hf_config import classifies, is_bert, read_config, write_config
from lbzoo.convert.hf_tokenizer import OPTIONS, read_pieces, read_text_form, write_tokenizer
from lbzoo.errors import CheckpointError
from lbzoo.files import brief, parse_json, replaced_folder
from lbzoo.models.config import BertConfig
from lbzoo.tensors import open_tensors, read_array, write_tensors
from lbzoo.text.vocabulary import Vocabulary

CONFIG, WEIGHTS = "config.json", "model.safetensors"
DTYPES = ("F32", "F16", "BF16")
_FIRST = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_ids"  # a buffer of old versions; it counts


class Source(NamedTuple):
    """Where a tensor of ours comes from: theirs, and whether it is turned."""

    name: str
    turned: bool


@dataclasses.dataclass(frozen=True)
class HfBert:
    """A folder as its configuration and the header of its weights tell it.

    Attributes:
        folder: where it is.
        config: in our terms.
        text: "uncased" or "cased".
        sources: our name -> theirs.
        skipped: tensors of the file that no part of the model reads.
        dtype: of the numbers, "float32" or in safetensors' words.
    """

    folder: Path
    config: BertConfig
    text: str
    sources: Mapping[str, Source]
    skipped: tuple[str, ...]
    dtype: str

    def tensors(self) -> Iterator[tuple[str, np.ndarray]]:
        """(our name, float32 array) one after the other, in the order of `config.shapes()`."""
        path = self.folder / WEIGHTS
        with open_tensors(path) as file:
            _require_tied(file, path, self.sources)
            _require_counting(file, path, self.skipped)
            for name in self.config.shapes():
                source = self.sources[name]
                array = read_array(file, path, source.name)
                yield name, array.T if source.turned else array

    def vocabulary(self) -> Vocabulary | None:
        """The word pieces, where there is a tokenizer."""
        return read_pieces(self.folder)


def inspect_folder(folder: Path) -> HfBert:
    """What a folder holds; reads no numbers.

    Raises:
        CheckpointError: no BERT in safetensors, a field or an option that cannot be honoured, or a tensor that is
            missing, unexpected, misshapen or of another dtype.
    """
    folder = Path(folder)
    values = _config(folder / CONFIG)
    path = folder / WEIGHTS
    if not path.is_file():
        there = sorted(other.name for other in folder.iterdir()) if folder.is_dir() else []
        raise CheckpointError(
            f"{folder} holds no {WEIGHTS}. Received: {brief(there)}. Only safetensors in one file are read: the other "
            "formats of weights can run code. transformers' `save_pretrained` writes it."
        )
    with open_tensors(path) as file:
        return _inspect(folder, values, file)


def write_folder(
    folder: Path, config: BertConfig, text: str, tensors: Mapping[str, Any], vocabulary: Vocabulary | None
) -> Path:
    """Write a folder that transformers opens; without a vocabulary it has no tokenizer.

    Args:
        folder: a place where there is nothing, or an empty folder.
        tensors: name -> array, as `config.shapes()` has them.

    Raises:
        CheckpointError: there is something already, or it cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"the folder to write must be new or empty. Received: {folder}.")
    theirs = {name: _turned(np.asarray(tensors[ours]), turned) for ours, (name, turned) in _names(config).items()}
    try:
        with replaced_folder(folder) as aside:
            write_tensors(aside / WEIGHTS, theirs, metadata={"format": "pt"})
            _write_json(aside / CONFIG, write_config(config))
            if vocabulary is not None:
                options = write_tokenizer(aside, vocabulary, text, config.max_position_embeddings)
                _write_json(aside / OPTIONS, options)
    except OSError as error:
        raise CheckpointError(f"{folder} could not be written. Received: {error.strerror or error}.") from None
    return folder


def _names(config: BertConfig) -> dict[str, Source]:
    """Our name -> theirs, as today's transformers writes them."""
    below = "" if config.head is None else "bert."
    return {ours: _theirs(ours, below, "", ("weight", "bias")) for ours in config.shapes()}


def _theirs(ours: str, encoder: str, root: str, norms: tuple[str, str]) -> Source:
    """Their name under the prefixes of the encoder and of what stands on it; `norms` are their gamma and beta."""
    module, part = place_of(ours)
    module = encoder + module[len("bert.") :] if module.startswith("bert.") else root + module
    if part in ("gamma", "beta"):
        return Source(f"{module}.LayerNorm.{norms[part == 'beta']}", False)
    return Source(f"{module}.{'bias' if part == 'bias' else 'weight'}", part == "kernel")


def _inspect(folder: Path, values: Mapping[str, Any], file: Any) -> HfBert:
    path, there = folder / WEIGHTS, set(file.keys())
    encoder = _prefix(there, path)
    root = encoder[: -len("bert.")] if encoder.endswith("bert.") else encoder
    pooler = f"{encoder}pooler.dense.weight" in there
    config = read_config(values, _head(values, there, root, pooler), pooler, str(folder / CONFIG))
    norms = ("gamma", "beta") if f"{encoder}embeddings.LayerNorm.gamma" in there else ("weight", "bias")
    sources = {ours: _theirs(ours, encoder, root, norms) for ours in config.shapes()}
    decoder_bias = f"{root}cls.predictions.decoder.bias"
    if "mlm/bias" in sources and sources["mlm/bias"].name not in there and decoder_bias in there:
        sources["mlm/bias"] = Source(decoder_bias, False)  # the same numbers under either name
    _check(file, path, config, sources)
    rest = there - {source.name for source in sources.values()}
    tied = {f"{root}cls.predictions.decoder.{part}" for part in ("weight", "bias")} if "mlm/bias" in sources else set()
    rest -= tied | ({f"{root}cls.predictions.bias"} if tied else set())
    beyond = sorted(
        name
        for name in rest
        if name.startswith((f"{encoder}encoder.", f"{encoder}embeddings.")) and not name.endswith("_ids")
    )
    if beyond:
        raise CheckpointError(
            f"{path} holds tensors of the encoder that its configuration has no place for. Received: "
            f"{', '.join(beyond[:4])}{', ...' if len(beyond) > 4 else ''}."
        )
    kinds = {file.get_slice(source.name).get_dtype() for source in sources.values()}
    text = read_text_form(folder)
    return HfBert(folder, config, text, sources, tuple(sorted(rest)), "/".join(sorted(kinds)))


def _prefix(there: set[str], path: Path) -> str:
    """What stands before the names of the encoder's tensors."""
    found = [name[: -len(_FIRST)] for name in there if name.endswith(_FIRST)]
    if len(found) != 1:
        raise CheckpointError(
            f"{path} must hold one tensor ...{_FIRST}, as a BERT does. Received: {brief(sorted(there)[:6])}."
        )
    return found[0]


def _head(values: Mapping[str, Any], there: set[str], root: str, pooler: bool) -> str | None:
    """What stands on the encoder; a head that lbzoo does not have is skipped."""
    if pooler and f"{root}classifier.weight" in there and classifies(values):
        return "classifier"
    if f"{root}cls.predictions.transform.dense.weight" not in there:
        return None
    return "pretraining" if pooler and f"{root}cls.seq_relationship.weight" in there else "masked-lm"


def _check(file: Any, path: Path, config: BertConfig, sources: Mapping[str, Source]) -> None:
    """Hold names, shapes and dtypes against the configuration."""
    there = set(file.keys())
    missing = [source.name for source in sources.values() if source.name not in there]
    if missing:
        listed = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise CheckpointError(f"{path}: missing tensor {listed}. Received: {', '.join(sorted(there)[:12])}.")
    for ours, shape in config.shapes().items():
        name, turned = sources[ours]
        found, expected = tuple(file.get_slice(name).get_shape()), shape[::-1] if turned else shape
        if found != expected:
            raise CheckpointError(f"{path}: tensor {name!r} must have shape {list(expected)}. Received: {list(found)}.")
        if file.get_slice(name).get_dtype() not in DTYPES:
            kind = file.get_slice(name).get_dtype()
            raise CheckpointError(f"{path}: tensor {name!r} must be one of {', '.join(DTYPES)}. Received: {kind}.")


def _require_tied(file: Any, path: Path, sources: Mapping[str, Source]) -> None:
    """A decoder that is in the file must be the embedding: lbzoo has no other."""
    if "mlm/bias" not in sources:
        return
    root = sources["mlm/transform/kernel"].name[: -len("cls.predictions.transform.dense.weight")]
    for theirs, ours in (("decoder.weight", "embeddings/token"), ("decoder.bias", "mlm/bias")):
        name, other = f"{root}cls.predictions.{theirs}", sources[ours].name
        if name == other or name not in file.keys():
            continue
        if not np.array_equal(read_array(file, path, name), read_array(file, path, other)):
            raise CheckpointError(f"{path}: {name} must equal {other}, to which it is tied. Received: other numbers.")


def _require_counting(file: Any, path: Path, skipped: tuple[str, ...]) -> None:
    for name in skipped:
        if name.endswith(_POSITIONS):
            numbers = file.get_tensor(name).ravel()
            if not np.array_equal(numbers, np.arange(numbers.size)):
                raise CheckpointError(f"{path}: {name} must count from 0: lbzoo has no other positions.")


def _turned(array: np.ndarray, turned: bool) -> np.ndarray:
    return array.T if turned else array


def _config(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{path} cannot be read, so {path.parent} is no Hugging Face model. Received: {reason}."
        ) from None
    if not is_bert(values):
        kind = values.get("model_type") if isinstance(values, dict) else values
        raise CheckpointError(f"{path} must be of a Hugging Face BERT (model_type 'bert'). Received: {brief(kind)}.")
    return values


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
