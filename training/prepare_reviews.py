"""Raw reviews -> shards that training reads: split, shuffled, each text once.

    python -m training.prepare_reviews --input reviews.jsonl.gz more/ --output runs/shards
    zcat reviews.gz | python -m training.prepare_reviews --input - --output runs/shards

Reads jsonl (Amazon's reviewText and summary, or text and title, or the fields that are named), csv, tsv and txt (a text
a line), plain or as gz, bz2 or xz. The output is the same, byte for byte, whatever the order of the input, the machine
and the number of processes: a document's split and place follow from its hash and the seed. Its layout is described in
training/shards.py, the sort on disk in training/partitions.py. It is written aside and renamed: interrupted, it leaves
nothing under the final name, and the next run removes what it left.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

import numpy as np
from tqdm import tqdm

from lbzoo.errors import ConfigError, LbzooError, TableError
from lbzoo.tables.reading import FORMATS
from lbzoo.text.clean import POLICIES, find_policy
from training.documents import SPLITS, Policy, Tally, read_block
from training.inputs import Block, Fields, Input, blocks, find_inputs
from training.partitions import Layout, plan, scatter, write
from training.shards import new_folder, write_index
from training.workers import DEFAULT_LIMIT, Workers, default_workers

SHARDS = (1000, 1, 1)
MAX_BROKEN = 0.01
_JUDGED_FROM = 1000  # rows seen before a run is stopped for broken ones; at the end any number will do
_BUFFERS = 24 << 20  # bytes of input that all workers together have in hand
_HASH_BLOCK = 1 << 20
_LISTED = 1000  # input files that the index describes one by one
_BAR = {"unit": "B", "unit_scale": True, "unit_divisor": 1000, "disable": None, "smoothing": 0.1}


def prepare(
    inputs: Sequence[Any],
    output: Path,
    policy: Policy,
    *,
    format: Optional[str] = None,
    header: bool = True,
    max_broken: float = MAX_BROKEN,
    workers: Optional[int] = None,
    notice: Callable[[str], None] = lambda message: None,
) -> dict[str, Any]:
    """Read `inputs` (files, folders, "-") and write the folder of shards `output`; returns its index.

    Args:
        policy: how rows become documents, how many shards, the seed.
        format: of all inputs; by default from each name, and for a pipe from its first line.
        header: False where the first row of csv and tsv files is data.
        max_broken: share of rows that may be broken; more stop the run.
        workers: processes beside this one, which reads; by default one a core, at most 6. 1: no other process.
        notice: is told once about each choice that an input did not state.

    Raises:
        TableError: an input cannot be read, holds no text, or too many of its rows are broken.
        ConfigError: a setting that makes no sense, or `output` is something else than a folder of shards.
        TrainingError: a worker was killed.
    """
    workers = default_workers() if workers is None else workers
    _check(policy, workers, max_broken)
    found, passed_over = find_inputs(inputs, format)
    if passed_over:
        more = ", ..." if len(passed_over) > 5 else ""
        notice(f"{len(passed_over)} files whose names tell no format were passed over: {passed_over[:5]}{more}")
    with new_folder(output) as folder, Workers(workers) as pool:
        layout = Layout(folder / "partitions", _partitions(found), policy.shards)
        layout.folder.mkdir()
        size = min(1 << 23, max(1 << 20, _BUFFERS // workers))
        tasks = _bundles(blocks(found, policy.fields, size, header, notice), size)
        tallies, total = _read(pool, tasks, found, policy, layout, max_broken)
        if not total.documents:
            raise TableError(f"there is no text in {', '.join(map(str, inputs))}. Received: {total.lines} rows.")
        splits, duplicates = _arrange(pool, layout, folder, policy)
        shutil.rmtree(layout.folder)
        index = {
            "documents": sum(split["documents"] for split in splits.values()),
            "bytes": sum(split["bytes"] for split in splits.values()),
            "splits": splits,
            **_preprocessing(policy),
            "split": "the data's own where a row has one, else by hash" if policy.fields.split else "by hash",
            "duplicates": duplicates,
            "empty": total.empty,
            "rows": total.lines,
            "broken": _broken(total, found),
            "files": len(found),
            "sources": [_source(*each) for each in zip(found[:_LISTED], tallies)],
        }
        write_index(folder, index)
    return index


def _check(policy: Policy, workers: int, max_broken: float) -> None:
    find_policy(policy.text)
    if len(policy.shards) != 3 or min(policy.shards) < 0 or policy.shards[0] < 1 or sum(policy.shards) >= 2**31:
        raise ConfigError(
            f"shards are three numbers, of train (at least 1), valid and test. Received: {policy.shards}. Try 1000,1,1."
        )
    if not 0 <= policy.seed < 2**64:
        raise ConfigError(f"a seed is a whole number from 0 to 2**64 - 1. Received: {policy.seed}.")
    if workers < 1:
        raise ConfigError(f"at least one worker is needed. Received: {workers}.")
    if not 0 <= max_broken <= 1:
        raise ConfigError(f"the share of broken rows is from 0 to 1. Received: {max_broken}.")


def _partitions(inputs: Sequence[Input]) -> int:
    """How many parts the sort on disk has: about 32 MB each, taking compressed input for a fourth of its text."""
    sizes = [each.size * (4 if each.path.suffix in (".gz", ".bz2", ".xz") else 1) for each in inputs if each.path]
    guess = sum(sizes) >> 25 if len(sizes) == len(inputs) else 512  # nobody knows what a pipe will bring
    return min(4096, max(64, guess))


def _bundles(found: Iterator[Block], size: int) -> Iterator[list[Block]]:
    """Blocks of small files, many in one task."""
    bundle, held = [], 0
    for block in found:
        bundle.append(block)
        held += len(block.data) if isinstance(block.data, bytes) else size
        if held >= size // 2:
            yield bundle
            bundle, held = [], 0
    if bundle:
        yield bundle


def _scatter(bundle: list[Block], policy: Policy, layout: Layout) -> list[tuple[int, int, Tally]]:
    """Do a bundle; (input, how far it was read, tally) of each block."""
    texts, records, tallies = [], [], []
    for block in bundle:
        found = read_block(block, policy)
        texts += found[0]
        records.append(found[1])
        tallies.append((block.source, block.position, found[2]))
    scatter(texts, np.concatenate(records), layout)
    return tallies


def _read(
    pool: Workers,
    tasks: Iterator[list[Block]],
    inputs: Sequence[Input],
    policy: Policy,
    layout: Layout,
    max_broken: float,
) -> tuple[list[Tally], Tally]:
    """Scatter every block; a tally for each input, and their sum."""
    tallies, total = [Tally() for _ in inputs], Tally()
    before = np.cumsum([0, *(each.size for each in inputs)]).tolist()
    with tqdm(total=before[-1] or None, desc="read", **_BAR) as bar:
        work = functools.partial(_scatter, policy=policy, layout=layout)
        for done in pool.map(work, tasks):
            for source, position, tally in done:
                tallies[source].add(tally)
                total.add(tally)
                bar.update(max(before[source] + position - bar.n, 0) if before[-1] else tally.bytes)
            bar.set_postfix(documents=total.documents, broken=total.broken, refresh=False)
            os.utime(layout.folder.parent)  # still alive, for other runs that sweep
            if _hopeless(total, bar.n / before[-1] if before[-1] else 0.0, max_broken):
                break
    _judge(total, inputs, max_broken)
    return tallies, total


def _hopeless(total: Tally, part: float, max_broken: float) -> bool:
    """Whether the rows still to come cannot make good the broken ones: half of what was read is broken, or so many rows
    are that the whole input, of which `part` was read, is most unlikely to be long enough."""
    if total.lines < _JUDGED_FROM or total.broken <= max_broken * total.lines:
        return False
    return total.broken > total.lines / 2 or (part > 0 and total.broken > 1.5 * max_broken * total.lines / part)


def _judge(total: Tally, inputs: Sequence[Input], max_broken: float) -> None:
    if total.broken > max_broken * total.lines:
        shown = "; ".join(f"{inputs[source].name} line {line}: {why}" for source, line, why in total.first[:3])
        raise TableError(
            f"{total.broken} of {total.lines} rows cannot be read, more than the share {max_broken:g} that "
            f"--max-broken allows. Received: {shown}. Mend the input, name its --format or fields, or allow more."
        )


def _arrange(pool: Workers, layout: Layout, folder: Path, policy: Policy) -> tuple[dict[str, dict[str, Any]], int]:
    """Write the three splits in order, each with its index; (what index.json says of each, duplicates left out)."""
    sizes = [np.zeros((2, max(count, 1)), np.int64) for count in layout.shards]  # documents and bytes of each shard
    ahead = np.zeros((layout.partitions + 1, len(SPLITS), 2), np.int64)  # those of each partition, one place up
    duplicates = 0
    work = functools.partial(plan, layout=layout)
    parts = range(layout.partitions)
    for number, found, twice in tqdm(pool.map(work, parts), total=len(parts), unit=" parts", desc="sort", disable=None):
        duplicates += twice
        for split, (shards, documents, size) in enumerate(found):
            sizes[split][:, shards] += (documents, size)
            ahead[number + 1, split] = documents.sum(), size.sum()
    before = np.cumsum(ahead, axis=0)
    for split, name in enumerate(SPLITS):
        _make_room(folder / name, *before[-1, split].tolist())
    tasks = ((number, [tuple(pair) for pair in before[number].tolist()]) for number in parts)
    with tqdm(total=int(before[-1, :, 1].sum()), desc="write", **_BAR) as bar:
        for written in pool.map(functools.partial(write, layout=layout, output=folder), tasks):
            bar.update(written)
            os.utime(folder)
    described = {}
    for split, name in enumerate(SPLITS):
        described[name] = _describe(pool, folder / name, sizes[split], policy)
        os.utime(folder)
    return described, duplicates


def _make_room(folder: Path, documents: int, size: int) -> None:
    folder.mkdir()
    offsets = np.lib.format.open_memmap(folder / "offsets.npy", "w+", np.int64, (documents + 1,))
    offsets[-1] = size
    with open(folder / "text.bin", "wb") as file:
        file.truncate(size)


def _describe(pool: Workers, folder: Path, sizes: np.ndarray, policy: Policy) -> dict[str, Any]:
    """Hash every shard of a split as it stands on disk and write the split's index."""
    documents, size = sizes.tolist()
    begins = (np.cumsum(size) - size).tolist()
    hashes = [""] * len(size)
    work = functools.partial(_hash, path=folder / "text.bin")
    with tqdm(total=sum(size), desc=f"hash {folder.name}", **_BAR) as bar:
        for number, digest in pool.map(work, enumerate(zip(begins, size))):
            hashes[number] = digest
            bar.update(size[number])
    names = ("begin", "bytes", "documents", "sha256")
    index = {
        "documents": sum(documents),
        "bytes": sum(size),
        **_preprocessing(policy),
        # one hash that stands for all: of the shards' hashes in order, a line each
        "sha256": {"shards": hashlib.sha256("".join(f"{each}\n" for each in hashes).encode()).hexdigest()},
        "shards": [dict(zip(names, shard)) for shard in zip(begins, size, documents, hashes)],
    }
    write_index(folder, index)
    return {
        "documents": index["documents"],
        "bytes": index["bytes"],
        "shards": len(size),
        "sha256": index["sha256"]["shards"],
    }


def _hash(task: tuple[int, tuple[int, int]], path: Path) -> tuple[int, str]:
    number, (begin, left) = task
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        file.seek(begin)
        while left:
            block = file.read(min(left, _HASH_BLOCK))
            digest.update(block)
            left -= len(block)
    return number, digest.hexdigest()


def _preprocessing(policy: Policy) -> dict[str, Any]:
    return {
        "text_policy": policy.text,
        "preprocessing": POLICIES[policy.text].description,
        "seed": policy.seed,
    }


def _broken(total: Tally, inputs: Sequence[Input]) -> dict[str, Any]:
    first = [{"source": inputs[source].name, "line": line, "why": why} for source, line, why in total.first]
    return {"rows": total.broken, "first": first}


def _source(each: Input, tally: Tally) -> dict[str, Any]:
    counts = {"rows": tally.lines, "documents": tally.documents, "empty": tally.empty, "broken": tally.broken}
    return {"name": each.name, "format": each.format, "bytes": each.size, **counts}


def summary(index: dict[str, Any]) -> str:
    """What was made, for people."""
    lines = [
        f"{name:<6}{split['documents']:>12,} documents {split['bytes']:>16,} bytes {split['shards']:>6} shards, "
        f"sha256 {split['sha256']}"
        for name, split in index["splits"].items()
    ]
    lines.append(
        f"{index['rows']:,} rows: {index['broken']['rows']} broken, {index['empty']} empty, "
        f"{index['duplicates']} duplicates left out"
    )
    lines += [f"broken: {each['source']} line {each['line']}: {each['why']}" for each in index["broken"]["first"]]
    return "\n".join(lines)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; exit status 0, 1 for an input or a setting that does not work, 130 when interrupted."""
    options = _parser().parse_args(arguments)
    try:
        fields = Fields(options.text_field, options.title_field, options.split == "auto")
        policy = Policy(options.text, fields, options.seed, options.shards)
        index = prepare(
            options.input,
            options.output,
            policy,
            format=options.format,
            header=not options.no_header,
            max_broken=options.max_broken,
            workers=options.workers,
            notice=lambda message: print(f"prepare_reviews: note: {message}", file=sys.stderr),
        )
    except (LbzooError, OSError) as error:
        print(f"prepare_reviews: error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("prepare_reviews: interrupted, nothing was written", file=sys.stderr)
        return 130
    print(summary(index))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--input", nargs="+", required=True, metavar="PATH", help="files, folders, or - for standard input")
    add("--output", type=Path, required=True, metavar="FOLDER", help="replaced if it holds shards already")
    add("--format", choices=FORMATS, help="of every input (default: as each name says)")
    add("--text-field", metavar="NAME", help="field or column of the text (default: reviewText, text, review, ...)")
    add("--title-field", metavar="NAME", help="field or column put before it (default: summary beside reviewText, ...)")
    add("--no-header", action="store_true", help="the first row of csv and tsv files is data; columns are 1, 2, ...")
    add("--text", choices=sorted(POLICIES), default="reviews", help="text policy (default: reviews)")
    add("--split", choices=("auto", "hash"), default="auto", help="auto: by a row's field `split` where it has one")
    add("--shards", type=_three, default=SHARDS, metavar="N,N,N", help="train, valid, test (default: 1000,1,1)")
    add("--seed", type=int, default=1, help="of the order; the split by hash does not depend on it")
    add(
        "--max-broken",
        type=float,
        default=MAX_BROKEN,
        metavar="SHARE",
        help="of broken rows that stops it (default: 0.01)",
    )
    add("--workers", type=int, metavar="N", help=f"processes (default: one a core, at most {DEFAULT_LIMIT})")
    return parser


def _three(value: str) -> tuple[int, ...]:
    return tuple(int(part) for part in value.split(","))


if __name__ == "__main__":
    sys.exit(main())
