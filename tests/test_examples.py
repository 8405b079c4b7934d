"""What a classifier is trained on: weights, validation data and class weights, as given and refused."""

from __future__ import annotations

import numpy as np
import pytest

from lbzoo.errors import ConfigError, TextError
from lbzoo.transfer.examples import class_weights, labelled_texts, validation_texts
from lbzoo.transfer.labels import number_list


def test_rows_of_weight_zero_count_as_not_given():
    given = labelled_texts(["a", "b", "c"], ["x", "y", "z"], [2, 0, 1])
    assert (given.texts, given.labels, given.weights.tolist()) == (["a", "c"], ["x", "z"], [2, 1])
    assert labelled_texts(iter(["a", b"b"]), np.array([1, 2])).weights.tolist() == [1, 1]


@pytest.mark.parametrize(
    "weights", [[1], [1, 2, 3], [[1, 2]], [1, -1], [1, np.nan], [np.inf, 1], [0, 0], ["1", "2"], "ab", 3, [[1], [1, 2]]]
)
def test_weights_that_are_none(weights):
    with pytest.raises(ConfigError, match="weights must be"):
        labelled_texts(["a", "b"], [0, 1], weights)


class NAType:
    """As pandas.NA, which cannot be compared."""

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __eq__(self, other):
        return self

    __ne__ = __eq__


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, np.float32("nan"), NAType()])
def test_a_missing_label_is_named_by_its_position(missing):
    with pytest.raises(TextError, match="labels: number 1 is no label.*Drop the rows without a label"):
        labelled_texts(["a", "b"], ["x", missing])
    with pytest.raises(TextError, match="labels: number 1 is no number to learn.*Drop the rows without a label"):
        labelled_texts(["a", "b"], [1, missing], None, number_list)


def test_validation_data_is_a_pair_or_a_triple():
    assert validation_texts((["a"], ["x"])).labels == ["x"]
    assert validation_texts([["a", "b"], ["x", "y"], [0, 3]]).weights.tolist() == [3]
    for wrong in (["a"], (["a"], ["x"], [1], 2), "ab", {"a": 1, "b": 2}, 3):
        with pytest.raises(ConfigError, match=r"validation_data is \(texts, labels\)"):
            validation_texts(wrong)
    with pytest.raises(ConfigError, match="validation texts and validation labels differ in length"):
        validation_texts((["a", "b"], ["x"]))


def test_class_weights():
    given = labelled_texts(["a"] * 4, ["x", "y", "y", "y"], [3, 1, 1, 1])
    classes = ["x", "y"]
    assert class_weights(None, classes, given).tolist() == [1, 1]
    assert class_weights({"y": 2.5}, classes, given).tolist() == [1, 2.5]
    assert class_weights({}, classes, given).tolist() == [1, 1]
    assert class_weights("balanced", classes, given).tolist() == [1, 1]  # 3 against 1 + 1 + 1
    assert class_weights("balanced", classes, labelled_texts(["a"] * 4, list("xyyy"))).tolist() == [2, 2 / 3]
    for wrong in ("unbalanced", [1, 2], {"x": 0}, {"x": -1}, {"x": np.nan}, {"x": np.inf}, {"x": True}, {"x": "1"}):
        with pytest.raises(ConfigError, match="class_weight must"):
            class_weights(wrong, classes, given)
    for names, labels in ((np.array(["x", "y"]), list("xyyy")), (np.array([3, 5]), [3, 5, 5, 5])):  # NumPy's, too
        values = class_weights(dict(zip(names, [1, 4])), names.tolist(), labelled_texts(["a"] * 4, labels))
        assert values.tolist() == [1, 4]
    with pytest.raises(ConfigError, match="class_weight names labels that are not among the classes"):
        class_weights({"z": 1}, classes, given)


class Bytes:
    """The part of an encoder that examples ask for; of the longest text it says that it was cut."""

    def encode(self, texts):
        return [text.encode() for text in texts], 1


def test_weights_have_mean_one_where_they_are_trained_on():
    given = labelled_texts(["aa", "b", "c"], ["x", "y", "x"], [1, 2, 3])
    targets = np.array([0, 1, 0])
    found = given.encoded(Bytes(), targets, np.array([1.0, 4.0, 1.0]))
    assert found.rows == [b"aa", b"b", b"c"] and found.targets is targets and found.cut == 1
    assert found.weights.dtype == np.float32 and found.weights.tolist() == [0.25, 2, 0.75]
    assert given.encoded(Bytes(), targets).weights.tolist() == [0.5, 1, 1.5]
    huge = labelled_texts(["aa", "b", "c"], ["x", "y", "x"], [1e308] * 3)  # their sum is beyond float64
    assert huge.encoded(Bytes(), targets, np.array([1, 1e308, 1])).weights.tolist() == [0, 3, 0]
