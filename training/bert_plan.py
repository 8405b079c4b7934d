"""What a BERT configuration comes to before it runs: rates of both phases, micro-batches, memory, tokens."""

from __future__ import annotations

from typing import Sequence, Tuple, Union

import numpy as np

from lbzoo.errors import ConfigError
from lbzoo.optimizers.schedules import PolynomialDecay, TwoPhase, scaled_rate, warmup_steps
from training import plan
from training.bert_recipes import BertRunConfig, PhaseConfig

Schedule = Union[PolynomialDecay, TwoPhase]
PUBLISHED_RATE, PUBLISHED_ROWS = 6e-3, 65_536  # NVIDIA's run, the highest rate of BERT with LAMB that is published
LARGE_BATCH = 1024  # rows; rates for small models on small batches are another matter


def peak_rate(config: BertRunConfig, phase: PhaseConfig) -> float:
    """The learning rate at the top of a phase's schedule, scaled to its rows."""
    o = config.optimizer
    return scaled_rate(o.learning_rate, phase.rows, o.reference_rows, o.scaling)


def warmup(config: BertRunConfig, phase: PhaseConfig, steps: int) -> int:
    """Steps of warm-up in a schedule of `steps` with the rows of `phase`."""
    o = config.optimizer
    if o.warmup_unit != "linear-epoch":
        return warmup_steps(o.warmup, o.warmup_unit, steps)
    return warmup_steps(scaled_rate(o.warmup, phase.rows, o.reference_rows, "linear"), "share", steps)


def schedule(config: BertRunConfig) -> Schedule:
    """The rate of every step of the run.

    Raises:
        ConfigError: values that make no schedule, such as a warm-up that is longer than its phase.
    """

    def decay(phase: PhaseConfig, steps: int) -> PolynomialDecay:
        peak, rising = peak_rate(config, phase), warmup(config, phase, steps)
        return PolynomialDecay(peak, steps, warmup=rising, power=config.optimizer.power)

    if config.optimizer.again and config.second.steps:
        return TwoPhase(*(decay(phase, phase.steps) for phase in config.phases))
    if config.second.steps and peak_rate(config, config.first) != peak_rate(config, config.second):
        raise ConfigError(
            f"one schedule over two phases has one peak. Received: optimizer.again=False, but optimizer.scaling="
            f"{config.optimizer.scaling} with {config.first.rows} and {config.second.rows} rows. Set optimizer.again."
        )
    return decay(config.first, config.steps)


def micro_batches(phase: PhaseConfig, replicas: int = 1, name: str = "first") -> int:
    """Micro-batches that each of `replicas` devices does in a step of that phase.

    Raises:
        ConfigError: the rows do not divide.
    """
    return plan.divided(phase.rows, phase.micro_rows, replicas, f"{name}.")


def memory(config: BertRunConfig, phase: PhaseConfig, replicas: int = 1) -> Tuple[int, int]:
    """Estimated bytes on one device: (what the weights need, what the rows of one micro-batch need).

    Weights: themselves, gradient, two moments, a clipped gradient and one copy in the compute dtype; one more gradient
    where micro-batches are added up. Rows: for each token and layer 26 values of every unit in the compute dtype and 5
    in float32, one and two for each pair of tokens and head; logits, their gradient and their softmax. These counts
    were fitted on a CPU to what rows added to the process (4 layers of 256 units, lengths 128 and 512); with 2 layers
    of 512 units and 30,522 pieces rows added 0.83 of them in float32 and 0.44 in mixed_bfloat16. Untested on GPUs.
    """
    model, compute = config.model, 4 if config.precision == "float32" else 2
    pieces = micro_batches(phase, replicas)
    rows = phase.rows // replicas // pieces
    weights = plan.parameters(model) * (5 * 4 + compute + (4 if pieces > 1 else 0))
    token = model.hidden_size * (26 * compute + 5 * 4)
    token += model.num_attention_heads * phase.length * (compute + 2 * 4)
    row = phase.length * model.num_hidden_layers * token + phase.predictions * model.vocab_size * (3 * 4 + compute)
    return weights, rows * row


def warnings(config: BertRunConfig) -> list[str]:
    """What a user should know before such a run, one paragraph each."""
    rate = max(peak_rate(config, phase) for phase in config.phases)
    rows = max(phase.rows for phase in config.phases)
    found = []
    if rate > PUBLISHED_RATE and rows >= LARGE_BATCH and config.optimizer.name == "lamb":
        found.append(
            f"the learning rate is {rate:g}, above {PUBLISHED_RATE:g}, which the published runs of BERT with LAMB kept "
            f"at {PUBLISHED_ROWS:,} rows; several users report that theirs diverged even there. Lower "
            f"optimizer.learning_rate or the rows."
        )
    if rows >= 16_384 and config.optimizer.name == "adamw":
        found.append(
            "You et al. 2020 report that AdamW misses its target at 16,384 rows, and diverged in four of nine settings."
        )
    return found


def describe(name: str, config: BertRunConfig, steps_per_epoch: Sequence[int] = ()) -> str:
    """The plan that `--dry-run` prints: steps, tokens, both phases' rates, memory per device.

    Args:
        steps_per_epoch: of each phase on the shards at hand, where there are some.
    """
    model, o, rates = config.model, config.optimizer, schedule(config)
    tokens = sum(phase.steps * phase.rows * phase.length for phase in config.phases)
    lines = [
        f"recipe      {name}: {model.num_hidden_layers} layers of {model.hidden_size} units, "
        f"{plan.parameters(model):,} weights, {config.precision}",
        f"steps       {config.steps:,}",
        f"tokens      {tokens:,} in {sum(phase.steps * phase.rows for phase in config.phases):,} rows",
        f"optimizer   {_optimizer(config)}; weight decay {o.weight_decay:g}, epsilon {o.epsilon:g}, norm limit "
        f"{o.clip_norm or 'none'}",
    ]
    if steps_per_epoch:
        passes = (f"{phase.steps / epoch:.2f}" for phase, epoch in zip(config.phases, steps_per_epoch))
        lines.append(f"passes      {' and '.join(passes)} over the shards")
    start = 0
    for number, phase in enumerate(config.phases):
        lines += _phase(config, number, start, rates, own=number == 0 or isinstance(rates, TwoPhase))
        start += phase.steps
    return "\n".join(lines + [f"warning: {text}" for text in warnings(config)])


def _optimizer(config: BertRunConfig) -> str:
    o = config.optimizer
    preset = f" ({o.preset})" if o.name == "lamb" else ""
    rule = f"{o.scaling} scaling of {o.learning_rate:g} at {o.reference_rows:,} rows"
    return o.name + preset + ("" if o.scaling == "none" else f", {rule}")


def _phase(config: BertRunConfig, number: int, start: int, rates: Schedule, own: bool) -> list[str]:
    """Lines on phase 0 or 1, which begins after step `start`; `own` where its schedule begins with it."""
    phase = config.phases[number]
    pieces = micro_batches(phase, name=("first", "second")[number])
    weights, rows = memory(config, phase)
    part = rates if not isinstance(rates, TwoPhase) else (rates.first, rates.second)[number]
    ramp = (
        f"warm-up {part.warmup:,} steps to {part.peak:g}, then falls to {part.end:g} at step {start + part.steps:,}"
        if own
        else "goes on falling"
    )
    points = np.unique(np.linspace(start, start + phase.steps - 1, 6).round().astype(int))
    return [
        f"phase {number + 1}     {phase.steps:,} steps of {phase.rows:,} rows x {phase.length} tokens, at most "
        f"{phase.predictions} predicted",
        f"  rate      {ramp}",
        *(f"  step {point + 1:>10,}  rate {float(rates(point)):.4e}" for point in points),
        f"  one device: {pieces} micro-batches of {phase.rows // pieces:,} rows a step; memory, estimated: "
        f"{plan.size(weights + rows)}, of which {plan.size(weights)} for the weights, their gradient and moments",
    ]
