"""Texts to feature vectors, as a scikit-learn transformer."""

from __future__ import annotations

import copy
import os
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Optional, Union

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, TransformerMixin

from lbzoo.registry import DEFAULT_MODEL
from lbzoo.states import BATCH_SIZE, PreparedModel, StateReader, check_options, prepare

if TYPE_CHECKING:
    from lbzoo.states import Reader


class FeatureExtractor(TransformerMixin, BaseEstimator):
    """The state of a byte-level language model after a text, or a BERT's vectors of it, as features of the text.

    Features of a text depend on nothing but the text: alone, in any batch and in any order they are equal (float32,
    atol 1e-5, rtol 1e-4). An mLSTM reads texts of any length whole; a BERT leaves out what goes beyond its positions,
    with a warning that says how much. Nothing is learned in `fit`.

    Args:
        model: name of a checkpoint, path of a checkpoint folder, or a model of lbzoo. A named model is loaded at
            first use, shared between extractors in the process, and never pickled with them. A model object is shared
            with clones and travels inside a pickle; where its weight norm has to be folded, the features are those
            of its weights at first use.
        state: "cell" or "hidden", the `c` or `h` of the mLSTM. Descriptions of the 2017 model speak of its
            hidden state, and the paper of final cell states with tanh; the published code returns the raw cell state
            of the last byte, and so does the default here.
        pool: of an mLSTM "last" (default), "mean" or "max" over the bytes of the text, the padding that the text policy
            adds included; of a BERT "mean" (default) or "max" over its tokens, [CLS] and [SEP] included, "cls" for the
            vector of the first token, or "pooled" for the pooler's output.
        tanh: of an mLSTM, whether each state goes through tanh before it is pooled.
        batch_size: most texts that run together; less takes less memory.
        dtype: "float32" or "bfloat16", what matrix products run in. The features are float32 with each.
        layer: of a BERT, which layer's vectors: 0 for the embeddings, 1 for the first layer, -1 for the last.

    References:
        Radford, Jozefowicz, Sutskever 2017, "Learning to Generate Reviews and Discovering Sentiment", and
        `encoder.py` of openai/generating-reviews-discovering-sentiment.
    """

    def __init__(
        self,
        model: Any = DEFAULT_MODEL,
        state: str = "cell",
        pool: Optional[str] = None,
        tanh: bool = False,
        batch_size: int = BATCH_SIZE,
        dtype: str = "float32",
        layer: int = -1,
    ) -> None:
        self.model = model
        self.state = state
        self.pool = pool
        self.tanh = tanh
        self.batch_size = batch_size
        self.dtype = dtype
        self.layer = layer

    def fit(self, texts: Any = None, y: Any = None) -> FeatureExtractor:
        """Check the options; `texts` is left untouched, so an iterator is still whole afterwards.

        Raises:
            ConfigError: an option that cannot be honoured.
        """
        self._check()
        return self

    def transform(self, texts: Iterable[Union[str, bytes]]) -> np.ndarray:
        """Features of texts.

        Args:
            texts: list, tuple, Series, array of objects or strings, or iterator of `str` (cleaned by the policy that
                the checkpoint names) or `bytes` (read as they are; without a byte the features are zeros). Or pairs of
                texts: tuples of two, an array or a DataFrame of two columns; see `lbzoo.text.pairs` for how each
                architecture reads them.

        Returns:
            float32 [texts, units]; [0, units] for none.

        Raises:
            TextError: a bare string, or an element that is not a text (None, NaN, a number); names its position.
            ConfigError: an option that cannot be honoured.
        """
        windows = self.iter_transform(texts)
        total = len(texts) if hasattr(texts, "__len__") else None
        units = self._reader().units
        if total is None:
            return np.concatenate([np.zeros((0, units), np.float32), *windows])
        out = np.empty((total, units), np.float32)
        done = 0
        for features in windows:
            out[done : done + len(features)] = features
            done += len(features)
        return self._indexed(out, texts)

    def iter_transform(self, texts: Iterable[Union[str, bytes]], window: Optional[int] = None) -> Iterator[np.ndarray]:
        """Features of a stream of texts of any number, in order, in memory that does not grow.

        Args:
            texts: as in `transform`.
            window: most texts that are read and sorted by length together; None chooses by the width of the model.

        Yields:
            float32 [texts of one window, units].

        Raises:
            As `transform`; what can be seen beforehand is raised by the call, the rest as the stream is read.
        """
        self._check()
        return self._reader().iter_read(texts, batch_size=int(self.batch_size), window=window)

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`cell_0` or `hidden_0` ... of an mLSTM, `mean_0` ... (its pool) of a BERT: object array [units]."""
        self._check()
        reader = self._reader()
        word = self.state if isinstance(reader, StateReader) else reader.pool
        return np.array([f"{word}_{unit}" for unit in range(reader.units)], dtype=object)

    def _check(self) -> None:
        options = {name: getattr(self, name) for name in ("state", "pool", "tanh", "batch_size", "dtype", "layer")}
        check_options(**options)

    def _indexed(self, features: np.ndarray, texts: Any) -> Any:
        """A DataFrame with the index of a Series, where pandas output is set: scikit-learn 1.6 and older drop it."""
        own = self.__dict__.get("_sklearn_output_config", {})
        if not hasattr(texts, "iloc") or own.get("transform", get_config()["transform_output"]) != "pandas":
            return features
        import pandas as pd

        return pd.DataFrame(features, index=texts.index, columns=self.get_feature_names_out())

    def _reader(self) -> Reader:
        if isinstance(self.model, (str, os.PathLike)):
            prepared = prepare(self.model, self.dtype)
        else:
            own = self.__dict__.get("_own")
            if own is None or own[0] is not self.model or own[1] != self.dtype:
                own = self._own = (self.model, self.dtype, PreparedModel(self.model, self.dtype))
            prepared = own[2]
        return prepared.reader(self.state, self.pool, self.tanh, self.layer)

    def __sklearn_clone__(self) -> FeatureExtractor:
        """A clone shares the model, which it only reads; scikit-learn would copy it."""
        other = type(self)(**self.get_params(deep=False))
        for name in ("_own", "_metadata_request", "_sklearn_output_config"):
            if name in self.__dict__:
                other.__dict__[name] = self._own if name == "_own" else copy.deepcopy(self.__dict__[name])
        return other

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_own", None)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self) -> Any:  # scikit-learn 1.6 and later
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.no_validation = True
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _more_tags(self) -> dict[str, Any]:  # before 1.6
        return {"X_types": ["string"], "requires_fit": False, "no_validation": True, "preserves_dtype": []}
