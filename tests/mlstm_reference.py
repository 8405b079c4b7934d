"""The mLSTM in NumPy float64, written from the equations alone: shares nothing with lbzoo."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def folded(weights):
    """float64 weights with weight norm multiplied out."""
    w = {name: np.asarray(value, np.float64) for name, value in weights.items()}
    for v, g in {"wx": "gx", "wh": "gh", "wmx": "gmx", "wmh": "gmh"}.items():
        if g in w:
            w[v] = w[v] / np.sqrt((w[v] ** 2).sum(axis=0)) * w[g]
    return w


def run(weights, ids, c, h, mask=None, reset=None):
    """(logits or None, all h, all c) [batch, time, ...] and the last (c, h); text by text, step by step."""
    w, ids = folded(weights), np.asarray(ids)
    n = w["wmh"].shape[0]
    hs, cs = np.zeros(ids.shape + (n,)), np.zeros(ids.shape + (n,))
    last_c, last_h = np.array(c, np.float64), np.array(h, np.float64)
    for row in range(ids.shape[0]):
        c, h = last_c[row], last_h[row]
        for t in range(ids.shape[1]):
            if reset is not None and reset[row, t]:
                c, h = np.zeros(n), np.zeros(n)
            if mask is None or mask[row, t]:
                x = w["embedding"][ids[row, t]]
                m = (x @ w["wmx"]) * (h @ w["wmh"])
                z = x @ w["wx"] + m @ w["wh"] + w["b"]
                i, f, o, u = z[:n], z[n : 2 * n], z[2 * n : 3 * n], z[3 * n :]
                c = sigmoid(f) * c + sigmoid(i) * np.tanh(u)
                h = sigmoid(o) * np.tanh(c)
            hs[row, t], cs[row, t] = h, c
        last_c[row], last_h[row] = c, h
    logits = hs @ w["out_w"] + w["out_b"] if "out_w" in w else None
    return logits, hs, cs, (last_c, last_h)
