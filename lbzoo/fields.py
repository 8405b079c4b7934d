"""Strict reading of a JSON object: every field is asked for, checked and accounted for; the first fault is raised.

Used for what comes from outside: `checkpoints_manifest.json` and a checkpoint's `config.json`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Callable

from lbzoo.files import SHA1, brief

Pattern = re.Pattern


class Fields:
    """The fields of one object, taken one by one; what nobody took is an unknown field.

    Args:
        values: what should be a dict.
        where: the file, for messages.
        error: class of the errors raised.
        trail: path to the object inside the file: `checkpoints[3].files`.
    """

    def __init__(self, values: Any, where: str, error: type[Exception], trail: str = "") -> None:
        self.where, self.error, self.trail, self.known = where, error, trail, {}
        if not isinstance(values, dict):
            raise self.fault(trail, "must be an object", values)
        self.values = values

    def fault(self, trail: str, rule: str, value: Any) -> Exception:
        """The error that says which rule the value at `trail` breaks."""
        return self.error(f"{self._place(trail)} {rule}. Received: {brief(value)}.")

    def _place(self, trail: str) -> str:
        return f"{self.where}: {trail}" if trail else self.where

    def path(self, key: str) -> str:
        """The trail of one of this object's fields."""
        if re.match(r"[A-Za-z_]\w*\Z", key):
            return f"{self.trail}.{key}" if self.trail else key
        return f"{self.trail}[{brief(key)}]"

    def has(self, key: str) -> bool:
        """Whether an optional field is there and not null."""
        self.known[key] = None
        return self.values.get(key) is not None

    def take(self, key: str) -> Any:
        """The value of a field that must be there."""
        if key not in self.values:
            there = ", ".join(map(brief, list(self.values)[:20])) or "an empty object"
            raise self.error(f"{self._place(self.path(key))} is missing. Received: {there}.")
        self.known[key] = None
        return self.values[key]

    def fields(self, key: str) -> Fields:
        """A field that is an object."""
        return Fields(self.take(key), self.where, self.error, self.path(key))

    def items(self, key: str) -> list[tuple[Any, str]]:
        """The items of a list, each with its trail."""
        value, trail = self.take(key), self.path(key)
        if not isinstance(value, list):
            raise self.fault(trail, "must be a list", value)
        return [(item, f"{trail}[{i}]") for i, item in enumerate(value)]

    def text(self, key: str, pattern: Pattern | None = None, form: str = "one non-empty line") -> str:
        """One printable line of at most 2000 characters that fits `pattern`; `form` says in words which."""
        return self._text(self.take(key), self.path(key), pattern, form)

    def texts(self, key: str, pattern: Pattern | None = None, form: str = "one non-empty line") -> tuple[str, ...]:
        """A list of lines; empty where the field is absent."""
        return tuple(self._text(item, trail, pattern, form) for item, trail in self.items(key)) if self.has(key) else ()

    def _text(self, value: Any, trail: str, pattern: Pattern | None, form: str) -> str:
        line = isinstance(value, str) and 0 < len(value) <= 2000 and value.isprintable() and value == value.strip()
        if not line or (pattern is not None and not pattern.match(value)):
            raise self.fault(trail, f"must be {form}", value)
        return value

    def digest(self, key: str, pattern: Pattern) -> str:
        """A hash in lower-case hex, `SHA256` or `SHA1`."""
        return self.text(key, pattern, f"{40 if pattern is SHA1 else 64} lower-case hex digits")

    def choice(self, key: str, choices: Iterable[Any]) -> Any:
        """One of `choices`, of their type: 1 is not true."""
        value, choices = self.take(key), list(choices)
        if not any(type(value) is type(choice) and value == choice for choice in choices):
            raise self.fault(self.path(key), f"must be {' or '.join(map(str, choices))}", value)
        return value

    def integer(self, key: str, low: int, high: int) -> int:
        """An integer from `low` to `high`; true and false are none."""
        value = self.take(key)
        if type(value) is not int or not low <= value <= high:
            raise self.fault(self.path(key), f"must be an integer from {low} to {high}", value)
        return value

    def number(self, key: str, low: float, high: float) -> float:
        """A number from `low` to `high`."""
        value = self.take(key)
        if type(value) not in (int, float) or not low <= value <= high:
            raise self.fault(self.path(key), f"must be a number from {low:g} to {high:g}", value)
        return value

    def optional(self, read: Callable[..., Any], key: str, *args: Any) -> Any:
        """None where the field is absent or null, else `read(key, *args)`."""
        return read(key, *args) if self.has(key) else None

    def finish(self) -> None:
        """Every field of the object must have been asked for."""
        for key in self.values:
            if key not in self.known:
                known = ", ".join(self.known)
                raise self.fault(self.path(key), f"is not a known field (known here: {known})", key)
