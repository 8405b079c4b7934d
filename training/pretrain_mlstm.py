"""Train an mLSTM on prepared shards.

    python -m training.pretrain_mlstm --recipe tiny
    python -m training.pretrain_mlstm --recipe reviews-512 --shards runs/reviews --run runs/512 --data DATA --minutes 85

    python -m training.pretrain_mlstm --recipe nvidia-32k --dry-run

Started again with the same folders it goes on exactly where it was. The last line prints the loss and a checksum of
the weights. `--export FOLDER` writes the checkpoint folder that lbzoo loads. `--dry-run` prints what a run comes to.
"""

from __future__ import annotations

import argparse
import os
import sys
import zlib
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence

import numpy as np
import tensorflow as tf

from lbzoo._keras import adam
from lbzoo.checkpoint import load
from lbzoo.errors import ConfigError, LbzooError
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.optimizers.loss_scale import loss_scale_for
from lbzoo.optimizers.update import Update
from training import loop, plan, sample_reviews
from training.checkpointing import Checkpoints
from training.data import ByteStream
from training.evaluate import bits_per_character, read_out_accuracy
from training.heldout import held_out
from training.objectives import BITS, SentimentReadOut, language_model_loss, sentiment_loss
from training.publish import export
from training.recipes import RunConfig, recipe, with_settings
from training.watch import Watch


class Trainer:
    """A model, its read-out, its update and the state of every row: all that a checkpoint holds."""

    def __init__(self, config: RunConfig, stream: ByteStream) -> None:
        self.config, self.stream = config, stream
        self.model = _start(config)
        self.read_out = SentimentReadOut(config.model.units)
        variables = list(self.model.trainable_variables)
        if config.sentiment_weight:
            variables += self.read_out.trainable_variables
        rates, o = plan.schedule(config, stream.steps_per_epoch), config.optimizer
        self.update = Update(
            variables,
            adam(rates.peak, o.beta_1, o.beta_2, o.epsilon),
            rates,
            o.clip_norm,
            loss_scale=loss_scale_for(config.precision, config.loss_scale),
            accumulate=plan.micro_batches(config),
        )
        shape = [config.data.rows, config.model.units]
        self.state = [tf.Variable(tf.zeros(shape), trainable=False, name=name) for name in ("c", "h")]
        self._step = tf.function(self.update_on)

    def objects(self) -> dict[str, Any]:
        """For `Checkpoints`."""
        return {
            "model": self.model.named_weights(),
            "read_out": self.read_out.trainable_variables,
            "state": self.state,
            **self.update.state(),
        }

    def step(self, number: int) -> Mapping[str, Any]:
        """Do step `number` on its batch; scalar tensors to log."""
        batch = self.stream.batch(number)
        target = np.zeros(batch.ids.shape, np.float32) if batch.target is None else batch.target
        values = self._step(batch.ids, batch.next_ids, batch.reset, target)
        return {"characters": batch.ids.size, **values}

    def update_on(self, ids, next_ids, reset, target):
        """The step as a graph: one update, the new state of every row, scalar tensors to log."""

        def loss_function(ids, next_ids, reset, target, c, h):
            hidden, state = self.model.mlstm(ids, state=(c, h), reset=reset)
            characters = language_model_loss(self.model.logits(hidden), next_ids)
            loss, sentiment = characters, tf.constant(0.0)
            if self.config.sentiment_weight:
                sentiment = sentiment_loss(self.read_out(hidden), target)
                loss = loss + self.config.sentiment_weight * sentiment
            return loss, (characters, sentiment, state)

        state = [tf.convert_to_tensor(variable) for variable in self.state]
        loss, norm, (characters, sentiment, state) = self.update(loss_function, ids, next_ids, reset, target, *state)
        for variable, value in zip(self.state, state):
            variable.assign(tf.where(tf.math.is_finite(value), value, 0.0))
        values = {"loss": loss, "bpc": characters * BITS, "sentiment": sentiment, "norm": norm}
        values.update(rate=self.update.optimizer.learning_rate, skipped=self.update.skipped)
        if self.update.scaler is not None:
            values["loss_scale"] = self.update.scaler.value
        return {name: tf.convert_to_tensor(value) for name, value in values.items()}

    def checksum(self) -> str:
        """Of every trained weight, bit by bit."""
        total = 0
        for variable in self.update.variables:
            total = zlib.crc32(np.ascontiguousarray(variable.numpy()), total)
        return f"{total:08x}"


def _start(config: RunConfig) -> MLSTMLanguageModel:
    model = MLSTMLanguageModel(config.model, text=config.text, seed=config.seed, dtype=config.precision)
    weights = model.named_weights()
    if config.init_from:
        for name, value in load(config.init_from).unfolded().named_weights().items():
            weights[name].assign(value)
    elif config.memory:
        # forget bias log(T - 1), input bias its negative: half a state is kept for T bytes (Tallec & Ollivier 2018)
        n, half = config.model.units, config.model.units // 2
        spans = np.exp(np.random.default_rng(config.seed).uniform(np.log(2), np.log(config.memory), half))
        bias = weights["b"].numpy()
        bias[n : n + half] = np.log(spans - 1 + 1e-3)
        bias[:half] = -bias[n : n + half]
        weights["b"].assign(bias)
    return model


def open_stream(config: RunConfig, shards: Path) -> ByteStream:
    """The bytes that `config` trains on."""
    data = config.data
    return ByteStream(shards, data.rows, data.window, config.seed, data.shard_bytes, data.reset)


def train(
    config: RunConfig,
    shards: Path,
    run: Path,
    data: Optional[Path],
    minutes: Optional[float],
    accept_changes: bool = False,
    tensorboard: bool = False,
    profile: bool = False,
) -> tuple[Trainer, loop.End]:
    """Run `config` in folder `run`; the trainer with its last weights, and how the run ended."""
    stream = open_stream(config, shards)
    if config.sentiment_weight and not stream.has_target:
        raise ConfigError(
            f"sentiment_weight {config.sentiment_weight:g} needs the teacher's target of every byte. "
            f"Received: {shards}, text only. Make shards with training.prepare_sentiment, or --set sentiment_weight=0."
        )
    trainer = Trainer(config, stream)
    sets = held_out(data) if data else None

    def evaluate() -> Mapping[str, float]:
        w, b = trainer.read_out.w.numpy(), float(trainer.read_out.b.numpy())
        model = trainer.model.folded()
        if sets is None:
            return {}
        figures = {"bpc": bits_per_character(model, sets.characters)}
        for name, (texts, positive) in sets.labelled.items():
            figures[name] = read_out_accuracy(model, w, b, texts, positive)
        return figures

    end = loop.run(
        folder=run,
        config={**config.to_dict(), "shards": stream.index["sha256"]},
        steps=config.steps,
        checkpoints=Checkpoints(run, trainer.objects()),
        watch=Watch(run, config.steps, tensorboard=tensorboard, profile=profile),
        step_function=trainer.step,
        evaluate=evaluate,
        check=trainer.update.check,
        save_every=config.save_every,
        evaluate_every=config.evaluate_every,
        minutes=minutes,
        accept_changes=accept_changes,
    )
    return trainer, end


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0 when the run is complete, 75 when it stopped early and can go on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", required=True, help="a name in training/recipes.py")
    parser.add_argument(
        "--shards", type=Path, help="folder of prepared text, see training/shards.py (default: a few made-up reviews)"
    )
    parser.add_argument("--run", type=Path, help="run folder (default: runs/RECIPE)")
    parser.add_argument(
        "--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="review sets, for held-out figures"
    )
    parser.add_argument("--minutes", type=float, help="stop, saved, after so long")
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="replace a field of the recipe"
    )
    parser.add_argument(
        "--accept-changes", action="store_true", help="go on in a run folder that has another configuration"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and train nothing")
    parser.add_argument("--tensorboard", action="store_true", help="write events into the run folder")
    parser.add_argument("--profile", action="store_true", help="profile a few steps into the run folder")
    parser.add_argument("--export", type=Path, help="write the trained checkpoint into this folder")
    options = parser.parse_args(arguments)
    try:
        config = with_settings(recipe(options.recipe), dict(item.partition("=")[::2] for item in options.set))
        if options.dry_run:
            passes = open_stream(config, options.shards).steps_per_epoch if options.shards else 0
            print(plan.describe(options.recipe, config, passes))
            return 0
        for text in plan.warnings(config):
            print(f"warning: {text}", file=sys.stderr)
        run = options.run or Path("runs") / options.recipe
        shards = options.shards or sample_reviews.write(run / "shards")
        tf.config.experimental.enable_op_determinism()
        data = options.data if options.shards else None
        trainer, end = train(
            config, shards, run, data, options.minutes, options.accept_changes, options.tensorboard, options.profile
        )
        if options.export:
            export(trainer.model, trainer.read_out if config.sentiment_weight else None, options.export)
    except (LbzooError, OSError) as error:
        print(f"pretrain_mlstm: error: {error}", file=sys.stderr)
        return 1
    print(f"step {end.step} loss {end.loss:.6f} checksum {trainer.checksum()}")
    return 0 if end.complete else loop.RESUME_EXIT


if __name__ == "__main__":
    sys.exit(main())
