"""What a configuration comes to before it runs: rate, micro-batches, memory, and a warning where one is due."""

from __future__ import annotations

import math
from typing import Any, Tuple

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.optimizers.schedules import SCHEDULES, LinearDecay, scaled_rate, warmup_steps
from training.recipes import RunConfig

# The highest rate, and the batch it is scaled from, that the published mLSTM runs used (training/recipes.py).
PUBLISHED_CAP, PUBLISHED_ROWS = 3e-3, 128
GIB = 2**30


def peak_rate(config: RunConfig) -> float:
    """The learning rate at the top of the schedule, scaled to the batch."""
    o = config.optimizer
    return scaled_rate(o.learning_rate, config.data.rows, o.reference_rows, o.scaling, o.rate_cap)


def schedule(config: RunConfig, steps_per_epoch: int = 0) -> LinearDecay:
    """The run's schedule; `steps_per_epoch` is needed where the warm-up is given in epochs.

    Raises:
        ConfigError: an unknown schedule, or values that make none.
    """
    o = config.optimizer
    if o.schedule not in SCHEDULES:
        known = ", ".join(SCHEDULES)
        raise ConfigError(f"there is no such schedule. Received: optimizer.schedule={o.schedule}. Known: {known}.")
    more = {"polynomial": {"power": o.power}, "constant-linear": {"constant": o.constant_steps}}.get(o.schedule, {})
    return SCHEDULES[o.schedule](
        peak=peak_rate(config),
        steps=o.decay_steps or config.steps,
        warmup=warmup_steps(o.warmup, o.warmup_unit, config.steps, steps_per_epoch),
        end=o.final_rate,
        **more,
    )


def micro_batches(config: RunConfig, replicas: int = 1) -> int:
    """Micro-batches that each of `replicas` devices does in a step.

    Raises:
        ConfigError: the rows do not divide.
    """
    return divided(config.data.rows, config.micro_rows, replicas)


def divided(rows: int, micro_rows: int, replicas: int, group: str = "data.") -> int:
    """`micro_batches` of a batch of `rows`; `group` is where its setting stands, for the error."""
    share, rest = divmod(rows, replicas)
    micro = min(micro_rows or share, share)
    if rest or micro < 1 or share % micro:
        raise ConfigError(
            f"the rows of a batch divide evenly over the devices, and those of a device into micro-batches. Received: "
            f"{group}rows={rows}, {replicas} devices, micro_rows={micro_rows}. Change one of them."
        )
    return share // micro


def parameters(model: Any) -> int:
    """How many trained numbers a model of that configuration has."""
    return sum(math.prod(shape) for shape in model.shapes().values())


def memory(config: RunConfig, replicas: int = 1) -> Tuple[int, int]:
    """Estimated bytes on one device: (what the weights need, what the rows of one micro-batch need).

    Weights: themselves, gradient, Adam's two moments, a normalised copy and one in the compute dtype; one more gradient
    where micro-batches are added up. Rows, for every byte read, with the fast kernel: its stored gates, states and
    projections forward (11 n numbers in the compute dtype and n float32), the gradients and products of the backward
    pass (11 n and n), and logits with their gradient (3 vocab). On a CPU with 512 units and windows of 128, rows added
    0.70 (float32) and 0.94 (mixed_bfloat16) times this to the process; untested on GPUs.
    """
    compute = 4 if config.precision == "float32" else 2
    pieces = micro_batches(config, replicas)
    rows = config.data.rows // replicas // pieces
    weights = parameters(config.model) * (5 * 4 + compute + (4 if pieces > 1 else 0))
    n, vocab = config.model.units, config.model.vocab_size
    return weights, rows * config.data.window * (22 * n * compute + 2 * n * 4 + vocab * 3 * 4)


def warnings(config: RunConfig) -> list[str]:
    """What a user should know before such a run, one paragraph each."""
    rate = peak_rate(config)
    if rate <= PUBLISHED_CAP or (config.optimizer.scaling != "linear" and config.data.rows <= PUBLISHED_ROWS):
        return []
    return [
        f"the learning rate is {rate:g} for {config.data.rows} rows, above {PUBLISHED_CAP:g}, the highest that the "
        f'published mLSTM runs kept. Rates beyond it are known to diverge. Puri et al. 2018: "simply scaling the '
        f"learning rate as a function of batch size leads either to significantly worse convergence or immediate "
        f'divergence"; NVIDIA\'s notes to that code: "learning rate scaling did not work well at all batch sizes and '
        f'we capped our max learning rate at 3e-3". Why: linear scaling takes one step of k times the length for k '
        f"small ones, which holds only while the gradient stays nearly the same along it, and that fails while the "
        f"network changes fast, early in training (Goyal et al. 2017, section 2.2). "
        f"Set optimizer.rate_cap={PUBLISHED_CAP:g} to stay within what was published."
    ]


def describe(name: str, config: RunConfig, steps_per_epoch: int = 0) -> str:
    """The plan that `--dry-run` prints: steps, characters, rate at ten points, memory per device."""
    data, o, pieces = config.data, config.optimizer, micro_batches(config)
    rates = schedule(config, steps_per_epoch)
    per_step = data.rows * data.window
    passes = f", {config.steps / steps_per_epoch:.2f} passes over the shards" if steps_per_epoch else ""
    weights, rows = memory(config)
    lines = [
        f"recipe      {name}: {config.model.units} units, {parameters(config.model):,} weights, {config.precision}",
        f"steps       {config.steps:,} of {data.rows:,} rows x {data.window} bytes{passes}",
        f"characters  {config.steps * per_step:,} ({per_step:,} a step)",
        f"one device  {pieces} micro-batches of {data.rows // pieces:,} rows a step; {pieces} devices: one each"
        if pieces > 1
        else f"one device  {data.rows:,} rows at once",
        f"gradient    {size(parameters(config.model) * (4 if config.reduce_dtype == 'float32' else 2))} in "
        f"{config.reduce_dtype} from each of several devices a step",
        f"rate        peak {rates.peak:g}{_scaling(config)}; {o.schedule} over {rates.steps:,} steps, warm-up "
        f"{rates.warmup:,} steps; norm limit {o.clip_norm or 'none'}",
    ]
    points = np.unique(np.linspace(0, config.steps - 1, 10).round().astype(int))
    lines += [f"  step {point + 1:>10,}  rate {float(rates(point)):.4e}" for point in points]
    lines.append(
        f"memory per device, estimated: {size(weights + rows)}, of which {size(weights)} for the weights, their "
        f"gradient and Adam's moments, and {size(rows)} for {data.rows // pieces:,} rows at once"
    )
    return "\n".join(lines + [f"warning: {text}" for text in warnings(config)])


def size(count: int) -> str:
    """Bytes as a person reads them."""
    return f"{count / GIB:.2f} GiB" if count >= GIB / 10 else f"{count / 2**20:.1f} MiB"


def _scaling(config: RunConfig) -> str:
    o = config.optimizer
    if o.scaling == "none":
        return ""
    cap = f", at most {o.rate_cap:g}" if o.rate_cap else ""
    return f" ({o.scaling} scaling of {o.learning_rate:g} at {o.reference_rows:,} rows{cap})"
