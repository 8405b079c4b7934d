"""One function per run, each returning a full frozen configuration. A variant calls another and replaces fields.

Sources, cited beside the fields:
    [R17]  Radford, Jozefowicz, Sutskever 2017, "Learning to Generate Reviews and Discovering Sentiment"
    [P18]  Puri, Kirby, Yakovenko, Catanzaro 2018, "Large Scale Language Modeling: Converging on 40GB of Text in Four
           Hours", abstract
    [N]    NVIDIA/sentiment-discovery at the tag v0.3.large_batch_stable, the code of [P18]; [N docs] its analysis/
           reproduction.md, at the tag and later; [N fig] its figures
    [here] chosen for this project; for the published runs this marks what the sources do not say

The published runs could not be run here in full: they need 40 GB of reviews and many accelerators.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping

from lbzoo.errors import ConfigError
from lbzoo.models.config import MLSTMConfig
from lbzoo.optimizers.loss_scale import LossScaleConfig
from lbzoo.text.clean import POLICIES
from training import settings

# One pass of the published runs: [N] 73,000 iterations of 2048 rows of 256 bytes are "1 epoch", and [R17] has "over 38
# billion training bytes".
AMAZON_CHARACTERS = 73_000 * 2048 * 256
PRECISIONS = ("float32", "mixed_float16", "mixed_bfloat16")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """The stream of bytes: see training/data.py."""

    rows: int
    window: int
    shard_bytes: int = 1 << 16
    reset: str = "document"


@dataclasses.dataclass(frozen=True)
class OptimizerConfig:
    """Adam, its schedule and its norm limit: see lbzoo/optimizers.

    Attributes:
        learning_rate: at the peak of the schedule, for `reference_rows` where `scaling` is not "none".
        scaling: how the rate goes with the rows of the batch: "none", "sqrt" or "linear".
        rate_cap: the scaled rate is at most this; 0 for no limit.
        schedule: a name in `lbzoo.optimizers.schedules.SCHEDULES`.
        decay_steps: where the schedule ends; 0 for the run's last step.
        constant_steps: of "constant-linear". power: of "polynomial".
        warmup: in `warmup_unit`: "steps", "share" (of the run) or "epochs".
        clip_norm: limit of the global gradient norm; 0 for none.
    """

    learning_rate: float
    warmup: float = 0
    final_rate: float = 0.0
    clip_norm: float = 1.0
    beta_2: float = 0.999
    beta_1: float = 0.9
    epsilon: float = 1e-8
    warmup_unit: str = "steps"
    schedule: str = "linear"
    decay_steps: int = 0
    constant_steps: int = 0
    power: float = 1.0
    scaling: str = "none"
    reference_rows: int = 0
    rate_cap: float = 0.0


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run computes.

    Attributes:
        memory: where above 0, half the units start with gate biases for memories of 2 to `memory` bytes.
        sentiment_weight: of the second loss, the sentiment of the text so far at every byte; 0 leaves it out.
        precision: Keras policy name; loss scaling is on under mixed_float16 and only there.
        init_from: name or folder of a checkpoint whose weights, and read-out if it has one, start the run; one with
            fewer units is widened (training/widen.py); "" for random ones.
        save_every, evaluate_every: in steps.
        micro_rows: rows that a device works on at once, the rest of its share of the batch after them; 0 for all.
        reduce_dtype: in which gradients travel between devices and are summed there.
    """

    model: MLSTMConfig
    data: DataConfig
    optimizer: OptimizerConfig
    steps: int
    seed: int = 1
    memory: int = 0
    sentiment_weight: float = 0.0
    precision: str = "float32"
    text: str = "reviews"
    init_from: str = ""
    save_every: int = 500
    evaluate_every: int = 1500
    micro_rows: int = 0
    reduce_dtype: str = "float32"
    loss_scale: LossScaleConfig = LossScaleConfig()

    def __post_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"there is no such precision. Received: {self.precision!r}. Known: {', '.join(PRECISIONS)}."
            )
        if self.text not in POLICIES:
            raise ConfigError(f"there is no such text policy. Received: {self.text!r}. Known: {', '.join(POLICIES)}.")
        counts = {
            "data.rows": self.data.rows,
            "data.window": self.data.window,
            "steps": self.steps,
            "save_every": self.save_every,
            "evaluate_every": self.evaluate_every,
        }
        for name, value in counts.items():
            if value < 1:
                raise ConfigError(f"{name} is at least 1. Received: {value}.")

    def to_dict(self) -> dict[str, Any]:
        """As written beside a run's results and compared on resume."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "RunConfig":
        """The inverse of `to_dict`."""
        parts = {
            "model": MLSTMConfig,
            "data": DataConfig,
            "optimizer": OptimizerConfig,
            "loss_scale": LossScaleConfig,
        }
        return cls(**{k: parts[k](**v) if k in parts else v for k, v in values.items()})


def tiny() -> RunConfig:
    """Seconds on a laptop: for tests and for a first look. Every field [here]."""
    return RunConfig(
        model=MLSTMConfig(units=32, embedding_dim=16),
        data=DataConfig(rows=8, window=32, shard_bytes=1 << 12),
        optimizer=OptimizerConfig(learning_rate=5e-3, warmup=5),
        steps=60,
        sentiment_weight=1.0,
        save_every=10,
        evaluate_every=30,
    )


def reviews_512() -> RunConfig:
    """mlstm-512-reviews: two losses, bfloat16 products, one pass over the prepared documents. Every field [here]."""
    return RunConfig(
        model=MLSTMConfig(units=512),
        data=DataConfig(rows=128, window=64),
        optimizer=OptimizerConfig(learning_rate=2.5e-3, warmup=200),
        steps=7_200,
        memory=200,
        sentiment_weight=4.0,
        precision="mixed_bfloat16",
    )


def reviews_1024() -> RunConfig:
    """mlstm-1024-reviews: goes on from mlstm-512-reviews, widened (training/widen.py). Every field [here].

    1024 units are the smallest that show sentiment in the published runs ([N fig]: SST 81.8 %; 53.2 % with 256).
    """
    return dataclasses.replace(
        reviews_512(),
        model=MLSTMConfig(units=1024),
        data=DataConfig(rows=64, window=128),
        # twice the rate, with half the characters an update, undid what the start had learnt (training/RESULTS.md)
        optimizer=OptimizerConfig(learning_rate=1e-3, warmup=100),
        steps=7_200,
        seed=2,
        sentiment_weight=3.0,
        init_from="mlstm-512-reviews",
        evaluate_every=1_750,
    )


def reviews_1024_second() -> RunConfig:
    """mlstm-1024-reviews once more: goes on from the end of `reviews_1024`, the checkpoint of lbzoo's first release.

    Every field [here]. More of the text is Amazon's, and an earlier self teaches (training/earlier_self.py).
    """
    return dataclasses.replace(
        reviews_1024(),
        optimizer=OptimizerConfig(learning_rate=8e-4, warmup=100),
        steps=8_000,
        seed=3,
        sentiment_weight=2.0,
        init_from="mlstm-1024-reviews",
        evaluate_every=2_000,
    )


def openai_2017() -> RunConfig:
    """The run of [R17] that found the sentiment unit: one pass in one month on four Pascal GPUs.

    Start values are lbzoo's (`lbzoo.models.mlstm.initial_weights`): orthogonal recurrent matrices as published, scales
    of the rest [here].
    """
    return RunConfig(
        model=MLSTMConfig(units=4096, embedding_dim=64, weight_norm=True),  # [R17], the released weights
        data=DataConfig(
            rows=128,  # [R17]
            window=256,  # [R17]
            shard_bytes=AMAZON_CHARACTERS // 1000,  # [R17] 1000 training shards
            reset="shard",  # [R17] zero at the start of a shard, kept across updates
        ),
        optimizer=OptimizerConfig(
            learning_rate=5e-4,  # [R17] Adam, linear to zero over the run, no warm-up
            clip_norm=0.0,  # none is stated
        ),
        steps=1_000_000,  # [R17]
        precision="float32",  # [R17] Pascal GPUs; nothing else is stated
        text="openai",  # the released code, utils.py
        save_every=2000,  # [here]
        evaluate_every=20_000,  # [here]
        micro_rows=32,  # [R17] data parallel over four GPUs
    )


def nvidia_2048() -> RunConfig:
    """NVIDIA's command for eight GPUs ([N] experiments/train_mlstm_singlenode.sh): about 17 hours ([N docs])."""
    return RunConfig(
        model=MLSTMConfig(units=4096, embedding_dim=64, weight_norm=True),  # [N]
        data=DataConfig(
            rows=2048,  # [N] 8 GPUs x 256
            window=256,  # [N] --seq_length
            shard_bytes=AMAZON_CHARACTERS // 1000,  # [N docs] 1000/1/1 shards
            reset="shard",  # [N] --persist_state 1
        ),
        optimizer=OptimizerConfig(
            learning_rate=3e-3,  # [N] --lr 3e-3
            decay_steps=100_000,  # [N] --decay-style linear --constant-decay 100000
            final_rate=1e-8,  # [N] learning_rates.py
            clip_norm=1.0,  # [N docs]; in the code the limit never worked under fp16
        ),
        steps=73_000,  # [N] --train-iters 73000, one pass
        precision="mixed_float16",  # [N] --fp16; master weights, norms and gains in float32 [here]
        text="reviews",  # [N] removes markup; its folding to ASCII and of white space isn't repeated here
        save_every=2000,  # [N]
        evaluate_every=2000,  # [here]
        micro_rows=256,  # [N docs] rows a GPU in mixed precision
        reduce_dtype="float16",  # [N] distributed.py: one bucket in half precision, summed, then divided
        loss_scale=LossScaleConfig(
            growth_interval=1000
        ),  # [N] x2 after 1000 clean steps, floor 1; start and cap [here]
    )


def nvidia_32k() -> RunConfig:
    """The run of [P18]: 32k rows on 128 V100, three passes in four hours.

    The rate starts from [N docs at the tag], 5e-4 for 128 rows scaled linearly, and is held at the cap that [N docs]
    came to: "learning rate scaling did not work well at all batch sizes and we capped our max learning rate at 3e-3".
    At the last step it is still 2.59e-3: the schedule does not reach zero in the published run either.
    """
    base = nvidia_2048()
    return dataclasses.replace(
        base,
        data=dataclasses.replace(base.data, rows=32_768),  # [P18] 128 GPUs x 256
        optimizer=dataclasses.replace(
            base.optimizer, learning_rate=5e-4, reference_rows=128, scaling="linear", rate_cap=3e-3
        ),
        steps=-(-3 * AMAZON_CHARACTERS // (32_768 * 256)),  # [P18] three passes: 13,688
        save_every=500,  # [here]
        evaluate_every=500,  # [here]
    )


def nvidia_8192_units() -> RunConfig:
    """The 8192 units of [N fig] size_comparison.png: 768 rows on eight GPUs, ends near 1.05 bits per character.

    The sources show the curve but no command.
    """
    base = nvidia_2048()
    return dataclasses.replace(
        base,
        model=MLSTMConfig(units=8192, embedding_dim=64, weight_norm=True),  # [N fig]
        data=dataclasses.replace(base.data, rows=768),  # [N fig]
        # the rule of [N docs] gives 3e-3 for 768 rows, which is also its cap; it has the decay over 100,000 steps for
        # more than 2048 rows, so here it goes over the run
        optimizer=dataclasses.replace(
            base.optimizer, learning_rate=5e-4, reference_rows=128, scaling="linear", rate_cap=3e-3, decay_steps=0
        ),
        steps=-(-AMAZON_CHARACTERS // (768 * 256)),  # one pass [here]
        micro_rows=96,  # 768 rows on eight GPUs
    )


RECIPES: Mapping[str, Callable[[], RunConfig]] = {
    "tiny": tiny,
    "reviews-512": reviews_512,
    "reviews-1024": reviews_1024,
    "reviews-1024-second": reviews_1024_second,
    "openai-2017": openai_2017,
    "nvidia-2048": nvidia_2048,
    "nvidia-32k": nvidia_32k,
    "nvidia-8192-units": nvidia_8192_units,
}


def recipe(name: str) -> RunConfig:
    """The configuration of that name; an unknown one raises ConfigError."""
    return settings.choose(RECIPES, name)
