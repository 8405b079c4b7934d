"""`config.json` of a Hugging Face BERT <-> `BertConfig`: each of its fields is honoured, or refused by name.

Fields and defaults are those of `BertConfig` and `PretrainedConfig` in transformers 4 and 5, and of Google's
multilingual models.
"""

from __future__ import annotations

from typing import Any, Mapping

from lbzoo.errors import CheckpointError, ConfigError
from lbzoo.files import brief
from lbzoo.models.config import BertConfig

# theirs -> ours; the first name of a value of ours is the one that is written
ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python": "gelu_erf",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
CLASSES = {
    None: "BertModel",
    "masked-lm": "BertForMaskedLM",
    "pretraining": "BertForPreTraining",
    "classifier": "BertForSequenceClassification",
    "regressor": "BertForSequenceClassification",
}
_SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
_DEFAULTS = {
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
}
# a field with one value that an encoder can honour
_FIXED: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": ("absolute", None),
    "is_decoder": (False, None),
    "is_encoder_decoder": (False, None),
    "add_cross_attention": (False, None),
    "cross_attention_hidden_size": (None,),
    "tie_encoder_decoder": (False, None),
    "tie_word_embeddings": (True, None),
    "pruned_heads": ({}, None),
    "quantization_config": (None,),
    "auto_map": (None,),
    "directionality": ("bidi",),
    "pooler_type": ("first_token_transform",),
}
_READ = {"model_type", "architectures", "hidden_act", "id2label", "num_labels", "problem_type", "classifier_dropout"}
# where files come from, how a decoder would generate, how torch runs it, what padding is called (it is masked)
_WITHOUT_EFFECT = set(
    "_name_or_path _commit_hash transformers_version torch_dtype dtype torchscript use_bfloat16 use_cache "
    "gradient_checkpointing chunk_size_feed_forward attn_implementation _attn_implementation "
    "_attn_implementation_autoset output_attentions output_hidden_states output_past return_dict tf_legacy_loss "
    "label2id _num_labels finetuning_task task_specific_params tokenizer_class model_max_length prefix "
    "pad_token_id bos_token_id eos_token_id sep_token_id cls_token_id mask_token_id decoder_start_token_id "
    "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature top_k "
    "top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size bad_words_ids "
    "num_return_sequences output_scores return_dict_in_generate forced_bos_token_id forced_eos_token_id "
    "remove_invalid_values exponential_decay_length_penalty suppress_tokens begin_suppress_tokens "
    "pooler_fc_size pooler_num_attention_heads pooler_num_fc_layers pooler_size_per_head".split()
)


def is_bert(values: Any) -> bool:
    """Whether a parsed `config.json` is of a Hugging Face BERT; old ones have no model_type."""
    if not isinstance(values, dict) or "format" in values:
        return False
    if values.get("model_type") is not None:
        return values["model_type"] == "bert"
    named = values.get("architectures")
    return isinstance(named, list) and bool(named) and all(str(name).startswith("Bert") for name in named)


def classifies(values: Mapping[str, Any]) -> bool:
    """Whether a tensor `classifier.weight` is a classifier of whole texts (and not of tokens, or of choices)."""
    return (values.get("architectures") or [CLASSES["classifier"]]) == [CLASSES["classifier"]]


def read_config(values: Mapping[str, Any], head: str | None, pooler: bool, where: str) -> BertConfig:
    """The configuration of the model that `head` names, or CheckpointError for a field that cannot be honoured.

    Args:
        values: the parsed file.
        head: "classifier" for both kinds of numbers on the pooler: labels and problem type tell which.
        pooler: whether its weights are there.
        where: the file, for messages.
    """
    for name, value in values.items():
        if name in _FIXED:
            if not any(type(value) is type(allowed) and value == allowed for allowed in _FIXED[name]):
                raise CheckpointError(
                    f"{where}: {name} must be {_FIXED[name][0]!r}, for lbzoo's BERT has no other form. Received: "
                    f"{brief(value)}."
                )
        elif name not in _READ and name not in _WITHOUT_EFFECT and name not in _SIZES and name not in _DEFAULTS:
            raise CheckpointError(
                f"{where}: {name} is no field whose effect lbzoo knows, so it cannot be honoured. Received: "
                f"{brief(value)}. Where it changes nothing of the model, remove it from a copy of the folder."
            )
    missing = [name for name in _SIZES if name not in values]
    if missing:
        raise CheckpointError(f"{where} lacks {', '.join(missing)}. Received: {', '.join(sorted(values))[:300]}.")
    act = values.get("hidden_act", "gelu")
    if not isinstance(act, str) or act not in ACTIVATIONS:
        raise CheckpointError(f"{where}: hidden_act must be one of {', '.join(ACTIVATIONS)}. Received: {brief(act)}.")
    given = {name: values[name] for name in _SIZES}
    given.update({name: values.get(name, default) for name, default in _DEFAULTS.items()})
    if head == "classifier":
        head, given["labels"] = _classes(values, where)
        given["classifier_dropout"] = values.get("classifier_dropout")
    try:
        return BertConfig(**given, hidden_act=ACTIVATIONS[act], pooler=pooler, head=head)
    except ConfigError as error:
        raise CheckpointError(f"{where}: {error}") from None


def write_config(config: BertConfig) -> dict[str, Any]:
    """`config.json` for transformers."""
    values = {
        "model_type": "bert",
        "architectures": [CLASSES[config.head]],
        **{name: getattr(config, name) for name in (*_SIZES, *_DEFAULTS)},
        "hidden_act": next(theirs for theirs, ours in ACTIVATIONS.items() if ours == config.hidden_act),
        "position_embedding_type": "absolute",
        "pad_token_id": 0,
    }
    if config.head == "classifier":
        values["id2label"] = {str(i): label for i, label in enumerate(config.labels)}
        values["label2id"] = {label: i for i, label in enumerate(config.labels)}
        values["problem_type"] = "single_label_classification"
    if config.head == "regressor":
        values.update(id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0}, problem_type="regression")
    if config.head in ("classifier", "regressor"):
        values["classifier_dropout"] = config.classifier_dropout
    return values


def _classes(values: Mapping[str, Any], where: str) -> tuple[str, tuple[str, ...]]:
    """("classifier", its labels) or ("regressor", ())."""
    kind = values.get("problem_type")
    if kind not in (None, "regression", "single_label_classification"):
        raise CheckpointError(
            f"{where}: problem_type must be of one label or one number a text. Received: {brief(kind)}."
        )
    named = values.get("id2label")
    if named is None:  # what transformers calls them then
        count = values.get("num_labels", 2)
        named = {str(i): f"LABEL_{i}" for i in range(count if isinstance(count, int) else 0)}
    numbers = [str(i) for i in range(len(named))] if isinstance(named, dict) else []
    if not numbers or set(map(str, named)) != set(numbers):
        raise CheckpointError(f"{where}: id2label must name classes 0, 1, ... Received: {brief(named)}.")
    labels = tuple(str(dict(zip(map(str, named), named.values()))[number]) for number in numbers)
    if len(labels) == 1 and kind != "single_label_classification":
        return "regressor", ()
    if kind == "regression":
        raise CheckpointError(f"{where}: a regression gives one number a text. Received: {len(labels)} labels.")
    return "classifier", labels
