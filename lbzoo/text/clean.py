"""The one text policy: str or bytes in, the bytes that a model reads out.

Every input has a defined result. `str` goes through the policy that the checkpoint names; `bytes` pass as they are
(no padding, no decoding, invalid UTF-8 included). In a `str`:

| input | result |
|---|---|
| empty, whitespace only | the three bytes of the padding, ``b"\\n  "`` |
| NUL, `\\r`, tabs, inner whitespace | kept |
| a surrogate pair (as some JSON readers leave it) | the character that it stands for |
| a lone surrogate | U+FFFD |
| C1 controls U+0080..U+009F | kept by "openai", read as cp1252 by "reviews" |
| `<br />` and its like | kept by "openai", a space in "reviews" |
| any length | whole, never cut |
"""

from __future__ import annotations

import dataclasses
import html
import re
from typing import Any, Iterable, Iterator, Mapping, Union

from lbzoo.errors import ConfigError, TextError

Text = Union[str, bytes]


@dataclasses.dataclass(frozen=True)
class TextPolicy:
    """What happens to a `str` before it becomes bytes.

    Attributes:
        name: the word that a checkpoint's `config.json` holds under "text".
        description: one line for people.
        tags: whether HTML tags become a space.
        c1: whether C1 controls are read as the cp1252 characters that they almost always were.
    """

    name: str
    description: str
    tags: bool = False
    c1: bool = False


POLICIES: Mapping[str, TextPolicy] = {
    policy.name: policy
    for policy in (
        TextPolicy("openai", "the preprocessing of openai/generating-reviews-discovering-sentiment, exactly"),
        TextPolicy("reviews", "HTML tags to a space and C1 controls as cp1252, then as openai", tags=True, c1=True),
    )
}

# Only tags that people write as markup, with nothing but name=value attributes: "I <3 this > that", "<sigh>" and
# "<i think so>" are words. The escaped form counts too, or unescaping would bring the tag back.
_NAMES = (
    "br|p|hr|i|b|u|em|strong|a|div|span|font|center|blockquote|pre|ul|ol|li|dl|dt|dd|h[1-6]|table|tbody|tr|td|th|img"
)
_ATTRIBUTE = r"""\s+[a-z-]+\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s"'<>]+)"""
_TAG = re.compile(
    rf"</?(?:{_NAMES})(?:{_ATTRIBUTE})*(?:\s*/)?\s*>|&lt;/?(?:{_NAMES})(?:\s*/)?\s*&gt;", re.IGNORECASE | re.ASCII
)

_C1 = re.compile("[\x80-\x9f]")
# The five bytes that cp1252 leaves undefined stay what they are.
_CP1252 = {code: bytes([code]).decode("cp1252", errors="ignore") or chr(code) for code in range(0x80, 0xA0)}

_DECIMAL = re.compile("&#([0-9]+);?")


def encode(text: Text, policy: str = "openai") -> bytes:
    """The bytes a model reads for one text.

    OpenAI's preprocessing (`utils.preprocess`): unescape HTML entities, newlines to spaces, strip, put "\\n " before
    and " " behind, UTF-8. The newline plays the start of a text, the last space its end.

    Args:
        text: `str`, cleaned by the policy, or `bytes`, which pass as they are.
        policy: a name in `POLICIES`.

    Returns:
        The bytes; never empty for a `str`.

    Raises:
        TextError: not a str or bytes.
        ConfigError: an unknown policy.
    """
    chosen = find_policy(policy)
    if isinstance(text, bytes):
        return bytes(text)
    if not isinstance(text, str):
        raise TextError(f"a text must be str or bytes. Received: {_describe(text)}. {_hint(text)}")
    if chosen.tags and ("<" in text or "&" in text):  # `in` is many times as fast as the pattern
        text = _TAG.sub(" ", text)
    if chosen.c1 and not text.isascii() and _C1.search(text):
        text = text.translate(_CP1252)
    text = "\n " + _unescape(text).replace("\n", " ").strip() + " "
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:  # surrogates: through UTF-16, where a pair is one character and a lone one a fault
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode("utf-8")


def find_policy(name: str) -> TextPolicy:
    """The policy of that name; an unknown one raises ConfigError."""
    try:
        return POLICIES[name]
    except (KeyError, TypeError):
        known = ", ".join(POLICIES)
        raise ConfigError(f"unknown text policy. Received: {name!r}. Known: {known}.") from None


def as_texts(texts: Iterable[Text]) -> Iterator[Text]:
    """Check a collection of texts and iterate over it.

    Lists, tuples, arrays and Series are checked whole, before any work is done; an iterator is checked as it is read.

    Args:
        texts: list, tuple, pandas Series or Index, NumPy array of objects or strings, or any iterator of str or bytes.

    Returns:
        An iterator over the texts.

    Raises:
        TextError: a bare str or bytes, something that is not a one-dimensional collection, or an element that is not
            str or bytes (None, NaN, a number ...); names its position, counted from 0.
    """
    if isinstance(texts, (str, bytes, bytearray, memoryview)):
        raise TextError(
            f"a list of texts is needed, not one text. Received: {_describe(texts)}. Put it in a list: [text]."
        )
    shape = getattr(texts, "shape", None)
    if isinstance(shape, tuple) and len(shape) != 1:
        raise TextError(
            f"texts must have one dimension. Received: {type(texts).__name__} of shape {shape}. "
            "Select one column, or ravel() the array."
        )
    if isinstance(texts, (Mapping, set, frozenset)) or not hasattr(texts, "__iter__"):
        raise TextError(
            f"a list of texts is needed. Received: {_describe(texts)}. Pass a list, an array or an iterator."
        )
    if hasattr(texts, "__len__"):
        for _ in _checked(texts):
            pass
        return iter(texts)
    return _checked(texts)


def _checked(texts: Iterable[Any]) -> Iterator[Text]:
    for position, text in enumerate(texts):
        if not isinstance(text, (str, bytes)):
            raise TextError(f"text {position} is not str or bytes. Received: {_describe(text)}. {_hint(text)}")
        yield text


def _unescape(text: str) -> str:
    if "&" not in text:
        return text
    try:
        return html.unescape(text)
    except ValueError:  # Python refuses to read integers of thousands of digits, which an entity may hold
        return html.unescape(_DECIMAL.sub(_short_reference, text))


def _short_reference(match: re.Match) -> str:
    digits = match[1].lstrip("0") or "0"
    return f"&#{digits};" if len(digits) <= 7 else "\ufffd"


def _describe(value: Any) -> str:
    shown = repr(value)
    return f"{type(value).__name__} {shown if len(shown) <= 60 else shown[:57] + '...'}"


def _hint(value: Any) -> str:
    if isinstance(value, (bytearray, memoryview)):
        return "Use bytes(...)."
    missing = value is None or type(value).__name__ in ("NAType", "NaTType")
    if missing or (isinstance(value, float) and value != value):
        return 'Drop missing texts, or give "" for them.'
    return "Use str(...) if it is meant as a text."
