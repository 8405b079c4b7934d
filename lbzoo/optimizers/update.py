"""The one update that every run makes, under any strategy.

Order: gradients of the scaled loss, over micro-batches -> all-reduce -> unscale -> one finite decision for all replicas
-> clip by global norm -> apply, or change nothing at all (weights, slots, `iterations` and so the schedule) -> count.
The decision is taken outside `strategy.run`: a `tf.cond` around `apply_gradients` inside it is refused under
MirroredStrategy. Keras' own LossScaleOptimizer is not used: it counts skipped steps in `iterations`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, List, Optional, Sequence, Tuple

import tensorflow as tf

from lbzoo.errors import ConfigError, TrainingError
from lbzoo.optimizers.accumulate import accumulated
from lbzoo.optimizers.loss_scale import LossScale, LossScaleConfig

# fn(*inputs) -> (loss to differentiate, the mean over the rows it was given; whatever else the caller wants back)
LossFunction = Callable[..., Tuple[tf.Tensor, Any]]
REDUCE_DTYPES = ("float32", "float16", "bfloat16")


@dataclasses.dataclass
class Update:
    """Gradient step on `variables` with a norm limit, skipped as a whole where a gradient is not finite.

    R replicas with B / R rows each, or k micro-batches of B / k rows, make the step of one replica with B rows, to
    float tolerance, where the loss is a mean over rows.

    Args:
        variables: what is trained, float32, made in the scope of `strategy`.
        optimizer: of the family in `lbzoo._keras`; its learning rate is set before each step from `schedule`.
        schedule: rate of the optimizer step (see `schedules.py`); skipped steps and micro-batches do not count.
        clip_norm: limit of the global gradient norm, after the sum over replicas; 0 for none.
        strategy: tf.distribute strategy; None for the current one.
        loss_scale: for mixed_float16; None leaves the loss as it is.
        accumulate: micro-batches a step on each replica; the rows of every input must divide by it.
        reduce_dtype: in which gradients travel between replicas and are summed there. float16, as in the published
            mLSTM runs, and bfloat16 halve the bytes; each rounds, and what overflows float16 skips the step.

    Raises:
        ConfigError: a negative limit, no micro-batch, an unknown `reduce_dtype`, or (when traced) a variable that the
            loss does not depend on.
    """

    variables: Sequence[tf.Variable]
    optimizer: Any
    schedule: Callable[[Any], tf.Tensor]
    clip_norm: float
    strategy: Optional[tf.distribute.Strategy] = None
    loss_scale: Optional[LossScaleConfig] = None
    accumulate: int = 1
    reduce_dtype: str = "float32"

    def __post_init__(self) -> None:
        if not (self.clip_norm >= 0 and self.accumulate >= 1):
            raise ConfigError(
                f"an update needs clip_norm >= 0 and accumulate >= 1. "
                f"Received: clip_norm={self.clip_norm}, accumulate={self.accumulate}."
            )
        if self.reduce_dtype not in REDUCE_DTYPES:
            raise ConfigError(
                f"gradients travel in one of {', '.join(REDUCE_DTYPES)}. Received: reduce_dtype={self.reduce_dtype!r}."
            )
        self.strategy = self.strategy or tf.distribute.get_strategy()
        once = dict(trainable=False, dtype=tf.int64, aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA)
        with self.strategy.scope():
            self.optimizer._create_all_weights(self.variables)  # slots exist before a checkpoint is restored into them
            self.skipped = tf.Variable(0, name="skipped", **once)
            self.skipped_in_a_row = tf.Variable(0, name="skipped_in_a_row", **once)
            self.skipped_by = tf.Variable(-1, name="skipped_by", **once)  # replica whose gradient it was, for `check`
            self.scaler = None if self.loss_scale is None else LossScale(self.loss_scale)

    def __call__(self, loss_function: LossFunction, *inputs: Any) -> Tuple[tf.Tensor, tf.Tensor, Any]:
        """One step, in cross-replica context, for use inside a tf.function.

        Args:
            loss_function: runs on each replica and micro-batch.
            inputs: nests of tensors [rows, ...], per replica where the strategy has several.

        Returns:
            (mean loss, float32 scalar; global gradient norm before the limit, float32 scalar; the loss function's
            second result, per replica, micro-batches put together as `accumulate.accumulated` says).
        """

        def gradients(*inputs):
            return self._gradients(loss_function, inputs)

        *scalars, grads, extra = self.strategy.run(gradients, args=inputs)
        loss, norm, finite, faulty = (self.strategy.experimental_local_results(x)[0] for x in scalars)

        def apply() -> tf.Tensor:
            self.optimizer.learning_rate.assign(self.schedule(self.optimizer.iterations))
            self.strategy.run(self._apply, args=(grads,))
            self.skipped_in_a_row.assign(0)
            if self.scaler is not None:
                self.scaler.after_update()
            return tf.constant(0)

        def skip() -> tf.Tensor:
            self.skipped.assign_add(1)
            self.skipped_in_a_row.assign_add(1)
            self.skipped_by.assign(tf.where(tf.reduce_any(faulty > 0), tf.argmax(faulty), tf.constant(-1, tf.int64)))
            if self.scaler is not None:
                self.scaler.after_skip()
            return tf.constant(1)

        tf.cond(finite, apply, skip)
        return loss, norm, extra

    def _gradients(self, loss_function: LossFunction, inputs: Tuple[Any, ...]):
        """On one replica -> (loss, norm, finite, faulty [replicas], gradients, extra); all but extra equal on each."""
        context = tf.distribute.get_replica_context()
        replicas = context.num_replicas_in_sync
        scale = None if self.scaler is None else tf.convert_to_tensor(self.scaler.value)

        def micro(*inputs):
            return self._differentiate(loss_function, inputs, scale)

        loss, grads, extra = accumulated(micro, inputs, self.accumulate)
        faulty = tf.ones([1])
        if replicas > 1:
            loss, faulty, grads = self._sum(context, loss, grads)
        parts = replicas * self.accumulate
        if parts > 1 or scale is not None:
            factor = 1.0 / (parts if scale is None else parts * scale)
            loss, grads = loss / parts, [g * factor for g in grads]
        norm = tf.linalg.global_norm(grads)  # NaN and inf both spread into it
        if self.clip_norm:
            grads, _ = tf.clip_by_global_norm(grads, self.clip_norm, use_norm=norm)
        return loss, norm, tf.math.is_finite(norm) & tf.math.is_finite(loss), faulty, grads, extra

    def _sum(self, context: Any, loss: tf.Tensor, grads: List[tf.Tensor]):
        """Over the replicas -> (sum of the losses, faulty [replicas]: 1 where a replica's own was not finite, sums)."""
        grads = [tf.cast(g, self.reduce_dtype) for g in grads]
        norm = tf.linalg.global_norm([tf.cast(g, tf.float32) for g in grads])
        sound = tf.math.is_finite(loss) & tf.math.is_finite(norm)
        replica, replicas = context.replica_id_in_sync_group, context.num_replicas_in_sync
        told = tf.concat([loss[None], tf.one_hot(replica, replicas, tf.where(sound, 0.0, 1.0), 0.0)], 0)
        if self.reduce_dtype == "float32":  # one message
            *grads, told = context.all_reduce("sum", [*grads, told])
        else:
            told, grads = context.all_reduce("sum", told), context.all_reduce("sum", grads)
        return told[0], told[1:], [tf.cast(g, tf.float32) for g in grads]

    def _differentiate(self, loss_function: LossFunction, inputs: Tuple[Any, ...], scale: Optional[tf.Tensor]):
        """One micro-batch -> (loss float32, gradients of the scaled loss, dense float32, extra)."""
        with tf.GradientTape() as tape:
            loss, extra = loss_function(*inputs)
            loss = tf.cast(loss, tf.float32)
            scaled = loss if scale is None else loss * scale
        grads = tape.gradient(scaled, self.variables)
        unused = [variable.name for variable, grad in zip(self.variables, grads) if grad is None]
        if unused:
            raise ConfigError(f"the loss does not depend on every variable. Received: {', '.join(unused)} without use.")
        return loss, [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in grads], extra

    def _apply(self, grads: List[tf.Tensor]) -> None:
        self.optimizer.apply_gradients(zip(grads, self.variables), experimental_aggregate_gradients=False)

    def check(self, limit: int) -> None:
        """Stop a run that skips `limit` steps in a row; call it after each step, outside the tf.function.

        Raises:
            TrainingError: so many were skipped; names the step and the worker whose gradient was not finite.
        """
        in_a_row = int(self.skipped_in_a_row.numpy())
        if in_a_row < limit:
            return
        done = int(self.optimizer.iterations.numpy())
        scale = "" if self.scaler is None else f" The loss scale is down to {float(self.scaler.value.numpy()):g}."
        raise TrainingError(
            f"the gradient was not finite in {in_a_row} steps in a row, the last at step "
            f"{done + int(self.skipped.numpy())} (before optimizer step {done + 1}), on {self._origin()}.{scale} "
            f"Lower the learning rate or the clip norm, look at that batch, then resume."
        )

    def _origin(self) -> str:
        """Who had the gradient that was not finite: worker and replica."""
        replica, replicas = int(self.skipped_by.numpy()), self.strategy.num_replicas_in_sync
        if replica < 0:
            return "no single worker: each one's was finite, their sum was not"
        workers = _workers(self.strategy)
        return f"{workers[replica * len(workers) // replicas]} (replica {replica} of {replicas})"

    def state(self) -> dict[str, Any]:
        """What a training checkpoint must hold beside the trained variables."""
        state = {"optimizer": self.optimizer, "skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row}
        return state if self.scaler is None else {**state, "loss_scale": self.scaler.state()}


def _workers(strategy: tf.distribute.Strategy) -> List[str]:
    """Names of the processes that hold replicas, in the order of their replicas."""
    resolver = strategy.cluster_resolver
    cluster = {} if resolver is None else resolver.cluster_spec().as_dict()
    return [f"{job} {i}" for job in ("chief", "worker") for i in range(len(cluster.get(job, ())))] or ["worker 0"]
