"""Speed of the mLSTM, as ratios taken in one run: `python -m benchmarks.mlstm`.

Training at 1024 units, batch 128, 128 bytes, weight norm and masks included, in bfloat16 against
    the machine's bfloat16 matrix product; the same in float32 with TensorFlow's own gradient, written out step by step
    as the published code is, and as lbzoo's plain loop (which has the tables of the fast one); and the same cell in
    torch under bfloat16 autocast.
Features at 4096 units in float32 against
    the machine's float32 matrix product (128 texts) and the rate at which it reads memory (one text).

Nothing else may run meanwhile. torch comes with the extra: pip install -e ".[benchmark]".
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Sequence
from typing import Callable, Optional

import numpy as np
import tensorflow as tf

from benchmarks.rates import best_seconds, gemm_rate, memory_rate, processor
from lbzoo._keras import adam
from lbzoo.features import FeatureExtractor
from lbzoo.models.config import MLSTMConfig
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.models.mlstm_kernel import mlstm_step
from lbzoo.optimizers.schedules import LinearDecay
from lbzoo.optimizers.update import Update

GIGA = 1e9


def training_flops(units: int, rows: int, steps: int) -> int:
    """Multiplications and additions of the recurrent and output matrices, forward and twice that backward."""
    return 6 * rows * steps * (5 * units**2 + 256 * units)


def step_function(units: int, kernel: str, precision: str, ids: np.ndarray, mask: np.ndarray) -> Callable[[], float]:
    """One training step of lbzoo on fixed bytes: what `training.pretrain_mlstm` does for the next byte.

    `kernel` is one of the model's, or "written out".
    """
    written_out = kernel == "written out"
    model = MLSTMLanguageModel(MLSTMConfig(units=units), kernel="plain" if written_out else kernel, dtype=precision)
    update = Update(list(model.trainable_variables), adam(1e-3), LinearDecay(1e-3, 1000), clip_norm=1.0)
    ids, mask = tf.constant(ids), tf.constant(mask)

    def loss_function(ids, mask):
        if written_out:
            logits = written_out_logits(model, ids, mask)
        else:
            logits, _ = model(ids, state=model.initial_state(ids.shape[0]), mask=mask)
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)), None

    step = tf.function(lambda: update(loss_function, ids, mask)[0])
    return lambda: float(step())


def written_out_logits(model: MLSTMLanguageModel, ids: tf.Tensor, mask: tf.Tensor) -> tf.Tensor:
    """The equations as OpenAI's released graph has them: one node after another for every byte, input products too."""
    wx, wmx, wh, wmh = (model.mlstm.matrix(name) for name in ("wx", "wmx", "wh", "wmh"))
    weights = model.named_weights()
    inputs = tf.nn.embedding_lookup(tf.convert_to_tensor(weights["embedding"]), ids)
    (c, h), hidden = model.initial_state(ids.shape[0]), []
    for t in range(ids.shape[1]):
        x, keep = inputs[:, t], mask[:, t : t + 1]
        c_next, h_next = mlstm_step(tf.matmul(x, wx) + weights["b"], tf.matmul(x, wmx), wh, wmh, c, h)
        c, h = tf.where(keep, c_next, c), tf.where(keep, h_next, h)
        hidden.append(h)
    return model.logits(tf.stack(hidden, axis=1))


def training(units: int, rows: int, steps: int, repeats: int) -> None:
    """Print the training ratios."""
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 256, (rows, steps)).astype(np.int32)
    mask = np.arange(steps)[None, :] < rng.integers(steps // 2, steps + 1, (rows, 1))
    peak = gemm_rate(tf.bfloat16)
    ours = best_seconds(step_function(units, "fast", "mixed_bfloat16", ids, mask), repeats)
    rate = training_flops(units, rows, steps) / ours
    print(f"training, {units} units, batch {rows}, {steps} bytes, weight norm and masks")
    print(f"  lbzoo, bfloat16             {rows * steps / ours:9,.0f} characters/s   {rate / GIGA:6.0f} GFLOP/s")
    print(f"  of the bfloat16 GEMM rate   {rate / peak:9.2f}   (GEMM {peak / GIGA:.0f} GFLOP/s)")
    for kernel, name in (("written out", "float32, written out  "), ("plain", "lbzoo's plain float32 ")):
        plain = best_seconds(step_function(units, kernel, "float32", ids, mask), max(1, repeats // 2), warmup=1)
        print(f"  over {name} {plain / ours:9.2f}   ({rows * steps / plain:,.0f} characters/s)")
    if importlib.util.find_spec("torch") is None:
        print("  over torch                  skipped: torch is not installed (pip install -e '.[benchmark]')")
        return
    from benchmarks.torch_mlstm import training_step

    torch_seconds = best_seconds(training_step(units, rows, steps, ids, mask), max(1, repeats // 2), warmup=1)
    speed = rows * steps / torch_seconds
    print(f"  over torch, bfloat16        {torch_seconds / ours:9.2f}   ({speed:,.0f} characters/s)")


def features(units: int, rows: int, length: int, repeats: int) -> None:
    """Print the feature ratios."""
    extractor = FeatureExtractor(MLSTMLanguageModel(MLSTMConfig(units=units), seed=None), batch_size=rows)
    rng = np.random.default_rng(1)
    texts = [bytes(rng.integers(32, 127, length, dtype=np.uint8)) for _ in range(rows)]
    peak, reads = gemm_rate(tf.float32), memory_rate()
    many = best_seconds(lambda: extractor.transform(texts), repeats, warmup=1)
    rate = 10 * units**2 * rows * length / many
    print(f"features, {units} units, float32, texts of {length} bytes")
    print(f"  {rows} texts                   {rows * length / many:9,.0f} characters/s   {rate / GIGA:6.0f} GFLOP/s")
    print(f"  of the float32 GEMM rate    {rate / peak:9.2f}   (GEMM {peak / GIGA:.0f} GFLOP/s)")
    one = best_seconds(lambda: extractor.transform(texts[:1]), repeats, warmup=1)
    rate = 5 * units**2 * 4 * length / one
    print(f"  one text                    {length / one:9,.0f} characters/s   {rate / GIGA:6.1f} GB/s")
    print(f"  of the memory rate          {rate / reads:9.2f}   (memory {reads / GIGA:.1f} GB/s)")


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: shows that it runs, not how fast")
    options = parser.parse_args(arguments)
    print(processor())
    print(f"tensorflow {tf.__version__}")
    if options.quick:
        training(units=32, rows=8, steps=16, repeats=1)
        features(units=64, rows=8, length=64, repeats=1)
    else:
        training(units=1024, rows=128, steps=128, repeats=5)
        features(units=4096, rows=128, length=128, repeats=3)


if __name__ == "__main__":
    main()
