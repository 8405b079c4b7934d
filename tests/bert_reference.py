"""BERT in NumPy and float64, written from the equations with loops over heads: what the Keras models are held to."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np


def gelu_erf(x):
    return x * 0.5 * (1 + np.vectorize(erf)(x / sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


ACTIVATIONS = {
    "gelu_erf": gelu_erf,
    "gelu_tanh": gelu_tanh,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def layer_norm(w, name, x, eps):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    return scaled * w[f"{name}/layer_norm/gamma"] + w[f"{name}/layer_norm/beta"]


def dense(w, name, x):
    return x @ w[f"{name}/kernel"] + w[f"{name}/bias"]


def attention(w, name, x, mask, heads):
    """x [time, units] of one row; tokens outside of mask [time] are not looked at."""
    q, k, v = (dense(w, f"{name}/{part}", x) for part in ("query", "key", "value"))
    width = x.shape[-1] // heads
    out = np.zeros_like(x)
    for head in range(heads):
        cut = slice(head * width, (head + 1) * width)
        scores = q[:, cut] @ k[mask, cut].T / sqrt(width)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, cut] = weights / weights.sum(-1, keepdims=True) @ v[mask, cut]
    return dense(w, f"{name}/output", out)


def encode(weights, config, ids, segments=None, mask=None):
    """Every layer's vectors, [layers + 1, batch, time, units]."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    segments = np.zeros_like(ids) if segments is None else segments
    mask = np.ones(ids.shape, bool) if mask is None else np.asarray(mask, bool)
    eps, rows = config.layer_norm_eps, []
    for row_ids, row_segments, row_mask in zip(ids, segments, mask):
        x = w["embeddings/token"][row_ids] + w["embeddings/position"][: len(row_ids)]
        x = layer_norm(w, "embeddings", x + w["embeddings/segment"][row_segments], eps)
        layers = [x]
        for i in range(config.num_hidden_layers):
            y = attention(w, f"layer_{i}/attention", x, row_mask, config.num_attention_heads)
            x = layer_norm(w, f"layer_{i}/attention", x + y, eps)
            y = ACTIVATIONS[config.hidden_act](dense(w, f"layer_{i}/ffn/inner", x))
            x = layer_norm(w, f"layer_{i}/ffn", x + dense(w, f"layer_{i}/ffn/output", y), eps)
            layers.append(x)
        rows.append(layers)
    return np.moveaxis(np.array(rows), 0, 1)


def pooled(w, hidden):
    return np.tanh(dense(w, "pooler", hidden[:, 0]))


def masked_lm(w, config, hidden):
    x = ACTIVATIONS[config.hidden_act](dense(w, "mlm/transform", hidden))
    return layer_norm(w, "mlm", x, config.layer_norm_eps) @ np.asarray(w["embeddings/token"]).T + w["mlm/bias"]
