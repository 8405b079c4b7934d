"""One run of BERT: streams, trainer, held-out figures, checkpoints and logs, led by `training.loop`."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any, List, Mapping, Optional

import tensorflow as tf

from lbzoo.console import quiet_first_call
from lbzoo.errors import ConfigError, TrainingError
from training import bert_evaluate, loop, sample_reviews
from training.bert_data import BertStream
from training.bert_recipes import BertRunConfig
from training.bert_trainer import BertTrainer
from training.checkpointing import AgreedCheckpoints
from training.cluster import Cluster
from training.watch import CsvLog, Watch

RATIOS_EVERY = 100  # steps between two lines of trust_ratios.csv
BEST = "masked_lm"  # the held-out figure whose lowest value keeps its checkpoint


class RatioLog:
    """trust_ratios.csv: of every adapted weight, every `RATIOS_EVERY` steps; nothing where the optimizer has none."""

    def __init__(self, folder: Path, trainer: BertTrainer) -> None:
        self._path, self._log = folder / "trust_ratios.csv", None
        ratios = getattr(trainer.optimizer, "trust_ratios", None) if trainer.cluster.chief else None
        self._ratios = None if ratios is None else tf.function(ratios, autograph=False)

    def step(self, step: int) -> None:
        """Step `step` is done."""
        if self._ratios is None:
            return
        self._log = self._log or CsvLog(self._path, step - 1)
        if step % RATIOS_EVERY == 0:
            self._log.write(step, {name: f"{float(ratio):.5g}" for name, ratio in self._ratios().items()})


def open_streams(config: BertRunConfig, shards: Path) -> List[BertStream]:
    """What each phase of `config` trains on."""
    return [
        BertStream(shards, phase.rows, phase.length, phase.predictions, config.seed + number, config.data)
        for number, phase in enumerate(config.phases)
    ]


def sample_shards(folder: Path, pieces: int) -> Path:
    """Token ids of the made-up reviews with a vocabulary of at most `pieces`, unless they are there; the folder."""
    if not (folder / "index.json").exists():
        from training.prepare_bert import prepare

        prepare(sample_reviews.write(folder.with_name("text")), folder, size=pieces)
    return folder


def train(
    config: BertRunConfig,
    shards: Path,
    run: Path,
    minutes: Optional[float] = None,
    accept_changes: bool = False,
    tensorboard: bool = False,
    profile: bool = False,
    cluster: Optional[Cluster] = None,
    best: bool = False,
) -> tuple[BertTrainer, loop.End]:
    """Run `config` in folder `run`; the trainer with its last weights, and how the run ended.

    Every worker of `cluster` calls this; they share `run`, and the chief writes.
    """
    cluster = cluster or Cluster()
    streams = open_streams(config, shards)
    trainer = BertTrainer(config, streams, streams[0].shards.vocabulary, streams[0].shards.text, cluster)
    ratios, evaluate = RatioLog(run, trainer), _held_out(trainer, shards)

    def step(number: int) -> Mapping[str, Any]:
        values = trainer.step(number)
        ratios.step(number + 1)
        return values

    end = loop.run(
        folder=run,
        config={**config.to_dict(), "shards": streams[0].shards.index["splits"]["train"]["sha256"]},
        steps=config.steps,
        checkpoints=_checkpoints(run, trainer),
        watch=Watch(
            run, config.steps, tensorboard=tensorboard, profile=profile, writes=cluster.chief, counted="tokens"
        ),
        step_function=quiet_first_call(step),
        evaluate=evaluate,
        check=trainer.update.check,
        save_every=config.save_every,
        evaluate_every=config.evaluate_every,
        minutes=minutes,
        accept_changes=accept_changes,
        cluster=cluster,
        best=best,
    )
    return trainer, end


def _held_out(trainer: BertTrainer, shards: Path):
    """Figures on the split "valid", with the rows of the first phase; None where it is not there or too small."""
    config, first = trainer.config, trainer.config.first
    if "valid" not in trainer.streams[0].shards.index["splits"]:
        return None
    data = dataclasses.replace(config.data, positions=0)
    try:
        stream = BertStream(
            shards, bert_evaluate.ROWS, first.length, first.predictions, config.seed, data, split="valid"
        )
    except TrainingError as error:
        print(f"no held-out figures: {error}", file=sys.stderr)
        return None
    return bert_evaluate.evaluator(trainer.model, stream, cluster=trainer.cluster)


def _checkpoints(run: Path, trainer: BertTrainer) -> AgreedCheckpoints:
    return AgreedCheckpoints(run, trainer.objects(), trainer.cluster, best=BEST)


def restore_best(run: Path, trainer: BertTrainer) -> dict[str, Any]:
    """Go back to the checkpoint in `run` with the lowest held-out masked-LM loss; its COMMIT.json.

    All workers call it.

    Raises:
        ConfigError: none was measured.
    """
    commit = _checkpoints(run, trainer).restore(best=True)
    if commit is None:
        raise ConfigError(f"no checkpoint in {run} was measured on held-out text: --best needs shards with 'valid'.")
    return commit
