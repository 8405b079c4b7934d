"""A vocabulary of a few hundred pieces, written for the tests."""

from lbzoo.text.vocabulary import SPECIAL

_ASCII = [chr(code) for code in range(33, 127)]
_OTHER = list("éßæöüñαοδσςжщ中国字の한ø\u0131\u1100\u1161\U0001f600\u201c\u2019\u00bf\u20ac")
_WORDS = (
    "the a an and or but is was not this that it i we you of to in on for with as at by from be have has had do does "
    "did will would can could film movie camera battery book review works work good bad great fine poor never ever "
    "really very much more most plot acting story screen sound price money new old york city world hello cafe "
    "naive istanbul strasse Hello World New York Paris The This It I café"
).split()
_ENDS = "s ed ing er est ly ness able un re ion ment t ful less ish al ic y e es or ter tion er's ä".split()


def small_vocabulary():
    """The rows: special tokens, unused ones, characters alone and as continuations, words, endings."""
    alone = _ASCII + _OTHER
    rows = [*SPECIAL, "[unused0]", *alone, *(f"##{each}" for each in alone), *_WORDS, *(f"##{end}" for end in _ENDS)]
    return list(dict.fromkeys(rows))
