"""lbzoo: a model zoo for Keras on TensorFlow of the models that large-batch training made cheap.

The public names are resolved when they are first used, so that `import lbzoo` imports no TensorFlow.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "lbzoo.errors": (
        "CheckpointError ConfigError DownloadError LbzooError ManifestError MissingPartError NotFittedError TableError "
        "TextError TrainingError UnknownModelError"
    ),
    "lbzoo.features": "FeatureExtractor",
    "lbzoo.fill_mask": "MaskFiller",
    "lbzoo.loading": "checkpoint_folder load",
    "lbzoo.models.bert": "BertClassifier BertEncoder BertForMaskedLM BertForPreTraining BertRegressor",
    "lbzoo.models.config": "BertConfig MLSTMConfig",
    "lbzoo.models.mlstm": "MLSTM MLSTMLanguageModel",
    "lbzoo.registry": "DEFAULT_MODEL info list_models",
    "lbzoo.transfer.classifier": "TextClassifier",
    "lbzoo.transfer.sentiment": "SentimentClassifier",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = [  # tests/test_import.py holds it equal to _HOMES
    "DEFAULT_MODEL",
    "BertClassifier",
    "BertConfig",
    "BertEncoder",
    "BertForMaskedLM",
    "BertForPreTraining",
    "BertRegressor",
    "CheckpointError",
    "ConfigError",
    "DownloadError",
    "FeatureExtractor",
    "LbzooError",
    "MLSTM",
    "MLSTMConfig",
    "MLSTMLanguageModel",
    "ManifestError",
    "MaskFiller",
    "MissingPartError",
    "NotFittedError",
    "SentimentClassifier",
    "TableError",
    "TextClassifier",
    "TextError",
    "TrainingError",
    "UnknownModelError",
    "checkpoint_folder",
    "info",
    "list_models",
    "load",
]

if TYPE_CHECKING:
    from lbzoo.errors import (
        CheckpointError,
        ConfigError,
        DownloadError,
        LbzooError,
        ManifestError,
        MissingPartError,
        NotFittedError,
        TableError,
        TextError,
        TrainingError,
        UnknownModelError,
    )
    from lbzoo.features import FeatureExtractor
    from lbzoo.fill_mask import MaskFiller
    from lbzoo.loading import checkpoint_folder, load
    from lbzoo.models.bert import BertClassifier, BertEncoder, BertForMaskedLM, BertForPreTraining, BertRegressor
    from lbzoo.models.config import BertConfig, MLSTMConfig
    from lbzoo.models.mlstm import MLSTM, MLSTMLanguageModel
    from lbzoo.registry import DEFAULT_MODEL, info, list_models
    from lbzoo.transfer.classifier import TextClassifier
    from lbzoo.transfer.sentiment import SentimentClassifier


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'lbzoo' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
