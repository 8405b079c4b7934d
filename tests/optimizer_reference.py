"""LAMB, LARS and AdamW in float64 NumPy, from their papers, and weights with made-up gradients to try them on."""

from __future__ import annotations

import numpy as np

SHAPES = {"attention.kernel": (5, 4), "attention.bias": (4,), "norm.scale": (4,), "words": (6, 3), "zero": (3,)}
RATES = [0.1, 0.05, 0.2, 0.1, 0.15]
SPARSE = "words"  # its gradients come as rows


def start(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {name: (0.0 if name == "zero" else 1.0) * rng.normal(size=s).astype("f4") for name, s in SHAPES.items()}


def gradients(step: int) -> dict[str, np.ndarray]:
    """Dense gradients of one step; that of "words" is made of `rows`."""
    rng = np.random.default_rng([1, step])
    found = {name: (10.0 ** rng.integers(-3, 2) * rng.normal(size=s)).astype("f4") for name, s in SHAPES.items()}
    found[SPARSE] = np.zeros(SHAPES[SPARSE], np.float32)
    np.add.at(found[SPARSE], *rows(step))
    return found


def rows(step: int) -> tuple[np.ndarray, np.ndarray]:
    """(row numbers, one of them three times; float32 [rows, 3])."""
    return np.array([4, 1, 4, 0, 4]), np.random.default_rng([2, step]).normal(size=(5, 3)).astype("f4")


def norm_ratio(weight: np.ndarray, update: np.ndarray) -> float:
    size, length = np.linalg.norm(weight), np.linalg.norm(update)
    return size / length if size > 0 and length > 0 else 1.0


def lamb(steps: int, decay: float, undecayed=(), unadapted=(), epsilon: float = 1e-6):
    """Weights after `steps`, and the trust ratios of each step."""
    weights = {name: w.astype(np.float64) for name, w in start().items()}
    m, v = ({name: np.zeros(s) for name, s in SHAPES.items()} for _ in range(2))
    ratios = []
    for t in range(1, steps + 1):
        ratios.append({})
        for name, g in gradients(t).items():
            g = g.astype(np.float64)
            m[name], v[name] = 0.9 * m[name] + 0.1 * g, 0.999 * v[name] + 0.001 * g**2
            update = m[name] / (1 - 0.9**t) / (np.sqrt(v[name] / (1 - 0.999**t)) + epsilon)
            update = update + (0.0 if name in undecayed else decay) * weights[name]
            ratios[-1][name] = 1.0 if name in unadapted else norm_ratio(weights[name], update)
            weights[name] = weights[name] - RATES[t - 1] * ratios[-1][name] * update
    return weights, ratios


def lars(steps: int, decay: float, undecayed=(), unadapted=(), eta: float = 0.001, momentum: float = 0.9):
    """Weights after `steps`."""
    weights = {name: w.astype(np.float64) for name, w in start().items()}
    v = {name: np.zeros(s) for name, s in SHAPES.items()}
    for t in range(1, steps + 1):
        for name, g in gradients(t).items():
            g, w, beta = g.astype(np.float64), weights[name], 0.0 if name in undecayed else decay
            sizes = np.linalg.norm(w), np.linalg.norm(g)
            local = eta * sizes[0] / (sizes[1] + beta * sizes[0]) if min(sizes) > 0 and name not in unadapted else 1.0
            v[name] = momentum * v[name] + RATES[t - 1] * local * (g + beta * w)
            weights[name] = w - v[name]
    return weights


def adamw(steps: int, decay: float, undecayed=(), epsilon: float = 1e-6):
    """Weights after `steps`."""
    weights = {name: w.astype(np.float64) for name, w in start().items()}
    m, v = ({name: np.zeros(s) for name, s in SHAPES.items()} for _ in range(2))
    for t in range(1, steps + 1):
        for name, g in gradients(t).items():
            g = g.astype(np.float64)
            m[name], v[name] = 0.9 * m[name] + 0.1 * g, 0.999 * v[name] + 0.001 * g**2
            step = np.sqrt(1 - 0.999**t) / (1 - 0.9**t) * m[name] / (np.sqrt(v[name]) + epsilon)
            beta = 0.0 if name in undecayed else decay
            weights[name] = weights[name] - RATES[t - 1] * (step + beta * weights[name])
    return weights
