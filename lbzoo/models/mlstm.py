"""The multiplicative LSTM of Radford et al. 2017 as Keras classes: algebra only, no files and no text.

m_t = (x_t Wmx) * (h_{t-1} Wmh)             W = v * g / |v|, per output column, where weight norm is on
z_t = x_t Wx + m_t Wh + b;  i, f, o, u = split(z_t)
c_t = sigmoid(f) * c_{t-1} + sigmoid(i) * tanh(u)
h_t = sigmoid(o) * tanh(c_t)
logits_t = h_t Wout + bout
"""

from __future__ import annotations

import dataclasses
from typing import Any, Mapping, Optional, Tuple, Union

import numpy as np
import tensorflow as tf

from lbzoo._keras import Layer, add_weight
from lbzoo.errors import ConfigError
from lbzoo.models.base import ZooModel
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm_kernel import State, fast_scan, plain_scan

NORMED = {"wx": "gx", "wh": "gh", "wmx": "gmx", "wmh": "gmh"}  # a matrix and its gains
OUTPUT = ("out_w", "out_b")


def weight_norm(v: tf.Tensor, g: tf.Tensor) -> tf.Tensor:
    """Columns of v [in, out] scaled to norm g [out] (Salimans & Kingma 2016), in float32."""
    return v * (g * tf.math.rsqrt(tf.maximum(tf.reduce_sum(tf.square(v), axis=0), 1e-12)))


def initial_weights(config: MLSTMConfig, seed: int) -> dict[str, np.ndarray]:
    """Start values: orthogonal recurrent matrices (one block a gate), small normal elsewhere, forget bias 1.

    The multiplicative path starts small and random: one that starts near 1 trained worse (2.55 against 2.05 bits).
    """
    rng = np.random.default_rng(seed)
    n, e = config.units, config.embedding_dim

    def normal(rows, columns, scale):
        return (rng.standard_normal((rows, columns)) * scale).astype(np.float32)

    def orthogonal():
        q, r = np.linalg.qr(rng.standard_normal((n, n)))
        return (q * np.sign(np.diag(r))).astype(np.float32)

    bias = np.zeros(4 * n, np.float32)
    bias[n : 2 * n] = 1
    weights = {
        "embedding": normal(config.vocab_size, e, 0.05),
        "wx": normal(e, 4 * n, e**-0.5),
        "wh": np.concatenate([orthogonal() for _ in range(4)], axis=1),
        "wmx": normal(e, n, 4 * e**-0.5),
        "wmh": orthogonal(),
        "b": bias,
    }
    if config.weight_norm:
        weights.update({g: np.linalg.norm(weights[v], axis=0) for v, g in NORMED.items()})
    if config.output:
        weights.update(out_w=normal(n, config.vocab_size, 0.02), out_b=np.zeros(config.vocab_size, np.float32))
    return weights


class MLSTM(Layer):
    """Token ids [batch, time] -> hidden states [batch, time, units]; the state goes in and comes out.

    Args:
        config: sizes and form; `config.output` plays no part here.
        weights: start values by name (see `initial_weights`); None leaves zeros for a loader to fill.
        kernel: "fast" (own gradient) or "plain" (TensorFlow's), equal to float tolerance.
        dtype: a Keras policy name: "float32", "mixed_float16" or "mixed_bfloat16". Matrix products run in its compute
            dtype; variables, state, gates and norms are float32 under each.
    """

    def __init__(
        self,
        config: MLSTMConfig,
        weights: Optional[Mapping[str, np.ndarray]] = None,
        kernel: str = "fast",
        dtype: Optional[str] = None,
        name: str = "mlstm",
    ) -> None:
        super().__init__(name=name, dtype=dtype, autocast=False)
        if kernel not in ("fast", "plain"):
            raise ConfigError(f"kernel must be 'fast' or 'plain'. Received: {kernel!r}.")
        self.config, self.kernel = config, kernel
        shapes = {name: shape for name, shape in config.shapes().items() if name not in OUTPUT}
        self._named = {k: add_weight(self, k, s, None if weights is None else weights[k]) for k, s in shapes.items()}
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Variables by the names that checkpoint files use."""
        return dict(self._named)

    def matrix(self, name: str) -> tf.Tensor:
        """wx, wh, wmx or wmh as it is multiplied with, weight norm applied; float32 [in, out]."""
        v = tf.convert_to_tensor(self._named[name])
        return weight_norm(v, self._named[NORMED[name]]) if self.config.weight_norm else v

    def initial_state(self, batch: Union[int, tf.Tensor]) -> State:
        """(c, h) of zeros, float32 [batch, units]."""
        zeros = tf.zeros([batch, self.config.units], tf.float32)
        return zeros, zeros

    def call(
        self,
        ids: tf.Tensor,
        state: Optional[State] = None,
        mask: Optional[tf.Tensor] = None,
        reset: Optional[tf.Tensor] = None,
    ) -> Tuple[tf.Tensor, State]:
        """Run over `ids`.

        Args:
            ids: integers [batch, time] in 0 .. vocab_size - 1.
            state: (c, h), each float32 [batch, units]; None for zeros.
            mask: bool [batch, time]; where False the state passes through bit by bit.
            reset: bool [batch, time]; where True the state is zeroed before the step.

        Returns:
            (hidden states [batch, time, units] in the compute dtype, (c, h) after the last step in float32).
        """
        scan = fast_scan if self.kernel == "fast" else plain_scan
        hidden, c, h = scan(*self._operands(ids, state, mask, reset))
        return tf.cast(tf.transpose(hidden, [1, 0, 2]), self.compute_dtype), (c, h)

    def run(
        self,
        ids: tf.Tensor,
        state: Optional[State] = None,
        mask: Optional[tf.Tensor] = None,
        reset: Optional[tf.Tensor] = None,
        collect: Optional[str] = None,
    ) -> Tuple[Optional[tf.Tensor], State]:
        """`call` for inference: nothing is stored for a gradient, and `collect` says what comes back of every step.

        Args:
            collect: None, "cell" or "hidden".

        Returns:
            (the collected states, float32 [batch, time, units], or None; (c, h) after the last step).
        """
        if collect not in (None, "cell", "hidden"):
            raise ConfigError(f"collect must be None, 'cell' or 'hidden'. Received: {collect!r}.")
        states, c, h = plain_scan(*self._operands(ids, state, mask, reset), collect=collect)
        return (None if states is None else tf.transpose(states, [1, 0, 2])), (c, h)

    def _operands(self, ids, state, mask, reset):
        """Time-major arguments of the scans; matrices in the compute dtype."""
        ids = tf.convert_to_tensor(ids)
        c, h = self.initial_state(ids.shape[0] or tf.shape(ids)[0]) if state is None else state

        def steps(flags):
            return None if flags is None else tf.transpose(tf.cast(flags, tf.float32))[:, :, None]

        keep = None if reset is None else 1 - steps(reset)
        embedding = tf.convert_to_tensor(self._named["embedding"])
        tx = tf.matmul(embedding, self.matrix("wx")) + self._named["b"]
        tm = tf.matmul(embedding, self.matrix("wmx"))
        wh, wmh = (tf.cast(self.matrix(name), self.compute_dtype) for name in ("wh", "wmh"))
        return tf.transpose(ids), tx, tm, wh, wmh, c, h, steps(mask), keep


class MLSTMLanguageModel(ZooModel):
    """An mLSTM and, where `config.output` says so, a linear layer that predicts the next token.

    Args:
        config: sizes and form.
        text: name of the text policy that turns a string into this model's bytes (`lbzoo.text.clean.POLICIES`).
        card: what is known about the weights: name, source, licence, results, sentiment unit.
        seed: of the random start values; None leaves zeros for a loader that assigns every weight.
        kernel: "fast" or "plain", see `MLSTM`.
        dtype: Keras policy name, see `MLSTM`.
    """

    def __init__(
        self,
        config: MLSTMConfig,
        text: str = "openai",
        card: Optional[Mapping[str, Any]] = None,
        seed: Optional[int] = 0,
        kernel: str = "fast",
        dtype: Optional[str] = None,
    ) -> None:
        super().__init__(name="mlstm_language_model", dtype=dtype)
        self.config, self.text, self.card = config, text, dict(card or {})
        start = None if seed is None else initial_weights(config, seed)
        self.mlstm = MLSTM(config, start, kernel=kernel, dtype=dtype)
        shapes = {name: shape for name, shape in config.shapes().items() if name in OUTPUT}
        self._output = {k: add_weight(self, k, s, None if start is None else start[k]) for k, s in shapes.items()}
        self.built = True

    def named_weights(self) -> dict[str, tf.Variable]:
        """Every variable by the name that checkpoint files use, in a fixed order."""
        return {**self.mlstm.named_weights(), **self._output}

    def initial_state(self, batch: Union[int, tf.Tensor]) -> State:
        """(c, h) of zeros, float32 [batch, units]."""
        return self.mlstm.initial_state(batch)

    def call(
        self,
        ids: tf.Tensor,
        state: Optional[State] = None,
        mask: Optional[tf.Tensor] = None,
        reset: Optional[tf.Tensor] = None,
    ) -> Tuple[tf.Tensor, State]:
        """Like `MLSTM.call`, with next-token logits, float32 [batch, time, vocab_size], in place of hidden states."""
        hidden, state = self.mlstm(ids, state=state, mask=mask, reset=reset)
        return self.logits(hidden), state

    def logits(self, hidden: tf.Tensor) -> tf.Tensor:
        """Hidden states [..., units] -> next-token logits, float32 [..., vocab_size]."""
        if not self._output:
            raise ConfigError("this model was built with output=False: it has states but no next-token logits.")
        rows = tf.reshape(hidden, [-1, self.config.units])  # one product; its gradient in three dimensions is many
        product = tf.cast(tf.matmul(rows, tf.cast(self._output["out_w"], hidden.dtype)), tf.float32)
        return tf.reshape(product + self._output["out_b"], tf.concat([tf.shape(hidden)[:-1], [-1]], 0))

    def run(self, ids, state=None, mask=None, reset=None, collect=None):
        """See `MLSTM.run`."""
        return self.mlstm.run(ids, state=state, mask=mask, reset=reset, collect=collect)

    def folded(self) -> "MLSTMLanguageModel":
        """The same function with weight norm multiplied out; itself where there is nothing to fold."""
        return self if not self.config.weight_norm else self._with_form(weight_norm=False)

    def unfolded(self) -> "MLSTMLanguageModel":
        """The same function in training form (v, g), to train further; itself where it is in that form."""
        return self if self.config.weight_norm else self._with_form(weight_norm=True)

    def in_precision(self, dtype: str) -> "MLSTMLanguageModel":
        """The same weights under another Keras policy; itself where it is that one."""
        form = self.mlstm.dtype_policy.name
        if form == dtype:
            return self
        return _rebuilt(self.config, self.text, self.card, self.mlstm.kernel, dtype, self.named_weights())

    def _with_form(self, weight_norm: bool) -> "MLSTMLanguageModel":
        config = dataclasses.replace(self.config, weight_norm=weight_norm)
        values = {name: tf.convert_to_tensor(v) for name, v in self.named_weights().items()}
        for name, gain in NORMED.items():
            values[name] = self.mlstm.matrix(name)
            values[gain] = tf.norm(values[name], axis=0)
        return _rebuilt(config, self.text, self.card, self.mlstm.kernel, self.mlstm.dtype_policy.name, values)

    def __reduce__(self) -> tuple:
        """Pickled and copied as configuration and numbers."""
        weights = {name: variable.numpy() for name, variable in self.named_weights().items()}
        form = (self.config, self.text, self.card, self.mlstm.kernel, self.mlstm.dtype_policy.name)
        return _rebuilt, (*form, weights)


def _rebuilt(
    config: MLSTMConfig, text: str, card: dict, kernel: str, dtype: str, weights: Mapping[str, Any]
) -> MLSTMLanguageModel:
    model = MLSTMLanguageModel(config, text, card, None, kernel, dtype)
    for name, variable in model.named_weights().items():
        variable.assign(weights[name])
    return model
