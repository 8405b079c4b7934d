"""Google's BERT releases <-> ours: a folder of a TensorFlow 1 checkpoint, `bert_config.json` and `vocab.txt`.

Kernels are [in, out] in both; `seq_relationship/output_weights` is [2, in]. Two things a folder does not say: whether
the vocabulary is cased, which its pieces show, and what "gelu" means. Google's code (modeling.py of
google-research/bert since 2019) computes the tanh approximation, Hugging Face reads the same files as the exact form;
here it is Google's, unless the caller or a field "gelu" in `bert_config.json`, which lbzoo writes, says "erf".
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lbzoo.convert.bert_names import place_of
from lbzoo.convert.hf_tokenizer import shows_lower_case
from lbzoo.errors import CheckpointError, ConfigError
from lbzoo.files import brief, parse_json, replaced_folder
from lbzoo.models.config import BertConfig
from lbzoo.text.vocabulary import READINGS, Vocabulary, read_vocabulary

CONFIG, VOCABULARY, CHECKPOINT = "bert_config.json", "vocab.txt", "bert_model.ckpt"
GELU = ("tanh", "erf")
_ACTIVATIONS = ("gelu", "relu", "tanh")
_EPSILON = 1e-12  # of layer norm, in Google's code
# Google's class, with its defaults; None must be there
_FIELDS: Mapping[str, Any] = {
    "vocab_size": None,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "intermediate_size": 3072,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 16,
    "initializer_range": 0.02,
}
_FIXED = {"directionality": "bidi", "pooler_type": "first_token_transform"}
_WITHOUT_EFFECT = ("pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head")


@dataclasses.dataclass(frozen=True)
class GoogleBert:
    """What a folder holds, in our terms; `skipped` names the variables that no part of the model reads."""

    config: BertConfig
    text: str
    tensors: Mapping[str, np.ndarray]
    vocabulary: Vocabulary
    skipped: tuple[str, ...]


def read_folder(folder: Path, gelu: str | None = None, text: str | None = None) -> GoogleBert:
    """Read a release, or a pre-training run's folder with one checkpoint in it.

    Args:
        folder: with `bert_config.json`, `vocab.txt` and `NAME.ckpt.index`, `NAME.ckpt.data-...`.
        gelu: what "gelu" means, "tanh" or "erf"; None for what the folder says, else "tanh".
        text: "uncased" or "cased"; None for what the vocabulary shows.

    Raises:
        CheckpointError: a file is missing or cannot be read, a field that cannot be honoured, or a variable that is
            missing, unexpected, misshapen or not float32.
    """
    folder = Path(folder)
    values = _config_values(folder / CONFIG)
    if not (folder / VOCABULARY).is_file():
        raise CheckpointError(f"{folder} lacks {VOCABULARY}. Received: {_names(folder)}. It belongs to a BERT release.")
    vocabulary = read_vocabulary(folder / VOCABULARY)
    reader, where = _open(folder)
    there = dict(reader.get_variable_to_shape_map())
    head = None
    if "cls/predictions/output_bias" in there:
        head = "pretraining" if "cls/seq_relationship/output_weights" in there else "masked-lm"
    config = _config(values, head, "bert/pooler/dense/kernel" in there, gelu, str(folder / CONFIG))
    names = {ours: _theirs(ours) for ours in config.shapes()}
    skipped = _check(config, names, there, where)
    tensors = {ours: _read(reader, name, turned, where) for ours, (name, turned) in names.items()}
    text = text or ("uncased" if shows_lower_case(vocabulary) else "cased")
    return GoogleBert(config, text, tensors, vocabulary, skipped)


def write_folder(
    folder: Path, config: BertConfig, text: str, tensors: Mapping[str, Any], vocabulary: Vocabulary | None
) -> Path:
    """Write a folder that Google's code reads (`--init_checkpoint`, `--bert_config_file`, `--vocab_file`).

    Args:
        folder: a place where there is nothing, or an empty folder.
        tensors: name -> array, as `config.shapes()` has them.

    Raises:
        CheckpointError: there is something already, it cannot be written, or the format has no place for the model: a
            classifier or regressor, another epsilon of layer norm, an activation that Google's code does not know, no
            vocabulary, or a text policy that comes before WordPiece.
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise CheckpointError(f"the folder to write must be new or empty. Received: {folder}.")
    act = "gelu" if config.hidden_act.startswith("gelu") else config.hidden_act
    for name, value, right in (
        ("head", config.head, config.head in (None, "masked-lm", "pretraining")),
        ("layer_norm_eps", config.layer_norm_eps, config.layer_norm_eps == _EPSILON),
        ("hidden_act", config.hidden_act, act in _ACTIVATIONS),
        ("vocabulary", vocabulary, vocabulary is not None),
        ("text", text, READINGS[text][1] is None),
    ):
        if not right:
            raise CheckpointError(
                f"Google's format has no place for this {name}. Received: {brief(value)}. Hugging Face's may have."
            )
    values = {name: getattr(config, name) for name in _FIELDS}
    values["hidden_act"] = act
    if act == "gelu":
        values["gelu"] = config.hidden_act[len("gelu_") :]  # Google's code takes any field, and does not look at this
    arrays = {}
    for ours in config.shapes():
        name, turned = _theirs(ours)
        array = np.asarray(tensors[ours], np.float32)
        arrays[name] = np.ascontiguousarray(array.T if turned else array)
    try:
        with replaced_folder(folder) as aside:
            _save(aside / CHECKPOINT, arrays)
            (aside / VOCABULARY).write_bytes(vocabulary.to_bytes())
            (aside / CONFIG).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{folder} could not be written. Received: {error.strerror or error}.") from None
    return folder


def _theirs(ours: str) -> tuple[str, bool]:
    """Their name, and whether the array is turned."""
    module, part = place_of(ours)
    place = module.replace("encoder.layer.", "encoder.layer_").replace(".", "/")
    if place == "cls/seq_relationship":
        return f"{place}/output_{'weights' if part == 'kernel' else 'bias'}", part == "kernel"
    if place == "cls/predictions":
        return f"{place}/output_bias", False
    return {"table": place, "gamma": f"{place}/LayerNorm/gamma", "beta": f"{place}/LayerNorm/beta"}.get(
        part, f"{place}/{part}"
    ), False


def _check(
    config: BertConfig, names: Mapping[str, tuple[str, bool]], there: dict[str, Any], where: str
) -> tuple[str, ...]:
    """Hold names and shapes against the configuration; gives what is left over."""
    missing = [name for name, _ in names.values() if name not in there]
    if missing:
        listed = ", ".join(missing[:4]) + (", ..." if len(missing) > 4 else "")
        raise CheckpointError(f"{where}: missing variable {listed}. Received: {', '.join(sorted(there)[:8])}.")
    for ours, shape in config.shapes().items():
        name, turned = names[ours]
        expected = shape[::-1] if turned else shape
        if tuple(there[name]) != expected:
            raise CheckpointError(
                f"{where}: variable {name!r} must have shape {list(expected)}. Received: {list(there[name])}."
            )
    read = {name for name, _ in names.values()}
    rest = sorted(set(there) - read)
    slots = {name for name in rest if name.rsplit("/", 1)[0] in read}  # adam_m, adam_v
    beyond = [name for name in rest if name.startswith(("bert/encoder/", "bert/embeddings/")) and name not in slots]
    if beyond:
        raise CheckpointError(
            f"{where} holds variables of the encoder that its configuration has no place for. Received: "
            f"{', '.join(beyond[:4])}{', ...' if len(beyond) > 4 else ''}."
        )
    return tuple(rest)


def _config_values(path: Path) -> dict[str, Any]:
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CheckpointError(
            f"{path} cannot be read, so {path.parent} is no BERT release of Google's. Received: {reason}."
        ) from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must be an object. Received: {brief(values)}.")
    return values


def _config(values: Mapping[str, Any], head: str | None, pooler: bool, gelu: str | None, where: str) -> BertConfig:
    for name, value in values.items():
        if name in _FIXED and value != _FIXED[name]:
            raise CheckpointError(f"{where}: {name} must be {_FIXED[name]!r}. Received: {brief(value)}.")
        if name not in (*_FIELDS, *_FIXED, *_WITHOUT_EFFECT, "hidden_act", "gelu"):
            raise CheckpointError(
                f"{where}: {name} is no field of Google's BERT, so it cannot be honoured. Received: {brief(value)}."
            )
    act, gelu = values.get("hidden_act", "gelu"), gelu or values.get("gelu", GELU[0])
    for name, value, known in (("hidden_act", act, _ACTIVATIONS), ("gelu", gelu, GELU)):
        if value not in known:
            raise CheckpointError(f"{where}: {name} must be one of {', '.join(known)}. Received: {brief(value)}.")
    if "vocab_size" not in values:
        raise CheckpointError(f"{where} lacks vocab_size. Received: {', '.join(sorted(values))}.")
    given = {name: values.get(name, default) for name, default in _FIELDS.items()}
    given["hidden_act"] = f"gelu_{gelu}" if act == "gelu" else act
    try:
        return BertConfig(**given, layer_norm_eps=_EPSILON, pooler=pooler, head=head)
    except ConfigError as error:
        raise CheckpointError(f"{where}: {error}") from None


def _open(folder: Path) -> tuple[Any, str]:
    """A reader of the folder's one checkpoint, and its path for messages."""
    import tensorflow as tf

    found = sorted(path.with_suffix("") for path in folder.glob("*.index"))
    chosen = [path for path in found if path.name == CHECKPOINT] or found
    if len(chosen) != 1:
        raise CheckpointError(
            f"{folder} must hold one TensorFlow checkpoint ({CHECKPOINT}.index and its data). Received: "
            f"{_names(folder)}."
        )
    try:
        return tf.train.load_checkpoint(str(chosen[0])), str(chosen[0])
    except (tf.errors.OpError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise CheckpointError(f"{chosen[0]} is not a readable checkpoint. Received: {reason}.") from None


def _read(reader: Any, name: str, turned: bool, where: str) -> np.ndarray:
    import tensorflow as tf

    try:
        array = np.asarray(reader.get_tensor(name))
    except (tf.errors.OpError, ValueError) as error:
        reason = str(error).splitlines()[0][:200]
        raise CheckpointError(f"{where}: variable {name!r} cannot be read. Received: {reason}.") from None
    if array.dtype != np.float32:
        raise CheckpointError(f"{where}: variable {name!r} must be float32. Received: {array.dtype}.")
    return array.T if turned else array


def _save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write variables by name, and read them back."""
    import tensorflow as tf

    try:
        tf.raw_ops.SaveV2(
            prefix=str(path),
            tensor_names=list(arrays),
            shape_and_slices=[""] * len(arrays),
            tensors=[tf.constant(array) for array in arrays.values()],
        )
        reader = tf.train.load_checkpoint(str(path))
        changed = [name for name, array in arrays.items() if reader.get_tensor(name).tobytes() != array.tobytes()]
    except tf.errors.OpError as error:
        raise CheckpointError(f"{path} could not be written. Received: {str(error).splitlines()[0][:200]}.") from None
    if changed:
        raise CheckpointError(f"{path}: {changed[0]} read back differs from what was written. Try another disk.")


def _names(folder: Path) -> str:
    there = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return ", ".join(there[:12]) or "nothing"
