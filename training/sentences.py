"""A text -> its sentences, by the marks that end them.

tensorflow-text's sentence breaker cuts "5.5 stars", "e.g." and closing quotes, so that the rule is our own: a sentence
ends at `.`, `!`, `?` or an ellipsis with white space behind it (quotes and brackets may close first) or, since reviews
often lack the space, with a capital behind it; unless the full stop belongs to an abbreviation or an initial, or the
text goes on in lower case after an ellipsis.
"""

from __future__ import annotations

import re

_END = re.compile("[.!?\u2026]+[\"')\\]\u201d\u2019]*\\s+|(?<=[a-z)])[.!?\u2026]+(?=[A-Z])")
_OPENERS = "\"'([\u201c\u2018"
_TITLES = frozenset("mr mrs ms dr prof rev gen col sgt capt lt st mt vs".split())
_ABBREVIATIONS = frozenset("jr sr etc al approx est dept inc ltd co corp ft vol".split())
_LETTERS = re.compile(r"[a-z](\.[a-z])*")  # initials, e.g, u.s


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without white space around them; none for a blank text."""
    found, start = [], 0
    for end in _END.finditer(text):
        if not _goes_on(text, start, end):
            found.append(text[start : end.end()].strip())
            start = end.end()
    found.append(text[start:].strip())
    return [sentence for sentence in found if sentence]


def _goes_on(text: str, start: int, end: re.Match) -> bool:
    """Whether the sentence that began at `start` continues after these marks."""
    mark, after = end[0].rstrip(), text[end.end() : end.end() + 1]
    if mark != ".":
        return after.islower() and (mark.startswith("..") or mark[0] == "\u2026")
    before = text[max(start, end.start() - 12) : end.start()].split()
    word = before[-1].lower().lstrip(_OPENERS) if before else ""
    if word in _ABBREVIATIONS:
        return not after.isupper()
    if word == "no":
        return after.isdigit()
    return word in _TITLES or (word != "i" and bool(_LETTERS.fullmatch(word)))
