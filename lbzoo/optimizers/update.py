"""The one update that every run makes.

Order: gradients -> all-reduce -> one finite decision for all replicas -> clip by global norm -> apply, or change
nothing at all (weights, slots, `iterations` and so the schedule). The decision is taken outside `strategy.run`: a
`tf.cond` around `apply_gradients` inside it is refused under MirroredStrategy.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Optional, Sequence, Tuple

import tensorflow as tf

from lbzoo.errors import TrainingError

# fn(*inputs) -> (loss to differentiate, whatever else the caller wants back)
LossFunction = Callable[..., Tuple[tf.Tensor, Any]]


@dataclasses.dataclass
class Update:
    """Gradient step on `variables` with a norm limit, skipped as a whole where a gradient is not finite.

    Args:
        variables: what is trained.
        optimizer: of the family in `lbzoo._keras`; its learning rate is set before each step from `schedule`.
        schedule: rate of the optimizer step (see `schedules.py`).
        clip_norm: limit of the global gradient norm.
        strategy: tf.distribute strategy; None for the current one.
    """

    variables: Sequence[tf.Variable]
    optimizer: Any
    schedule: Callable[[Any], tf.Tensor]
    clip_norm: float
    strategy: Optional[tf.distribute.Strategy] = None

    def __post_init__(self) -> None:
        self.strategy = self.strategy or tf.distribute.get_strategy()
        self.optimizer._create_all_weights(self.variables)  # slots exist before a checkpoint is restored into them
        self.skipped = tf.Variable(0, trainable=False, dtype=tf.int64, name="skipped")
        self.skipped_in_a_row = tf.Variable(0, trainable=False, dtype=tf.int64, name="skipped_in_a_row")

    def __call__(self, loss_function: LossFunction, *inputs: Any) -> Tuple[tf.Tensor, tf.Tensor, Any]:
        """One step, for use inside a tf.function: (loss, global gradient norm, the loss function's second result)."""
        loss, grads, norm, extra = self.strategy.run(self._gradients, args=(loss_function, inputs))
        finite = tf.math.is_finite(self.strategy.experimental_local_results(norm)[0])  # NaN and inf both spread into it

        def apply() -> tf.Tensor:
            self.strategy.run(self._apply, args=(grads,))
            return self.skipped_in_a_row.assign(0)

        def skip() -> tf.Tensor:
            self.skipped.assign_add(1)
            return self.skipped_in_a_row.assign_add(1)

        tf.cond(finite, apply, skip)
        return self.strategy.reduce("MEAN", loss, axis=None), self.strategy.experimental_local_results(norm)[0], extra

    def _gradients(self, loss_function: LossFunction, inputs: Tuple[Any, ...]):
        replicas = tf.distribute.get_replica_context()
        with tf.GradientTape() as tape:
            loss, extra = loss_function(*inputs)
            shared = loss / replicas.num_replicas_in_sync
        grads = [self._dense(g, v) for g, v in zip(tape.gradient(shared, self.variables), self.variables)]
        if replicas.num_replicas_in_sync > 1:
            grads = replicas.all_reduce("sum", grads)
        grads, norm = tf.clip_by_global_norm(grads, self.clip_norm)
        return loss, grads, norm, extra

    @staticmethod
    def _dense(gradient: Any, variable: tf.Variable) -> tf.Tensor:
        if gradient is None:
            raise TrainingError(f"the loss does not depend on {variable.name}. Leave it out of what is trained.")
        return tf.convert_to_tensor(gradient)

    def _apply(self, grads: Sequence[tf.Tensor]) -> None:
        self.optimizer.learning_rate.assign(self.schedule(self.optimizer.iterations))
        self.optimizer.apply_gradients(zip(grads, self.variables), experimental_aggregate_gradients=False)

    def check(self, limit: int) -> None:
        """Stop a run that skips `limit` steps in a row; call it now and then, outside the tf.function."""
        in_a_row = int(self.skipped_in_a_row.numpy())
        if in_a_row >= limit:
            raise TrainingError(
                f"the gradient was not finite in {in_a_row} steps in a row, the last before optimizer step "
                f"{int(self.optimizer.iterations.numpy())}. Lower the learning rate or the clip norm, then resume."
            )

    def state(self) -> dict[str, Any]:
        """What a training checkpoint must hold beside the trained variables."""
        return {"optimizer": self.optimizer, "skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row}
