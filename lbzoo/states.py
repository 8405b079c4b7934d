"""Texts through a model, one number per unit out: what features and classifiers stand on. Knows no scikit-learn.

One compiled function per choice of (state, pool, tanh), with an input signature whose rows and steps are open: one
trace serves every shape.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional, Sequence, Tuple, Union

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.loading import is_path, load_with_folder
from lbzoo.models.config import architecture_of
from lbzoo.text.batching import batches, chunks, windows
from lbzoo.text.bytes import pack
from lbzoo.text.pairs import as_inputs, encode_input

if TYPE_CHECKING:
    from lbzoo.bert_states import BertReader

    Reader = Union["StateReader", BertReader]

STATES = ("cell", "hidden")
POOLS = ("last", "mean", "max")  # the first is the default
BERT_POOLS = ("mean", "max", "cls", "pooled")
DTYPES = {"float32": "float32", "bfloat16": "mixed_bfloat16"}

BATCH_SIZE = 128

_WINDOW_BYTES = 32 << 20  # of texts that are sorted together
_OUTPUT_BYTES = 32 << 20  # of features that a window makes
_COLLECT_BYTES = 32 << 20  # of states that one call collects for a mean or a maximum


class StateReader:
    """Pooled states of a model over texts.

    Args:
        model: an mLSTM language model in folded form (`model.folded()`).
        state: "cell" or "hidden".
        pool: "last", "mean" or "max" over the bytes of a text.
        tanh: whether each state goes through tanh before it is pooled.

    Raises:
        ConfigError: a value outside these.
    """

    def __init__(self, model: Any, state: str = "cell", pool: str = "last", tanh: bool = False) -> None:
        check_options(state=state, pool=pool, tanh=tanh)
        if model.config.vocab_size < 256:
            raise ConfigError(
                f"reading bytes takes a vocabulary of 256 or more. Received: vocab_size={model.config.vocab_size}."
            )
        self.model, self.state, self.pool, self.tanh = model, state, pool, bool(tanh)
        self.units = model.config.units
        self.step = _compile(model, state, pool, self.tanh)

    def iter_read(
        self, texts: Iterable, batch_size: int = BATCH_SIZE, window: Optional[int] = None
    ) -> Iterator[np.ndarray]:
        """Read a stream, window by window, in order and in memory that does not grow.

        Args:
            texts: anything `lbzoo.text.pairs.as_inputs` takes; of a pair the texts are read one after the other.
            batch_size: most texts that run together.
            window: most texts that are sorted together; None chooses by the width of the model.

        Yields:
            float32 [texts of the window, units].

        Raises:
            TextError: an element that is not a text.
            ConfigError: a batch size or a window that is not a positive integer.
        """
        check_size("batch_size", batch_size)
        if window is not None:
            check_size("window", window)
        else:
            window = min(max(_OUTPUT_BYTES // (4 * self.units), batch_size), 64 * batch_size)
        encoded = (encode_input(text, self.model.text) for text in as_inputs(texts))
        return (self.read(rows, batch_size) for rows in windows(encoded, window, _WINDOW_BYTES))

    def read(self, rows: Sequence[bytes], batch_size: int = BATCH_SIZE, chunk_size: Optional[int] = None) -> np.ndarray:
        """Pooled states of byte strings that the text policy has been applied to.

        Args:
            rows: byte strings; one without a byte gives zeros, the state that a text starts from.
            batch_size: most rows that run together.
            chunk_size: most steps of one call; None chooses. It changes speed, not results.

        Returns:
            float32 [rows, units].
        """
        out = np.zeros((len(rows), self.units), np.float32)
        for index in batches([len(row) for row in rows], batch_size):
            self._read_batch(out, index, [rows[i] for i in index], chunk_size)
        return out

    def _read_batch(self, out: np.ndarray, index: np.ndarray, rows: Sequence[bytes], chunk_size: Optional[int]) -> None:
        """Fill out[index]; `rows` fall in length, so that those that are over are always the last ones."""
        packed = pack(rows)
        carried = self.start(len(rows))
        running = len(rows)
        for start, stop, active in chunks(packed.lengths, chunk_size or self._chunk_size(len(rows))):
            if active < running:
                out[index[active:running]] = self.finish(carried, packed.lengths[:running])[active:]
                running = active
            carried = self.step(*packed.cut(active, start, stop), *carried)
        out[index[:running]] = self.finish(carried, packed.lengths[:running])

    def start(self, rows: int) -> Tuple[Any, ...]:
        """What `step` carries at the start of texts: c, h float32, the pool's sum or maximum float64 [rows, units]."""
        zeros = np.zeros((rows, self.units), np.float32)
        if self.pool == "last":
            return zeros, zeros
        return zeros, zeros, np.full(zeros.shape, -np.inf if self.pool == "max" else 0.0)

    def finish(self, carried: Tuple[Any, ...], lengths: np.ndarray) -> np.ndarray:
        """What `step` carried to the end of texts of these lengths -> float32 [rows, units]."""
        if self.pool == "last":
            value = np.asarray(carried[STATES.index(self.state)])
            return np.tanh(value) if self.tanh else value
        value = np.asarray(carried[2])
        if self.pool == "mean":
            value = value / np.maximum(lengths, 1)[:, None]
        return np.where(lengths[:, None] > 0, value, 0).astype(np.float32)

    def _chunk_size(self, rows: int) -> int:
        if self.pool == "last":
            return 256
        return int(np.clip(_COLLECT_BYTES // (4 * self.units * rows), 8, 256))


def _compile(model: Any, state: str, pool: str, tanh: bool) -> Any:
    """(ids int32 [rows, time], mask bool [rows, time], carried ...) -> carried, as one tf.function with a signature.

    What is carried may have more rows than `ids`: texts that are over. They are cut off in here, for slices outside of
    the function leak a little memory each (TensorFlow 2.15).
    """
    import tensorflow as tf

    def last(ids, mask, *carried):
        rows = tf.shape(ids)[0]
        return model.run(ids, state=tuple(value[:rows] for value in carried), mask=mask)[1]

    def pooled(ids, mask, *carried):
        rows = tf.shape(ids)[0]
        c, h, value = (value[:rows] for value in carried)
        states, (c, h) = model.run(ids, state=(c, h), mask=mask, collect=state)
        states = tf.tanh(states) if tanh else states
        real = mask[:, :, None]
        if pool == "mean":  # float64 across chunks: a long text adds up thousands of them
            return c, h, value + tf.cast(tf.reduce_sum(tf.where(real, states, 0.0), 1), tf.float64)
        return c, h, tf.maximum(value, tf.cast(tf.reduce_max(tf.where(real, states, -np.inf), 1), tf.float64))

    units = model.config.units
    signature = [tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None], tf.bool)]
    signature += [tf.TensorSpec([None, units], tf.float32)] * 2
    if pool != "last":
        signature.append(tf.TensorSpec([None, units], tf.float64))
    return tf.function(last if pool == "last" else pooled, input_signature=signature)


class PreparedModel:
    """A model ready to read texts: weights in the form that inference takes, readers compiled once.

    Weights are copied only where their form or another dtype demands it; the copy is a snapshot.

    Args:
        model: a model of the zoo.
        dtype: "float32" or "bfloat16", what matrix products run in.
        folder: where the model was read from, for the probe that may lie there.

    Raises:
        ConfigError: another kind of object, or another dtype.
    """

    def __init__(self, model: Any, dtype: str = "float32", folder: Optional[Path] = None) -> None:
        check_options(dtype=dtype)
        if not all(hasattr(model, name) for name in ("config", "text", "named_weights")):
            raise ConfigError(
                "features need the name of a checkpoint, its folder or a model of lbzoo. "
                f"Received: {type(model).__name__}."
            )
        self.architecture, self.folder = architecture_of(model.config), folder
        if self.architecture == "mlstm":
            self.model = model.folded().in_precision(DTYPES[dtype])
        else:
            from lbzoo.bert_states import BertWeights

            self.model, self._weights = model, BertWeights(model, dtype)
        self._readers: dict[Tuple[Any, ...], Reader] = {}

    def reader(self, state: str = "cell", pool: Optional[str] = None, tanh: bool = False, layer: int = -1) -> Reader:
        """The reader for these options, compiled at the first call.

        Raises:
            ConfigError: an option of another architecture.
        """
        check_options(state=state, pool=pool, tanh=tanh, layer=layer)
        pools = POOLS if self.architecture == "mlstm" else BERT_POOLS
        pool = pools[0] if pool is None else pool
        if pool not in pools:
            raise ConfigError(
                f"pool must be one of {', '.join(pools)} for a model of kind {self.architecture}. "
                f"Received: pool={pool!r}."
            )
        foreign = {"layer": layer != -1} if self.architecture == "mlstm" else {"state": state != "cell", "tanh": tanh}
        for name, given in foreign.items():
            if given:
                raise ConfigError(f"a model of kind {self.architecture} has no choice of {name}. Received: one.")
        key = (state, pool, bool(tanh), int(layer))
        if key not in self._readers:
            if self.architecture == "mlstm":
                self._readers[key] = StateReader(self.model, *key[:3])
            else:
                from lbzoo.bert_states import BertReader

                self._readers[key] = BertReader(self._weights, pool, int(layer))
        return self._readers[key]


_KEPT = 2
_prepared: OrderedDict[Tuple[Any, ...], PreparedModel] = OrderedDict()
_lock = threading.Lock()
atexit.register(_prepared.clear)  # while the interpreter is whole: compiled functions complain if they go after it


def prepare(model: Any, dtype: str = "float32") -> PreparedModel:
    """A model ready to read texts, from a checkpoint's name, its folder, a model, or one that is prepared already.

    The last two that were loaded by name or folder stay in memory for clones and repeated calls.
    """
    if isinstance(model, PreparedModel):
        return model
    if not isinstance(model, (str, os.PathLike)):
        return PreparedModel(model, dtype)
    check_options(dtype=dtype)
    key = (*_identity(model), dtype)
    with _lock:
        if key not in _prepared:
            loaded, folder = load_with_folder(model)
            _prepared[key] = PreparedModel(loaded, dtype, folder)
            while len(_prepared) > _KEPT:
                _prepared.popitem(last=False)
        _prepared.move_to_end(key)
        return _prepared[key]


def _identity(name: Union[str, os.PathLike]) -> Tuple[Any, ...]:
    """A folder that was written anew is another model, also under its old name."""
    if not is_path(name):
        return (name,)
    config = Path(os.path.expanduser(name)) / "config.json"
    try:
        stat = config.stat()
    except (OSError, ValueError):
        return (os.fspath(name),)
    return (str(config.resolve()), stat.st_mtime_ns, stat.st_ino)


def check_options(
    state: Any = "cell",
    pool: Any = None,
    tanh: Any = False,
    batch_size: Any = 1,
    dtype: Any = "float32",
    layer: Any = -1,
) -> None:
    """Raise ConfigError for the first option that no model can honour."""
    pools = tuple(dict.fromkeys((*POOLS, *BERT_POOLS)))
    for name, value, known in (("state", state, STATES), ("pool", pool, pools), ("dtype", dtype, tuple(DTYPES))):
        if (not isinstance(value, str) or value not in known) and not (name == "pool" and value is None):
            raise ConfigError(f"{name} must be one of {', '.join(known)}. Received: {name}={value!r}.")
    if isinstance(layer, (bool, np.bool_)) or not isinstance(layer, (int, np.integer)):
        raise ConfigError(f"layer must be an integer. Received: layer={layer!r}.")
    if not isinstance(tanh, (bool, np.bool_)):
        raise ConfigError(f"tanh must be true or false. Received: tanh={tanh!r}.")
    check_size("batch_size", batch_size)


def check_size(name: str, value: Any) -> None:
    """Raise ConfigError unless `value` is a positive integer."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise ConfigError(f"{name} must be a positive integer. Received: {name}={value!r}.")
