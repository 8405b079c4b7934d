"""What Google's tokenizer does to a text before it cuts words into pieces (google-research/bert, tokenization.py).

| characters | become |
|---|---|
| NUL, U+FFFD, controls and formats (Cc, Cf: C1, zero-width, soft hyphen), private use (Co) | nothing |
| tab, line ends, every space (Zs), U+2028 and U+2029 | a space |
| Chinese characters | words of their own |
| punctuation: Unicode's (P*) and all of ASCII that is no letter or digit | words of their own |
| uncased: letters | lower case, then NFD, then without accents (Mn) |

Google's keeps private use, of which IMDB holds one; `tokenizers` and transformers do as here. Surrogates, which no file
holds, follow the text policy of lbzoo/text/clean.py: a pair is the character that it stands for, a lone one is U+FFFD.

The result is a string whose words stand apart at spaces and at ASCII punctuation. Most texts need none of this but
lower case: `is_plain` tells in a fraction of the time.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Optional

import numpy as np

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_CHINESE = (  # blocks of the Unicode standard that Google's tokenizer names
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0x2F800, 0x2FA1F)),
)


class _Table(dict):
    """For `str.translate`: rules applied to a character when it is first seen."""

    def __init__(self, *rules) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, code: int) -> Optional[str]:
        character = chr(code)
        results = (rule(character, unicodedata.category(character)) for rule in self._rules)
        self[code] = next((result for result in results if result is not None), character)
        return self[code]


def _without_controls(character: str, category: str) -> Optional[str]:
    if character in " \t\n\r" or category in ("Zs", "Zl", "Zp"):
        return " "
    return "" if character == "\ufffd" or category in ("Cc", "Cf", "Co", "Cs") else None


def _chinese_apart(character: str, category: str) -> Optional[str]:
    return f" {character} " if any(low <= ord(character) <= high for low, high in _CHINESE) else None


def _punctuation_apart(character: str, category: str) -> Optional[str]:
    # ASCII's is split later in any case, and some of it (the apostrophe) has a say in how Greek is put in lower case
    return f" {character} " if category[0] == "P" and not character.isascii() else None


def _without_accents(character: str, category: str) -> Optional[str]:
    return "" if category == "Mn" else None


_CASED = _Table(_without_controls, _chinese_apart, _punctuation_apart)
_BEFORE_LOWER = _Table(_without_controls, _chinese_apart)
_AFTER_LOWER = _Table(_without_accents, _punctuation_apart)


def is_plain(text: str) -> bool:
    """Whether `normalize` would change nothing but the case: ASCII without control characters."""
    return text.isascii() and not _CONTROL.search(text)


def normalize(text: str, lowercase: bool) -> str:
    """The text as Google's tokenizer reads it, see the module's table; always valid Unicode."""
    return _normalize(_join_pairs(text), lowercase)


def _join_pairs(text: str) -> str:
    if text.isascii() or not _SURROGATE.search(text):
        return text
    return _PAIR.sub(lambda pair: pair[0].encode("utf-16-le", "surrogatepass").decode("utf-16-le"), text)


def _normalize(text: str, lowercase: bool) -> str:
    if not lowercase:
        return text.translate(_CASED)
    lower = text.translate(_BEFORE_LOWER).lower()  # of the whole text: a final sigma depends on what follows it
    return unicodedata.normalize("NFD", lower).translate(_AFTER_LOWER)


def normalize_aligned(text: str, lowercase: bool) -> tuple[str, np.ndarray, np.ndarray]:
    """`normalize`, and where each character of the result comes from.

    Returns:
        (result, begins int64 [len(result)], ends of the same shape): character i was made from text[begins[i]:ends[i]].
    """
    joined = _join_pairs(text)
    result = _normalize(joined, lowercase)
    # a character alone gives as many as in its text: what follows it only chooses between two forms of sigma, and the
    # order of marks
    each = {character: len(_normalize(character, lowercase)) for character in set(joined)}
    counts = np.fromiter(map(each.__getitem__, joined), np.int64, len(joined))
    widths = np.ones(len(joined), np.int64)
    if len(joined) < len(text):
        before = np.fromiter((match.start() for match in _PAIR.finditer(text)), np.int64)
        widths[before - np.arange(len(before))] = 2
    ends = np.cumsum(widths)
    return result, np.repeat(ends - widths, counts), np.repeat(ends, counts)
