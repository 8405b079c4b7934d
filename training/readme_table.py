"""A table in README that a command writes, between two marker lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional


def between(readme: str, start: str, end: str, made: str) -> str:
    """README's text with what stands between the markers replaced; ValueError where one is missing or repeated."""
    if readme.count(start) != 1 or readme.count(end) != 1 or readme.index(start) > readme.index(end):
        raise ValueError(f"README.md must hold each of these lines once: {start} and {end}")
    before, rest = readme.split(start)
    _, after = rest.split(end)
    return f"{before}{start}\n{made}{chr(10) if made else ''}{end}{after}"


def main(
    arguments: Optional[Sequence[str]], readme: Path, told: tuple[str, str], description: str, new: Callable[[str], str]
) -> int:
    """Write the table, or with --check look whether it is up to date: exit status 1 where it isn't, or makes none.

    Args:
        told: (what the table is called, the command that writes it).
        new: README's text -> the same with the table as it should be; ValueError or KeyError where there is none.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 where the table is out of date")
    check = parser.parse_args(arguments).check
    (name, command), old = told, readme.read_text(encoding="utf-8")
    try:
        made = new(old)
    except (ValueError, KeyError) as error:
        print(f"README.md: no {name} table: {error}", file=sys.stderr)
        return 1
    if check:
        if old != made:
            print(f"README.md: the {name} table is out of date; run: {command}", file=sys.stderr)
        return int(old != made)
    readme.write_text(made, encoding="utf-8")
    return 0
