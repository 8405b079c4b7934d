"""The same mLSTM training step in torch under bfloat16 autocast, as one would write it: a loop and autograd."""

from __future__ import annotations

from typing import Callable

import numpy as np


def training_step(units: int, rows: int, steps: int, ids: np.ndarray, mask: np.ndarray) -> Callable[[], float]:
    """A function that does one step (forward, backward, clip, Adam) and returns the loss."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Cell(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(256, 64)
            norm = torch.nn.utils.parametrizations.weight_norm
            self.wx, self.wmx = norm(nn.Linear(64, 4 * units)), norm(nn.Linear(64, units, bias=False))
            self.wh = norm(nn.Linear(units, 4 * units, bias=False))
            self.wmh = norm(nn.Linear(units, units, bias=False))
            self.out = nn.Linear(units, 256)

        def forward(self, ids, mask):
            x = self.embedding(ids.T)  # time first
            zx, mx = self.wx(x), self.wmx(x)
            wh, wmh = self.wh.weight, self.wmh.weight
            c = h = torch.zeros(rows, units)
            hidden = []
            for t in range(steps):
                m = mx[t] * F.linear(h, wmh)
                i, f, o, u = (zx[t] + F.linear(m, wh)).float().chunk(4, dim=-1)
                c_next = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
                h_next = torch.sigmoid(o) * torch.tanh(c_next)
                keep = mask[:, t : t + 1]
                c, h = torch.where(keep, c_next, c), torch.where(keep, h_next, h)
                hidden.append(h)
            return self.out(torch.stack(hidden)).float()

    torch.manual_seed(0)
    cell = Cell()
    optimizer = torch.optim.Adam(cell.parameters(), lr=1e-3)
    inputs, wanted, keep = torch.from_numpy(ids).long(), torch.from_numpy(ids).long().T, torch.from_numpy(mask)

    def step() -> float:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = cell(inputs, keep)
        loss = F.cross_entropy(logits.reshape(-1, 256), wanted.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        optimizer.step()
        return float(loss)

    return step
