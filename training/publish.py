"""A trained checkpoint -> `lbzoo/bundled/<name>`, measured, with its card and its entry in the manifest.

    python -m training.publish runs/512-export --name mlstm-512-reviews --data DATA --training training/cards/NAME.json

Every figure is measured here and now, and stored with the command that prints it again. The file given by --training
holds what cannot be measured: description, what the weights were trained on and how, notes.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Callable, Optional

from lbzoo import checkpoint
from lbzoo.errors import ConfigError
from lbzoo.files import brief, parse_json
from lbzoo.folder import manifest_files
from lbzoo.manifest import NAME
from lbzoo.models.mlstm import MLSTMLanguageModel
from lbzoo.transfer.probe import Probe
from lbzoo.transfer.reviews import NEGATIVE, POSITIVE, evaluate, frozen_probe_results, read_task
from lbzoo.transfer.sentiment import SentimentClassifier
from training import teacher
from training.command import ended
from training.evaluate import amazon_bits
from training.objectives import SentimentReadOut
from training.sources import task_folder, training_documents

ROOT = Path(__file__).resolve().parent.parent
TASKS = ("sst", "imdb", "amazon")
STATED = ("description", "license", "training_data", "notes")  # what the file given by --training has to hold


def read_out_probe(read_out: SentimentReadOut) -> Probe:
    """The read-out as the checkpoint's probe: the last hidden state, as it was trained."""
    return Probe(
        coef=read_out.w.numpy()[None],
        intercept=read_out.b.numpy()[None],
        classes=[NEGATIVE, POSITIVE],
        state="hidden",
        meta={"made by": "the sentiment read-out trained with the language model (training/pretrain_mlstm.py)"},
    )


def export(
    model: MLSTMLanguageModel,
    read_out: Optional[SentimentReadOut],
    folder: Path,
    card: Optional[Mapping[str, Any]] = None,
) -> Path:
    """Write the folded model in float16 with its read-out, where it was trained, as the probe."""
    probe = None if read_out is None else read_out_probe(read_out)
    return model.folded().save_pretrained(folder, card=card, probe=probe, dtype="float16")


def results(folder: Path, name: str, data: Path) -> list[dict[str, Any]]:
    """Bits per character on Amazon, accuracy of the checkpoint's own probe on the test splits."""
    model = checkpoint.load(folder)
    command = f"python -m training.evaluate --model {name} --data DATA"
    found = [_result("amazon", split, "bpc", amazon_bits(model, data, split), command) for split in ("valid", "test")]
    classifier = SentimentClassifier(folder)
    for task in TASKS:
        value = 100 * evaluate(classifier, *read_task(task, data / task_folder(task), "test"))
        found.append(_result(task, "test", "accuracy", value, _command(name, task)))
    return found


def baselines(folder: Path, name: str, data: Path) -> list[dict[str, Any]]:
    """What stands beside the results: the bag of words that was the teacher, and OpenAI's probe of the frozen state."""
    weights, intercept = teacher.fit(list(training_documents(data)))
    command, note = "python -m training.teacher --data DATA", "bag of words and word pairs, the teacher"
    accuracies = teacher.accuracies(weights, intercept, data)
    found = [_result(task, "test", "accuracy", value, command, note) for task, value in accuracies.items()]
    frozen = frozen_probe_results(folder, "sst", data / task_folder("sst"))
    note = (
        f"OpenAI's probe on the last cell state: C = {frozen['C']:g}, {frozen['nonzero']} weights; "
        f"best single unit {frozen['best_unit']['unit']} alone {frozen['best_unit']['accuracy']:.2f}"
    )
    found.append(_result("sst", "test", "accuracy", frozen["accuracy"], _command(name, "sst") + " --fit", note))
    return found


def _command(name: str, task: str) -> str:
    return f"lbzoo evaluate --model {name} --task {task} --data DATA/{task_folder(task)}"


def _result(
    dataset: str, split: str, metric: str, value: float, command: str, note: Optional[str] = None
) -> dict[str, Any]:
    found = {"dataset": dataset, "split": split, "metric": metric, "value": round(value, 3 if metric == "bpc" else 2)}
    found.update(source="ours", command=command)
    return {**found, "note": note} if note else found


def manifest_entry(folder: Path, name: str, card: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of a bundled checkpoint, for `checkpoints_manifest.json`."""
    config = json.loads((folder / "config.json").read_text())
    return {
        "name": name,
        "description": card["description"],
        "architecture": config["architecture"],
        "config": config["config"],
        "text": config["text"],
        "sources": [{"kind": "bundled"}],
        "files": manifest_files(folder),
        "license": card["license"],
        "training_data": card["training_data"],
        "results": card["results"],
        "notes": card["notes"],
        "status": "tested",
    }


def bundle(model: Any, name: str, card: Mapping[str, Any], probe: Optional[Probe] = None, root: Path = ROOT) -> None:
    """Write a model with its card as a bundled checkpoint of the checkout `root`, float16, and into its manifest."""
    bundled = checkpoint.save(model, root / "lbzoo" / "bundled" / name, card=card, probe=probe, dtype="float16")
    path = root / "checkpoints_manifest.json"
    manifest = json.loads(path.read_text())
    others = [entry for entry in manifest["checkpoints"] if entry["name"] != name]
    manifest["checkpoints"] = [manifest_entry(bundled, name, card), *others]
    path.write_text(json.dumps(manifest, indent=2, ensure_ascii=False) + "\n")


def publish(folder: Path, name: str, data: Path, training: Mapping[str, Any]) -> dict[str, Any]:
    """Measure `folder`, write it with its card as a bundled checkpoint, and enter it into the manifest; the card."""
    model, probe = checkpoint.load(folder), checkpoint.load_probe(folder)
    if not isinstance(model, MLSTMLanguageModel) or probe is None:
        received = type(model).__name__ + (" without a probe" if probe is None else "")
        raise ConfigError(f"an mLSTM with its probe is published here. Received: {folder}, a {received}.")
    card = {**training, "results": results(folder, name, data), "baselines": baselines(folder, name, data)}
    bundle(model, name, card, probe)
    return card


def command_line(
    description: str,
    trainer: str,
    publish: Callable[[Path, str, Path, Mapping[str, Any]], Mapping[str, Any]],
    arguments: Optional[Sequence[str]] = None,
) -> int:
    """Publish what `trainer` exported; README's table of models follows, and the card is printed.

    Returns:
        The exit status, 0, or 1 where a folder, the name or the file given by --training cannot be used.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help=f"what `{trainer} --export` wrote")
    parser.add_argument("--name", required=True)
    parser.add_argument("--data", type=Path, default=os.environ.get("LBZOO_DATA"), help="folder of the review sets")
    parser.add_argument("--training", type=Path, required=True, help="JSON: description, license, training_data, notes")
    options = parser.parse_args(arguments)
    if options.data is None:
        parser.error("--data FOLDER, or LBZOO_DATA, says where the review sets are")
    return ended("publish", functools.partial(_publish, options, publish))


def _publish(
    options: argparse.Namespace, publish: Callable[[Path, str, Path, Mapping[str, Any]], Mapping[str, Any]]
) -> int:
    if not NAME.match(options.name):
        raise ConfigError(
            f"a name is lower-case words and numbers joined by - _ or . Received: --name {brief(options.name)}."
        )
    training = _stated(options.training)
    if not Path(options.data).is_dir():
        raise ConfigError(f"--data names the folder of the review sets. Received: {str(options.data)!r}, no folder.")
    card = publish(options.folder, options.name, Path(options.data), training)
    table = subprocess.run([sys.executable, str(ROOT / "scripts" / "model_table.py")])
    print(json.dumps(card, indent=1))
    return table.returncode


def _stated(path: Path) -> dict[str, Any]:
    """What the file given by --training says, before hours go into measuring."""
    try:
        values = parse_json(path.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{path} cannot be parsed: {error}. It holds JSON: {', '.join(STATED)}.") from error
    missing = [name for name in STATED if not isinstance(values, dict) or name not in values]
    if missing:
        raise ConfigError(f"{path} must be a JSON object with {', '.join(STATED)}. Missing: {', '.join(missing)}.")
    return values


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The command line; returns the exit status."""
    return command_line(__doc__, "training.pretrain_mlstm", publish, arguments)


if __name__ == "__main__":
    sys.exit(main())
