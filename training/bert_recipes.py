"""Recipes of BERT pre-training, one function a run, as in `training/recipes.py`.

Sources, cited beside the fields:
    [D19]  Devlin, Chang, Lee, Toutanova 2019, "BERT"; the code, released models and README of google-research/bert
    [Y20]  You et al. 2020, "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", first published
           as "Reducing BERT Pre-Training Time from 3 Days to 76 Minutes": its abstract, tables and loss curve
    [S19]  a reader's summary of [Y20]: K. Subudhi 2019, "LAMB paper summary"
    [N]    NVIDIA DeepLearningExamples, TensorFlow 2 and PyTorch BERT: scripts of the run on 64k and 32k rows
    [here] chosen for this project; for the published runs this marks what the sources do not say

Rates and warm-ups of [Y20] follow two rules [S19]: the rate goes with the square root of the rows, and the share of
steps that warm up with the rows ("linear-epoch"). Its own numbers could not be read here, so that both rules start from
[N], which ran 65,536 rows at 6e-3 with a share of 0.2843. For 32,768 rows they give 4.24e-3 and 0.142; [N] took 4e-3
and 0.128 there. As remembered, and not checked, [Y20] had 5e-3 and 0.2 for 32k rows.

The published runs could not be run here in full: they need Wikipedia, BookCorpus and many accelerators. Nado et al.
2021 (arXiv 2102.06356) report that well-tuned Adam does as well as LAMB at these batch sizes.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Mapping, Tuple

from lbzoo.errors import ConfigError
from lbzoo.models.config import BertConfig
from lbzoo.optimizers.loss_scale import LossScaleConfig
from training import settings


@dataclasses.dataclass(frozen=True)
class PhaseConfig:
    """A stretch of a run with batches of one shape.

    Attributes:
        steps: 0 leaves the phase out.
        rows: sequences of a global batch.
        length: tokens of a sequence.
        predictions: masked tokens of a sequence at most.
        micro_rows: rows that a device works on at once, the rest of its share of the batch after them; 0 for all.
    """

    steps: int = 0
    rows: int = 0
    length: int = 0
    predictions: int = 0
    micro_rows: int = 0

    def __post_init__(self) -> None:
        sizes = (self.rows, self.length, self.predictions)
        if self.steps < 0 or self.micro_rows < 0 or (self.steps and not all(size > 0 for size in sizes)):
            raise ConfigError(
                f"a phase has steps, rows, length and predictions, each above 0; one with 0 steps is left out. "
                f"Received: {self}."
            )


@dataclasses.dataclass(frozen=True)
class BertOptimizerConfig:
    """LAMB or AdamW, schedule and norm limit: see lbzoo/optimizers.

    Attributes:
        name: "lamb" or "adamw".
        preset: what LAMB excludes, a name in `lbzoo.optimizers.lamb.PRESETS`; AdamW decays neither norms nor biases.
        learning_rate: at the peak of the schedule, for `reference_rows` where `scaling` is not "none".
        scaling: how the rate goes with the rows of a phase: "none", "sqrt" or "linear".
        warmup: in `warmup_unit`: "steps", "share" (of the schedule) or "linear-epoch": a share of the schedule for
            `reference_rows`, which goes with the rows.
        again: whether the second phase has a schedule of its own, which rises and falls again; else one goes over both.
        power: of the falling polynomial; 1 is a line.
        clip_norm: limit of the global gradient norm; 0 for none.
    """

    name: str
    learning_rate: float
    warmup: float
    warmup_unit: str = "steps"
    preset: str = "nvidia"
    weight_decay: float = 0.01
    scaling: str = "none"
    reference_rows: int = 0
    again: bool = False
    power: float = 1.0
    clip_norm: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-6


@dataclasses.dataclass(frozen=True)
class BertDataConfig:
    """What becomes of the prepared text: see training/bert_data.py.

    Attributes:
        mask_share: of the tokens of a sequence that are to be predicted; 80 % of them are masked, 10 % replaced, 10 %
            left as they are.
        short_share: of sequences that are shorter than they may be.
        next_sentence: whether a row is a pair of texts, of which half do not follow one another.
        whole_words: mask all pieces of a word or none.
        duplicates: 0 masks anew in every pass; above 0, only so many maskings of a text exist.
        positions: above 0, every second sequence begins not at position 0 but anywhere that leaves its end below this
            (Kiyono et al. 2021), so that short sequences teach all positions.
    """

    mask_share: float = 0.15
    short_share: float = 0.1
    next_sentence: bool = True
    whole_words: bool = False
    duplicates: int = 0
    positions: int = 0


@dataclasses.dataclass(frozen=True)
class BertRunConfig:
    """Everything that decides what a run computes.

    Attributes:
        precision: Keras policy name; loss scaling is on under mixed_float16 and only there.
        init_from: a checkpoint, by folder or name, whose weights start the run; "" for random ones.
        dropout: False trains without it, for runs too short to fit their text too well; the checkpoint keeps the rates
            of `model`, for fine-tuning.
        reduce_dtype: in which gradients travel between devices and are summed there.
        save_every, evaluate_every: in steps.
    """

    model: BertConfig
    first: PhaseConfig
    optimizer: BertOptimizerConfig
    second: PhaseConfig = PhaseConfig()
    data: BertDataConfig = BertDataConfig()
    seed: int = 1
    precision: str = "float32"
    init_from: str = ""
    dropout: bool = True
    save_every: int = 500
    evaluate_every: int = 1500
    loss_scale: LossScaleConfig = LossScaleConfig()
    reduce_dtype: str = "float32"

    def __post_init__(self) -> None:
        longest = max(self.first.length, self.second.length, self.data.positions)
        if not self.first.steps or longest > self.model.max_position_embeddings:
            raise ConfigError(
                f"a run has a first phase, and no sequence is longer than the model can read, or ends later. Received: "
                f"first.steps={self.first.steps}, a length or data.positions of {longest}, "
                f"model.max_position_embeddings={self.model.max_position_embeddings}."
            )

    @property
    def phases(self) -> Tuple[PhaseConfig, ...]:
        """One or two."""
        return (self.first, self.second) if self.second.steps else (self.first,)

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return self.first.steps + self.second.steps

    def to_dict(self) -> dict[str, Any]:
        """As written beside a run's results and compared on resume."""
        return {**dataclasses.asdict(self), "model": self.model.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "BertRunConfig":
        """The inverse of `to_dict`."""
        parts = {
            "model": BertConfig.from_dict,
            "first": lambda part: PhaseConfig(**part),
            "second": lambda part: PhaseConfig(**part),
            "optimizer": lambda part: BertOptimizerConfig(**part),
            "data": lambda part: BertDataConfig(**part),
            "loss_scale": lambda part: LossScaleConfig(**part),
        }
        return cls(**{k: parts[k](v) if k in parts else v for k, v in values.items()})


def tiny() -> BertRunConfig:
    """Both phases in seconds on a laptop: for tests and for a first look. Every field [here]."""
    return BertRunConfig(
        model=_bert(layers=2, units=32, heads=2, vocab_size=512, positions=64),
        first=PhaseConfig(steps=60, rows=8, length=32, predictions=5),
        second=PhaseConfig(steps=20, rows=4, length=64, predictions=10),
        optimizer=BertOptimizerConfig(
            "lamb",
            learning_rate=3e-2,
            warmup=0.1,
            warmup_unit="linear-epoch",
            scaling="sqrt",
            reference_rows=8,
            again=True,
        ),
        save_every=10,
        evaluate_every=20,
    )


def bert_mini_reviews() -> BertRunConfig:
    """The first of bert-mini-reviews' runs: 4 layers of 256 units on product and film reviews, LAMB, rows of 32 tokens
    and then of 128. Every field [here]."""
    return BertRunConfig(
        model=_bert(layers=4, units=256, heads=4, vocab_size=8192, initializer_range=0.05),
        first=PhaseConfig(steps=5500, rows=64, length=32, predictions=7),
        second=PhaseConfig(steps=5500, rows=16, length=128, predictions=26),
        optimizer=BertOptimizerConfig("lamb", learning_rate=5e-3, preset="tf-models", warmup=0.02, warmup_unit="share"),
        data=BertDataConfig(mask_share=0.2),
        dropout=False,
        precision="mixed_bfloat16",
        evaluate_every=1000,
    )


def bert_mini_reviews_512() -> BertRunConfig:
    """Its second run, over all positions; init_from: what the first one made. Every field [here]."""
    base = bert_mini_reviews()
    return dataclasses.replace(
        base,
        first=PhaseConfig(steps=600, rows=4, length=512, predictions=103),
        second=PhaseConfig(),
        optimizer=dataclasses.replace(base.optimizer, learning_rate=1e-3, warmup=0.1),
        seed=2,
        init_from="runs/mini-export",
        evaluate_every=200,
    )


def bert_mini_reviews_second() -> BertRunConfig:
    """Its third run, from what the first two made: one schedule over rows of 128 and 512. Every field [here]."""
    base = bert_mini_reviews()
    return dataclasses.replace(
        base,
        first=PhaseConfig(steps=11_500, rows=16, length=128, predictions=26),
        second=PhaseConfig(steps=3000, rows=4, length=512, predictions=103),
        optimizer=dataclasses.replace(base.optimizer, learning_rate=4e-3),
        seed=3,
        init_from="bert-mini-reviews",
    )


def bert_base_adamw_256() -> BertRunConfig:
    """The run of [D19]: a million steps of 256 rows, the last tenth at length 512, under one schedule."""
    return BertRunConfig(
        model=_bert(layers=12, units=768, heads=12),  # [D19] BERT base
        first=PhaseConfig(
            steps=900_000,  # [D19] 90 % of 1,000,000
            rows=256,  # [D19]
            length=128,  # [D19]
            predictions=20,  # [D19] README: 0.15 of the length
            micro_rows=32,  # [here]
        ),
        second=PhaseConfig(
            steps=100_000,  # [D19] the rest, for the position embeddings
            rows=256,  # [D19]
            length=512,  # [D19]
            predictions=77,  # [D19] README: 0.15 of the length
            micro_rows=8,  # [here]
        ),
        optimizer=BertOptimizerConfig(
            "adamw",  # [D19] Adam with decay beside the step; with bias correction [here]
            learning_rate=1e-4,  # [D19]
            warmup=10_000,  # [D19]
            weight_decay=0.01,  # [D19]
            clip_norm=1.0,  # [D19] optimization.py
            epsilon=1e-6,  # [D19] optimization.py
        ),
        data=BertDataConfig(duplicates=10),  # [D19] dupe_factor
        precision="float32",  # [D19]
        save_every=1000,  # [D19] run_pretraining.py
        evaluate_every=10_000,  # [here]
    )


def bert_large_lamb_32k() -> BertRunConfig:
    """[Y20] at 32,768 rows throughout: 15,625 steps instead of a million, SQuAD F1 91.475 in the paper."""
    return BertRunConfig(
        model=_bert(layers=24, units=1024, heads=16),  # [Y20] BERT large, sizes of [D19]
        first=PhaseConfig(
            steps=14_063,  # [S19] 15,625 [Y20], less the second phase
            rows=32_768,  # [Y20]
            length=128,  # [S19]
            predictions=20,  # [N]
            micro_rows=64,  # [here]
        ),
        second=PhaseConfig(
            steps=1562,  # [S19]
            rows=32_768,  # [Y20]
            length=512,  # [S19]
            predictions=80,  # [N]
            micro_rows=8,  # [here]
        ),
        optimizer=BertOptimizerConfig(
            "lamb",  # [Y20]
            learning_rate=6e-3,  # [N]
            reference_rows=65_536,  # [N]
            scaling="sqrt",  # [S19]
            warmup=0.2843,  # [N]
            warmup_unit="linear-epoch",  # [S19]
            again=False,  # [S19]: only the mixed batch is ramped again
            power=1.0,  # [S19]
            preset="nvidia",  # [N]; the paper names no exclusions
            weight_decay=0.01,  # [N]
            clip_norm=1.0,  # [N]
            epsilon=1e-6,  # [N]
        ),
        data=BertDataConfig(duplicates=5),  # [N]
        precision="mixed_bfloat16",  # [here] [Y20] ran on TPUv3
        save_every=100,  # [here]
        evaluate_every=500,  # [here]
    )


def bert_large_lamb_64k_32k() -> BertRunConfig:
    """[Y20] in 76 minutes: 65,536 rows of 128 tokens, then 32,768 of 512; 8,599 steps, SQuAD F1 90.584 in the paper."""
    base = bert_large_lamb_32k()
    return dataclasses.replace(
        base,
        first=dataclasses.replace(
            base.first,
            steps=7037,  # [Y20] where its loss curve ends the first phase
            rows=65_536,  # [Y20]
        ),
        second=dataclasses.replace(base.second, steps=1562),  # [Y20] 8,599 in all
        optimizer=dataclasses.replace(base.optimizer, again=True),  # [S19] re-warm-up
    )


def _bert(
    layers: int,
    units: int,
    heads: int,
    vocab_size: int = 30_522,
    positions: int = 512,
    initializer_range: float = 0.02,  # [D19]
) -> BertConfig:
    """A BERT in the proportions of [D19], with both heads; by default with the vocabulary of bert-base-uncased."""
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=units,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * units,
        hidden_act="gelu_tanh",  # [D19] modeling.py
        max_position_embeddings=positions,
        initializer_range=initializer_range,
        head="pretraining",
    )


RECIPES: Mapping[str, Callable[[], BertRunConfig]] = {
    "tiny": tiny,
    "bert-mini-reviews": bert_mini_reviews,
    "bert-mini-reviews-512": bert_mini_reviews_512,
    "bert-mini-reviews-second": bert_mini_reviews_second,
    "bert-base-adamw-256": bert_base_adamw_256,
    "bert-large-lamb-32k": bert_large_lamb_32k,
    "bert-large-lamb-64k-32k": bert_large_lamb_64k_32k,
}


def recipe(name: str) -> BertRunConfig:
    """The configuration of that name; an unknown one raises ConfigError."""
    return settings.choose(RECIPES, name)
