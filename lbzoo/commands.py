"""`lbzoo predict`, `features`, `fill-mask`, `finetune`, `trace` and `evaluate`: the commands that run a model.

What can be wrong with the input and the output is looked at before TensorFlow is imported.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import itertools
import math
import pathlib
import shutil
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Callable

from lbzoo import checkpoint
from lbzoo.console import import_tensorflow, note, one_line, progress, quiet_first_call
from lbzoo.errors import NotFittedError, TableError, UsageError
from lbzoo.loading import typed_model
from lbzoo.tables import Row, Table, choose_column, new_names, open_table, open_writer, output_format, replaced

_WINDOW = 1024  # texts whose features are held at a time
_NPY_HEADER = 128  # bytes, fixed so that the number of rows can be written at the end


def run_predict(args: argparse.Namespace) -> None:
    """Label texts; one row out for each row in."""
    to_terminal = args.output is None and args.output_format is None and sys.stdout.isatty()
    with _open_input(args) as table:
        path = args.output or "-"
        format = output_format(path, args.output_format)
        second = _second_text(table, args.pair_column)
        classifier = _classifier(args)
        _ = classifier.decides_by  # loads the checkpoint, or says what is wrong with it, before a header is written
        if classifier.pairs is not None and classifier.pairs != (args.pair_column is not None):
            raise UsageError(
                f"{args.model} was fine-tuned on pairs. Name the column of the second texts: --text-pair-column."
                if classifier.pairs
                else f"{args.model} was fine-tuned on single texts. Leave out --text-pair-column."
            )
        numbers = classifier.task == "regress"
        names = _result_names(table, ["number"] if numbers else ["label", "probability"])
        with contextlib.ExitStack() as stack:
            if to_terminal:
                write = _print_short
            else:
                write = stack.enter_context(open_writer(path, table.columns, names, format)).write
            rows: collections.deque[Row] = collections.deque()
            predictions = classifier.iter_predict(_remembered(table, rows, second))
            shown = predictions if to_terminal or _on_terminal(path) else progress(predictions, "texts")
            for answer in shown:
                if numbers:
                    write(rows.popleft(), [float(f"{answer.label:.7g}")])  # float32 holds no more digits
                else:
                    write(rows.popleft(), [answer.label, round(answer.probability, 6)])


def run_features(args: argparse.Namespace) -> None:
    """Features of texts, to .npy or behind the columns of the table."""
    path = args.output or "-"
    numbers_only = (args.output_format or ("npy" if path.endswith(".npy") else None)) == "npy"
    if numbers_only and path == "-":
        raise UsageError("npy is written to a file. Pass --output features.npy.")
    format = "npy" if numbers_only else output_format(path, args.output_format)
    with _open_input(args) as table:
        args.model = typed_model(args.model)
        import_tensorflow()
        from lbzoo.features import FeatureExtractor

        options = {"state": args.state, "pool": args.pool, "tanh": args.tanh, "layer": args.layer}
        extractor = FeatureExtractor(args.model, **options, **_batch_size(args))
        windows = _windows(table if _on_terminal(path) else progress(table, "texts"))
        first = next(windows, [])
        ahead = extractor.transform([row.text for row in first])
        width = ahead.shape[1]
        pairs = itertools.chain(
            [(first, ahead)], ((rows, extractor.transform([row.text for row in rows])) for rows in windows)
        )
        if format == "npy":
            _write_npy(path, width, (values for _, values in pairs))
            return
        names = ["features"] if format == "jsonl" else [f"feature_{i}" for i in range(width)]
        with open_writer(path, table.columns, _result_names(table, names), format) as writer:
            for rows, values in pairs:
                for row, numbers in zip(rows, values):
                    # repr of a float32 is the shortest decimal that reads back as the same float32
                    cells = [float(str(number)) for number in numbers]
                    writer.write(row, [cells] if format == "jsonl" else cells)


def run_evaluate(args: argparse.Namespace) -> None:
    """Accuracy on a labelled set; the last line is `accuracy` and the percentage."""
    from lbzoo.transfer import reviews

    args.model = typed_model(args.model)
    texts, labels = reviews.read_task(args.task, args.data, args.split)  # before the seconds that TensorFlow takes
    classifier = None if args.fit else _classifier(args)
    if classifier is None or not _has_probe(classifier):
        if args.split != "test":
            raise UsageError("a probe fitted on the train split is measured on the test split. Leave --split out.")
        if classifier is not None:
            note(f"{args.model} has no probe; one is fitted on {args.task} train by OpenAI's protocol.")
        import_tensorflow()
        found = reviews.frozen_probe_results(args.model, args.task, args.data, **_batch_size(args))
        unit = found["best_unit"]
        print(f"probe fitted on train, C {found['C']:g} chosen on dev ({found['dev_accuracy']:.2f})")
        print(f"weights that are not zero {found['nonzero']}")
        print(f"best single unit {unit['unit']} (accuracy {unit['accuracy']:.2f})")
        accuracy = found["accuracy"]
    else:
        known = [] if classifier.task == "regress" else classifier.classes_.tolist()
        if not set(labels) <= set(known):
            raise UsageError(
                f"{args.task} has the labels {', '.join(sorted(set(labels)))}. Received: {args.model}, which answers "
                f"with {', '.join(map(str, known)) or 'numbers'}. --fit measures a new probe on its features instead."
            )
        answers = progress(classifier.iter_predict(texts), "texts")
        accuracy = 100 * sum(answer.label == label for answer, label in zip(answers, labels)) / len(labels)
    print(f"{args.model} on {args.task} {args.split}, {len(labels)} texts")
    print(f"accuracy {accuracy:.2f}")


def run_fill_mask(args: argparse.Namespace) -> None:
    """Guesses for the masks of texts; one row out for each guess."""
    to_terminal = args.output is None and args.output_format is None and sys.stdout.isatty()
    with _open_input(args) as table:
        path = args.output or "-"
        format = output_format(path, args.output_format)
        names = _result_names(table, ["mask", "piece", "probability", "filled"])
        model = typed_model(args.model)
        import_tensorflow()
        from lbzoo.fill_mask import MaskFiller

        filler = MaskFiller(model)
        with contextlib.ExitStack() as stack:
            if not to_terminal:
                write = stack.enter_context(open_writer(path, table.columns, names, format)).write
            for rows in _windows(table):
                for row, masks in zip(rows, filler.fill([row.text for row in rows], args.top)):
                    for number, guesses in enumerate(masks, 1):
                        for guess in guesses:
                            if to_terminal:
                                print(f"{guess.probability:.3f}  {guess.piece:<12}  {one_line(guess.text)}", flush=True)
                            else:
                                write(row, [number, guess.piece, round(guess.probability, 6), guess.text])


def run_finetune(args: argparse.Namespace) -> None:
    """Fine-tune a checkpoint on a table of texts and labels, and write it as a folder."""
    output = pathlib.Path(args.output)
    checkpoint.require_replaceable(output)  # all that can be said at once is, before the hours of work
    checkpoint.require_writable(output)
    args.model = typed_model(args.model)
    texts, labels = _labelled(args.train, args)
    held_out = None if args.validation is None else _labelled(args.validation, args)
    import_tensorflow()
    from lbzoo.transfer.classifier import TextClassifier

    names = ("epochs", "batch_size", "learning_rate", "unfreeze", "language_model_weight", "random_state", "task")
    names = (*names, "max_length")
    options = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    quiet_first_call(_compile)()
    classifier = TextClassifier(args.model, **options)
    classifier.fit(texts, labels, validation_data=held_out, class_weight=args.class_weight)
    classifier.save(output, dtype="float16" if args.half else "float32")
    meta, found = classifier.probe_.meta, classifier.history_
    what = "pairs" if meta["pairs"] else "texts"
    numbers = classifier.task == "regress"
    print(f"trained on {meta['train_rows']} {what}, {'numbers' if numbers else f'{len(classifier.classes_)} labels'}")
    if meta["held_out_rows"]:
        for epoch, which in ((0, "frozen checkpoint"), (classifier.best_epoch_, f"epoch {classifier.best_epoch_}")):
            row = found[epoch]
            shown = f"R^2 {row['held_out_r2']:.4f}" if numbers else f"accuracy {100 * row['held_out_accuracy']:.2f}"
            print(f"held out {meta['held_out_rows']} {what}, {which} {shown}")
    print(f"saved to {output}")


def run_trace(args: argparse.Namespace) -> None:
    """The sentiment, or a unit, after every byte of a text."""
    if args.output:
        output_format(args.output)
    text = sys.stdin.buffer.read().decode("utf-8", "replace") if args.text == "-" else args.text
    classifier = _classifier(args)
    trace = classifier.trace(text, unit=args.unit)
    if args.html:
        with replaced(args.html) as file:
            file.write(trace.to_html().encode("utf-8"))
    if args.output:
        with open_writer(args.output, ["position", "byte"], ["value"]) as writer:
            for position, (byte, value) in enumerate(zip(trace.data, trace.values)):
                row = Row(position + 1, position + 1, "", [("position", position), ("byte", byte)])
                writer.write(row, [float(str(value))])
    if not args.html and not args.output:
        print(trace.to_terminal())


def _labelled(path: str, args: argparse.Namespace) -> tuple[list[Any], list[Any]]:
    """Texts, or pairs, and labels of a table."""
    from lbzoo.transfer.labels import label_list

    texts, labels = [], []
    with open_table(path, notice=note, **_table_options(args)) as table:
        place = choose_column(table.columns, args.label_column, table.name, "--label-column")
        column = table.columns[place]
        if column == table.column:
            raise UsageError(f"the texts and the labels of {table.name} are one column. Received: {column!r}.")
        second = _second_text(table, args.pair_column, column)
        for row in table:
            label = _cell(table, row, place)
            if label is None or label == "":
                raise TableError(
                    f"{table.name}, row {row.number} (line {row.line}) has no label in {column!r}. "
                    "Leave out the rows without one."
                )
            texts.append(second(row))
            labels.append(_number(label, row, table, column) if args.task == "regress" else label)
    if not labels:
        raise TableError(f"{table.name} has no rows to train or to measure on. Received: its header alone, or nothing.")
    if args.task != "regress":
        label_list(labels, f"{table.name}, {column!r}")  # raises before the seconds that TensorFlow takes
    return texts, labels


def _number(label: Any, row: Row, table: Table, column: str) -> float:
    try:
        number = float("nan") if isinstance(label, bool) else float(label)
    except (TypeError, ValueError):
        number = float("nan")
    if not math.isfinite(number):
        raise TableError(
            f"{table.name}, row {row.number} (line {row.line}) has no finite number in {column!r}. "
            f"Received: {label!r}. Leave out the rows without one, or train with --task classify."
        )
    return number


def _cell(table: Table, row: Row, place: int) -> Any:
    """What a row has in the column at `place`; None where a row of jsonl leaves it out."""
    return dict(row.items).get(table.columns[place]) if table.format == "jsonl" else row.items[place][1]


def _second_text(table: Table, column: str | None, labels: str | None = None) -> Callable[[Row], Any]:
    """row -> what is read of it: its text, or with a column of second texts the pair."""
    if column is None:
        return lambda row: row.text
    place = choose_column(table.columns, column, table.name, "--text-pair-column")
    name = table.columns[place]
    if name in (table.column, labels):
        raise UsageError(f"the second texts of {table.name} need a column of their own. Received: {name!r}.")

    def pair(row: Row) -> tuple[str, str]:
        text = _cell(table, row, place)
        if not isinstance(text, str):
            raise TableError(
                f"{table.name}, row {row.number} (line {row.line}): {name!r} must be a string. Received: {text!r:.60}."
            )
        return row.text, text

    return pair


def _classifier(args: argparse.Namespace) -> Any:
    args.model = typed_model(args.model)  # a misspelt name is told before the seconds that TensorFlow takes to start
    import_tensorflow()
    from lbzoo.transfer.inference import SentimentInference  # scikit-learn would cost half a second

    return SentimentInference(args.model, **_batch_size(args))


def _batch_size(args: argparse.Namespace) -> dict[str, int]:
    """The option where it is given; else the library's default holds."""
    given = getattr(args, "batch_size", None)
    return {} if given is None else {"batch_size": given}


def _has_probe(classifier: Any) -> bool:
    try:
        return classifier.decides_by == "probe"
    except NotFittedError:
        return False


def _open_input(args: argparse.Namespace) -> contextlib.AbstractContextManager[Table]:
    """The table that the arguments name: texts among them, a file, or standard input."""
    options = _table_options(args)
    if args.text and args.text != ["-"]:
        if args.file is not None:
            raise UsageError("texts as arguments and --file do not go together; give one of them.")
        if any(value not in (None, True, "auto") for value in options.values()):
            raise UsageError("options of the input file need --file or standard input, not texts as arguments.")
        rows = (Row(i, i, text, [("text", text)]) for i, text in enumerate(args.text, 1))
        return contextlib.nullcontext(Table("arguments", "txt", ["text"], "text", rows))
    if args.text and args.file not in (None, "-"):
        raise UsageError("- reads standard input and --file a file; give one of them.")
    if not args.text and args.file is None and sys.stdin.isatty():
        raise UsageError("no texts: give them as arguments, name a --file, or pipe them in.")
    return open_table(args.file or "-", notice=note, **options)


def _compile() -> None:
    """TensorFlow announces its first compilation; a bar that shows progress meanwhile cannot be kept off the noise."""
    import tensorflow as tf

    tf.function(lambda x: x + 1, jit_compile=True)(tf.zeros([]))


def _table_options(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "column": args.column,
        "format": args.format,
        "header": not args.no_header,
        "delimiter": _delimiter(args.delimiter),
        "quoting": args.quoting,
        "encoding": args.encoding,
    }


def _delimiter(value: str | None) -> str | None:
    return {"\\t": "\t", "tab": "\t"}.get(value, value) if value is not None else None


def _result_names(table: Table, wanted: list[str]) -> list[str]:
    names = new_names(table.columns, wanted)
    for old, new in zip(wanted, names):
        if old != new:
            note(f"{table.name} has a column {old!r} already, which is kept; the result is in {new!r}.")
    return names


def _remembered(rows: Iterable[Row], kept: collections.deque[Row], read: Callable[[Row], Any]) -> Iterator[Any]:
    """The texts, each row put aside until its result comes; the classifier reads ahead by one window only."""
    for row in rows:
        kept.append(row)
        yield read(row)


def _windows(rows: Iterable[Row]) -> Iterator[list[Row]]:
    rows = iter(rows)
    return iter(lambda: list(itertools.islice(rows, _WINDOW)), [])


def _on_terminal(path: str) -> bool:
    return path == "-" and sys.stdout.isatty()


def _print_short(row: Row, values: list[Any]) -> None:
    start = f"{values[0]}  {values[1]:.3f}" if len(values) == 2 else str(values[0])
    width = max(20, shutil.get_terminal_size().columns - len(start) - 4)
    text = one_line(row.text)
    text = text if len(text) <= width else text[: width - 3] + "..."
    print(f"{start}  {''.join(c if c.isprintable() else '?' for c in text)}", flush=True)


def _write_npy(path: str, width: int, blocks: Iterable[Any]) -> None:
    """float32 [rows, width] as .npy, block by block; the header gets the number of rows at the end."""
    with replaced(path) as file:
        file.write(bytes(_NPY_HEADER))
        count = 0
        for block in blocks:
            file.write(block.astype("<f4", copy=False).tobytes())
            count += len(block)
        shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count}, {width}), }}"
        file.seek(0)
        file.write(b"\x93NUMPY\x01\x00" + (_NPY_HEADER - 10).to_bytes(2, "little"))
        file.write(shape.ljust(_NPY_HEADER - 11).encode() + b"\n")
