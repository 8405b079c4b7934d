"""The weights of a Hugging Face BERT as a TensorFlow 1 checkpoint in Google's layout, by means of its own.

    python -m tests.google_checkpoint HUGGING_FACE_FOLDER OUT

Variables are made as Google's modeling.py makes them, scope by scope in a graph, filled, and saved by TensorFlow 1's
Saver beside slots of its optimizer: nothing here asks lbzoo's converters.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf
from safetensors.numpy import load_file

KEPT = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act"),
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size"),
    "initializer_range",
)


def write(source: Path, out: Path) -> Path:
    """Read the Hugging Face folder `source`, write Google's files to `out`."""
    tensors = load_file(source / "model.safetensors")
    config = json.loads((source / "config.json").read_text())
    prefix = "bert." if any(name.startswith("bert.") for name in tensors) else ""
    out.mkdir(parents=True)
    (out / "bert_config.json").write_text(json.dumps({name: config[name] for name in KEPT}))
    if (source / "vocab.txt").is_file():
        shutil.copy(source / "vocab.txt", out / "vocab.txt")
    tf1, fill, slots = tf.compat.v1, [], []
    with tf.Graph().as_default(), tf1.Session() as session:

        def variable(name: str, value: np.ndarray) -> None:
            made = tf1.get_variable(name, value.shape, tf.float32, initializer=tf1.zeros_initializer())
            given = tf1.placeholder(tf.float32, value.shape)
            fill.append((made.assign(given), {given: value}))

        def dense(scope: str, theirs: str) -> None:
            with tf1.variable_scope(scope):
                variable("kernel", np.transpose(tensors[f"{theirs}.weight"]))
                variable("bias", tensors[f"{theirs}.bias"])

        def layer_norm(theirs: str) -> None:
            with tf1.variable_scope("LayerNorm"):
                variable("beta", tensors[f"{theirs}.LayerNorm.bias"])
                variable("gamma", tensors[f"{theirs}.LayerNorm.weight"])

        with tf1.variable_scope("bert"):
            with tf1.variable_scope("embeddings"):
                for name in ("word_embeddings", "token_type_embeddings", "position_embeddings"):
                    variable(name, tensors[f"{prefix}embeddings.{name}.weight"])
                layer_norm(f"{prefix}embeddings")
            with tf1.variable_scope("encoder"):
                for number in range(config["num_hidden_layers"]):
                    theirs = f"{prefix}encoder.layer.{number}"
                    with tf1.variable_scope(f"layer_{number}"):
                        with tf1.variable_scope("attention"):
                            with tf1.variable_scope("self"):
                                for part in ("query", "key", "value"):
                                    dense(part, f"{theirs}.attention.self.{part}")
                            with tf1.variable_scope("output"):
                                dense("dense", f"{theirs}.attention.output.dense")
                                layer_norm(f"{theirs}.attention.output")
                        with tf1.variable_scope("intermediate"):
                            dense("dense", f"{theirs}.intermediate.dense")
                        with tf1.variable_scope("output"):
                            dense("dense", f"{theirs}.output.dense")
                            layer_norm(f"{theirs}.output")
            with tf1.variable_scope("pooler"):
                dense("dense", f"{prefix}pooler.dense")
        if "cls.predictions.bias" in tensors:
            with tf1.variable_scope("cls/predictions"):
                variable("output_bias", tensors["cls.predictions.bias"])
                with tf1.variable_scope("transform"):
                    dense("dense", "cls.predictions.transform.dense")
                    layer_norm("cls.predictions.transform")
        if "cls.seq_relationship.weight" in tensors:
            with tf1.variable_scope("cls/seq_relationship"):
                variable("output_weights", tensors["cls.seq_relationship.weight"])
                variable("output_bias", tensors["cls.seq_relationship.bias"])
        for weight in tf1.trainable_variables()[:8]:  # what Google's optimizer keeps of each weight
            slots += [
                tf1.get_variable(f"{weight.op.name}/{slot}", weight.shape, initializer=tf1.ones_initializer())
                for slot in ("adam_m", "adam_v")
            ]
        slots.append(tf1.train.get_or_create_global_step())
        session.run(tf1.variables_initializer(slots))
        for assign, feed in fill:
            session.run(assign, feed)
        tf1.train.Saver().save(session, str(out / "bert_model.ckpt"))
    return out


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), Path(sys.argv[2])))
