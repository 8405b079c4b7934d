"""WordPiece as google-research/bert describes it, less private use, word by word, as slow and plain as can be."""

import unicodedata

_CHINESE = ((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F))
_CHINESE += ((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F))


def pieces(text, vocabulary, lowercase=True, longest=100):
    """The pieces of a text as strings; `vocabulary` is a set of rows."""
    found = []
    for word in words(text, lowercase):
        found += cut(word, vocabulary, longest)
    return found


def words(text, lowercase):
    clean = ""
    for character in text:
        if character in "\t\n\r" or unicodedata.category(character) == "Zs":
            clean += " "
        elif character not in "\0\ufffd" and unicodedata.category(character) not in ("Cc", "Cf", "Co"):
            chinese = any(low <= ord(character) <= high for low, high in _CHINESE)
            clean += f" {character} " if chinese else character
    for word in clean.split():
        if lowercase:
            word = "".join(c for c in unicodedata.normalize("NFD", word.lower()) if unicodedata.category(c) != "Mn")
        part = ""
        for character in word:
            if punctuation(character):
                yield from filter(None, (part, character))
                part = ""
            else:
                part += character
        yield from filter(None, (part,))


def punctuation(character):
    return unicodedata.category(character)[0] == "P" or (character.isascii() and not character.isalnum())


def cut(word, vocabulary, longest):
    if len(word) > longest:
        return ["[UNK]"]
    found, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = ("##" if start else "") + word[start:end]
            if piece in vocabulary:
                break
        else:
            return ["[UNK]"]
        found.append(piece)
        start = end
    return found
