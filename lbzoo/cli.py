"""The `lbzoo` command: what can be asked, and how a failure is told. The work is in `commands.py` and `zoo.py`.

Exit status: 0 done, 1 it failed, 2 it was asked wrongly, 130 interrupted, 141 nobody reads the output any more.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import sys
from collections.abc import Sequence
from typing import Any, Callable

import lbzoo
from lbzoo.console import abandon_stdout, debugging, leaving_on_sigterm, one_line, warnings_as_notes
from lbzoo.errors import LbzooError, UsageError
from lbzoo.registry import DEFAULT_MODEL, MASKED_LM_MODEL

CACHE = "where checkpoints are kept (default: LBZOO_CACHE, else the Hub's own cache)"
MODEL = f"checkpoint by name or folder (default: {DEFAULT_MODEL})"
COUNT_LIMIT = 1 << 20  # beyond any batch size or unit; a typing error


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: the arguments; those of the process by default.

    Returns:
        The exit status. Wrong arguments and `--help` leave by SystemExit, as argparse does.
    """
    parser = build_parser()
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 0
    try:
        with warnings_as_notes(), leaving_on_sigterm():
            status = args.run(args) or 0
        sys.stdout.flush()
        return status
    except BaseException as error:
        status = _status(error)
        if status is None:
            raise
        if debugging() and not isinstance(error, BrokenPipeError):
            raise
        if isinstance(error, BrokenPipeError):
            abandon_stdout()
        elif isinstance(error, KeyboardInterrupt):
            print("lbzoo: interrupted", file=sys.stderr)
        else:
            more = f" `lbzoo {args.command} --help` shows what it takes." if isinstance(error, UsageError) else ""
            print(f"lbzoo: error: {_message(error)}{more}", file=sys.stderr)
        return status


def _status(error: BaseException) -> int | None:
    """The exit status for an error that people can act on; None for a fault of ours, which deserves its traceback."""
    if isinstance(error, BrokenPipeError):
        return 141
    if isinstance(error, KeyboardInterrupt):
        return 130
    if isinstance(error, UsageError):
        return 2
    return 1 if isinstance(error, (LbzooError, OSError, MemoryError)) else None


def _message(error: BaseException) -> str:
    if isinstance(error, LbzooError) or not isinstance(error, OSError):
        return one_line(error) or type(error).__name__
    if error.filename is None:
        return one_line(error.strerror or error)
    hint = " Is the name right?" if error.errno == errno.ENOENT else ""
    return one_line(f"{error.filename}: {error.strerror}.{hint}")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="lbzoo",
        description="Sentiment, features and traces of texts, from small and large checkpoints by name.",
        epilog='example: lbzoo predict "Works like a charm."   `lbzoo COMMAND --help` has one for each command.',
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"lbzoo {lbzoo.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    models = (_predict, _features, _trace, _fill_mask, _finetune, _evaluate)
    for add in (_list, _info, _download, _verify, *models, _convert, _doctor):
        add(commands)
    return parser


def _command(
    commands: Any, name: str, module: str, summary: str, details: str, example: str
) -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}. {details}".strip(),
        epilog=f"example: {example}",
        allow_abbrev=False,
    )

    def run(args: argparse.Namespace) -> int | None:
        return getattr(importlib.import_module(f"lbzoo.{module}"), f"run_{name.replace('-', '_')}")(args)

    parser.set_defaults(run=run)
    return parser


def _list(commands: Any) -> None:
    parser = _command(commands, "list", "zoo", "list the checkpoints", "", 'lbzoo list "mlstm-*"')
    parser.add_argument("pattern", nargs="?", default="*", help="names to show, with * and ? (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _info(commands: Any) -> None:
    parser = _command(
        commands,
        "info",
        "zoo",
        "show what is known about a checkpoint",
        "Sources, files, hashes, licence, measured and published results, and the card of one that is on this machine.",
        f"lbzoo info {DEFAULT_MODEL}",
    )
    parser.add_argument("name", help="name of a checkpoint, or the folder of one")
    parser.add_argument("--json", action="store_true", help="print JSON")


def _download(commands: Any) -> None:
    parser = _command(
        commands,
        "download",
        "zoo",
        "fetch checkpoints into the cache and check every file",
        "Prints the folder of each. What is there already is checked and not fetched again.",
        "lbzoo download mlstm-4096-amazon",
    )
    parser.add_argument("names", nargs="+", metavar="NAME", help="checkpoint")
    _add_cache(parser)


def _verify(commands: Any) -> None:
    parser = _command(
        commands,
        "verify",
        "zoo",
        "check checkpoints byte by byte",
        "Size, SHA-256, names and shapes of the tensors, and for OpenAI's weights the values that others measured. One "
        "that is not on this machine is fetched first, unless --offline. Exit status 1 if anything differs.",
        "lbzoo verify --all --offline",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="checkpoint, or the folder of one")
    parser.add_argument("--all", action="store_true", help="every checkpoint that is bundled or cached")
    _add_cache(parser)


def _predict(commands: Any) -> None:
    parser = _command(
        commands,
        "predict",
        "commands",
        "label texts as positive or negative, or as a model of your own was trained to",
        "Writes one row for each text, in order: its own columns, then label and probability (of that label), or the "
        "number that a model of `lbzoo finetune --task regress` gives. Texts come as arguments, from --file or from "
        "standard input. On a terminal without --output it prints short lines.",
        "lbzoo predict --file reviews.csv --column text --output labelled.csv",
    )
    _add_pair_column(_add_texts(parser))
    _add_output(parser, "csv, tsv or jsonl by its suffix, - for standard output (default); .gz and .xz compress")
    _add_model(parser)


def _features(commands: Any) -> None:
    parser = _command(
        commands,
        "features",
        "commands",
        "write the features of texts",
        "One row for each text: to .npy the numbers alone, float32 [texts, units]; to csv and jsonl behind the text's "
        "own columns.",
        "lbzoo features --file reviews.csv --column text --output features.npy",
    )
    _add_texts(parser)
    _add_output(parser, "npy, csv, tsv or jsonl by its suffix, - for standard output (default)", ("npy",))
    parser.add_argument("--state", choices=("cell", "hidden"), default="cell", help="which state (default: cell)")
    parser.add_argument(
        "--pool",
        choices=("last", "mean", "max", "cls", "pooled"),
        help="over the bytes of a text (default: last); of a BERT over its tokens (default: mean), or cls, pooled",
    )
    parser.add_argument("--layer", type=int, default=-1, help="of a BERT: 0 the embeddings, -1 the last (default)")
    parser.add_argument("--tanh", action="store_true", help="squash the states by tanh")
    _add_model(parser)


def _trace(commands: Any) -> None:
    parser = _command(
        commands,
        "trace",
        "commands",
        "show the sentiment after every byte of a text",
        "Prints the text coloured by the value after each character; --output writes the numbers.",
        'lbzoo trace "It starts badly, but the ending is wonderful." --html trace.html',
    )
    parser.add_argument("text", help="the text, or - for all of standard input")
    parser.add_argument("--unit", type=_count(0), help="follow this unit of the cell state (default: the sentiment)")
    parser.add_argument("--html", metavar="PATH", help="write the picture as a web page")
    parser.add_argument("--output", "-o", metavar="PATH", help="write a row a byte: csv, tsv or jsonl; - to print")
    _add_model(parser, batch=False)


def _fill_mask(commands: Any) -> None:
    parser = _command(
        commands,
        "fill-mask",
        "commands",
        "guess the word pieces behind [MASK]",
        "Writes a row for each guess: the text's own columns, then mask (which one, from 1), piece, probability and "
        "filled. On a terminal without --output it prints short lines.",
        'lbzoo fill-mask "The film was [MASK]."',
    )
    _add_texts(parser)
    _add_output(parser, "csv, tsv or jsonl by its suffix, - for standard output (default); .gz and .xz compress")
    parser.add_argument("--top", type=_count(1), default=5, help="guesses for each mask (default: 5)")
    _add_model(parser, batch=False, default=MASKED_LM_MODEL)


def _finetune(commands: Any) -> None:
    parser = _command(
        commands,
        "finetune",
        "commands",
        "train a checkpoint on texts and labels of your own",
        "An mLSTM or a BERT. All weights are trained; the epoch that does best on held-out texts is written as a "
        "checkpoint folder, which `lbzoo predict --model FOLDER` answers by. The same seed gives the same weights.",
        f"lbzoo finetune --model {DEFAULT_MODEL} --train train.csv --text-column text --label-column label "
        "--output my-model",
    )
    parser.add_argument("--train", required=True, metavar="PATH", help="csv, tsv or jsonl (.gz, .xz too)")
    parser.add_argument("--validation", metavar="PATH", help="held-out texts (default: a tenth of each label)")
    parser.add_argument("--output", "-o", required=True, metavar="FOLDER", help="where the checkpoint is written")
    group = parser.add_argument_group("input")
    group.add_argument(
        "--text-column", "--column", "-c", dest="column", metavar="NAME", help="of the texts, by name or number from 1"
    )
    group.add_argument(
        "--label-column", "-l", default="label", metavar="NAME", help="of the labels, by name or number from 1"
    )
    _add_pair_column(group)
    _add_table(group)
    group = parser.add_argument_group("training")
    group.add_argument("--task", choices=("classify", "regress"), help="labels (default), or numbers")
    group.add_argument("--model", "-m", default=DEFAULT_MODEL, help=MODEL)
    group.add_argument("--epochs", type=_count(1), help="most passes over the texts")
    group.add_argument("--batch-size", type=_count(1), help="texts of one update")
    group.add_argument("--learning-rate", type=_number(0, 1), help="at its peak")
    group.add_argument("--unfreeze", choices=("gradual", "all", "head"), help="which weights train, and when")
    group.add_argument(
        "--language-model-weight", type=_number(0, 100), help="of an mLSTM: of the next-byte loss beside the labels'"
    )
    group.add_argument("--max-length", type=_count(3), help="of a BERT: most tokens of a text (default: 256)")
    group.add_argument("--class-weight", choices=("balanced",), help="rare labels count as much as frequent ones")
    group.add_argument("--seed", dest="random_state", type=_count(0), help="of all that is random")
    group.add_argument("--half", action="store_true", help="write float16: half the size")


def _evaluate(commands: Any) -> None:
    parser = _command(
        commands,
        "evaluate",
        "commands",
        "measure a checkpoint on a labelled review set",
        "Uses the checkpoint's own probe; where it has none, or with --fit, a probe is fitted on the train split by "
        "OpenAI's protocol (L1, C chosen on dev). The last line is the accuracy in percent.",
        f"lbzoo evaluate --model {DEFAULT_MODEL} --task sst --data sst2_sentence",
    )
    parser.add_argument("--task", choices=("sst", "imdb", "amazon"), required=True, help="which set")
    parser.add_argument("--data", required=True, metavar="FOLDER", help="where its files are")
    parser.add_argument("--split", default="test", help="train, dev, valid or test, as the set has (default: test)")
    parser.add_argument("--fit", action="store_true", help="fit a new probe, though the checkpoint has one")
    _add_model(parser)


def _convert(commands: Any) -> None:
    parser = _command(
        commands,
        "convert",
        "converting",
        "turn another library's folder into a checkpoint, and with --export back",
        "hf-bert: Hugging Face's files, in safetensors. google-bert: a TensorFlow 1 checkpoint with bert_config.json "
        "and vocab.txt. openai-mlstm: the files 0.npy to 14.npy.",
        "lbzoo convert google-bert uncased_L-12_H-768_A-12 my-bert",
    )
    parser.add_argument("kind", choices=("hf-bert", "google-bert", "openai-mlstm"), help="of the other folder")
    parser.add_argument("folder", metavar="FOLDER", help="what is read; with --export a checkpoint by name or folder")
    parser.add_argument("output", metavar="OUT", help="where the result is written")
    parser.add_argument("--export", action="store_true", help="write the other library's folder")
    parser.add_argument("--gelu", choices=("tanh", "erf"), help="what gelu means in google-bert (default: tanh)")
    parser.add_argument("--text", choices=("uncased", "cased"), help="of google-bert (default: what its pieces show)")


def _doctor(commands: Any) -> None:
    parser = _command(
        commands,
        "doctor",
        "doctor",
        "show what lbzoo finds on this machine",
        "Versions, devices, cache, network settings. Exit status 1 if something that lbzoo needs is missing.",
        "lbzoo doctor --full",
    )
    parser.add_argument("--full", action="store_true", help="import TensorFlow too, and list the devices it sees")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--cache", metavar="FOLDER", help=CACHE)


def _add_texts(parser: argparse.ArgumentParser) -> Any:
    parser.add_argument(
        "text", nargs="*", help='texts, each quoted; - for standard input; after -- if it begins with "-"'
    )
    group = parser.add_argument_group("input")
    group.add_argument(
        "--file", "-f", metavar="PATH", help="txt, csv, tsv or jsonl (.gz, .xz too); - for standard input"
    )
    group.add_argument("--column", "-c", help="the column of the texts, by name or number from 1")
    _add_table(group)
    return group


def _add_pair_column(group: Any) -> None:
    group.add_argument(
        "--text-pair-column", dest="pair_column", metavar="NAME", help="of the second text of pairs, by name or number"
    )


def _add_table(group: Any) -> None:
    group.add_argument(
        "--format",
        choices=("txt", "csv", "tsv", "jsonl"),
        help="of the input (default: by suffix; standard input: txt)",
    )
    group.add_argument("--no-header", action="store_true", help="the first row of a csv or tsv is data already")
    group.add_argument("--delimiter", help="between csv cells (default: what the header shows)")
    group.add_argument(
        "--quoting",
        choices=("auto", "csv", "none"),
        default="auto",
        help='what a " at the start of a cell means: "none" is a character as any other (default: auto)',
    )
    group.add_argument("--encoding", help="of the input (default: UTF-8, UTF-16 by its mark, else Windows-1252)")


def _add_output(parser: argparse.ArgumentParser, help: str, more: tuple[str, ...] = ()) -> None:
    group = parser.add_argument_group("output")
    group.add_argument("--output", "-o", metavar="PATH", help=help)
    group.add_argument("--output-format", choices=("csv", "tsv", "jsonl", *more), help="in place of the suffix")


def _add_model(parser: argparse.ArgumentParser, batch: bool = True, default: str = DEFAULT_MODEL) -> None:
    group = parser.add_argument_group("model")
    group.add_argument("--model", "-m", default=default, help=f"checkpoint by name or folder (default: {default})")
    if batch:
        group.add_argument("--batch-size", type=_count(1), help="texts computed at a time; less takes less memory")


def _add_cache(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--cache", metavar="FOLDER", help=CACHE)
    parser.add_argument("--offline", action="store_true", default=None, help="use what is on this machine only")


def _number(low: float, high: float) -> Callable[[str], float]:
    def number(value: str) -> float:
        try:
            found = float(value)
        except ValueError:
            found = float("nan")
        if not low <= found < high:
            raise argparse.ArgumentTypeError(f"a number from {low} to below {high} is needed. Received: {value!r}")
        return found

    return number


def _count(least: int) -> Callable[[str], int]:
    def count(value: str) -> int:
        if not value.isascii() or not value.isdigit() or not least <= int(value) < COUNT_LIMIT:
            raise argparse.ArgumentTypeError(
                f"a whole number from {least} to {COUNT_LIMIT - 1} is needed. Received: {value!r}"
            )
        return int(value)

    return count
