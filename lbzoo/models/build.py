"""A configuration -> its model: the one table of architectures, by the names of `CONFIGS`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping, Optional

from lbzoo.models.config import Config, architecture_of

if TYPE_CHECKING:
    from lbzoo.models.base import ZooModel
    from lbzoo.text.vocabulary import Vocabulary


def build(
    config: Config,
    text: str,
    card: Optional[Mapping[str, Any]] = None,
    vocabulary: Optional[Vocabulary] = None,
    seed: Optional[int] = None,
) -> ZooModel:
    """A new model.

    Args:
        config: sizes and form.
        text: how a text is prepared, one of `TEXTS` of the architecture.
        card: what is known about the weights.
        vocabulary: word pieces, for an architecture that reads them.
        seed: of random start values; None leaves zeros for a loader that assigns every weight.
    """
    return _MODELS[architecture_of(config)](config, text, card, vocabulary, seed)


def _mlstm(config: Any, text: str, card: Any, vocabulary: Any, seed: Any) -> ZooModel:
    from lbzoo.models.mlstm import MLSTMLanguageModel

    return MLSTMLanguageModel(config, text, card, seed)


def _bert(config: Any, text: str, card: Any, vocabulary: Any, seed: Any) -> ZooModel:
    from lbzoo.models.bert import model_for

    return model_for(config)(config, text, card, vocabulary, seed)


_MODELS: Mapping[str, Callable[..., ZooModel]] = {"mlstm": _mlstm, "bert": _bert}
