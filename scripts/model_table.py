"""Write README's model table from `checkpoints_manifest.json`: `python scripts/model_table.py [--check]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout's lbzoo, installed or not

from lbzoo.manifest import Entry, read_manifest  # noqa: E402
from lbzoo.registry import megabytes  # noqa: E402

START, END = "<!-- models: start (python scripts/model_table.py) -->", "<!-- models: end -->"
HEAD = ("name", "model", "size", "licence", "measured here", "published", "status")


def model_table(entries: tuple[Entry, ...]) -> str:
    """The Markdown table of all entries, one row each."""
    rows = [HEAD, ("---",) * len(HEAD), *(_row(entry) for entry in entries)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def with_table(readme: str, entries: tuple[Entry, ...]) -> str:
    """README's text with the region between the markers replaced; ValueError where a marker is missing or repeated."""
    if readme.count(START) != 1 or readme.count(END) != 1:
        raise ValueError(f"README.md must hold each of these lines once: {START} and {END}")
    before, rest = readme.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{model_table(entries)}\n{END}{after}"


def _row(entry: Entry) -> tuple[str, ...]:
    cells = (
        f"`{entry.name}`",
        f"{entry.architecture}, {entry.config.units} units",
        megabytes(entry.size),
        entry.license,
        _figures(entry, "ours"),
        _figures(entry, "published"),
        entry.status,  # `lbzoo info` says what exactly is untested
    )
    return tuple(cell.replace("|", "\\|").replace("\n", " ") for cell in cells)


def _figures(entry: Entry, source: str) -> str:
    figures = [f"{r.dataset} {r.split} {r.metric} {r.value:g}" for r in entry.results if r.source == source]
    return "<br>".join(figures) or "-"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, exit 1 where the table is out of date")
    options = parser.parse_args(arguments)
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = with_table(old, read_manifest(ROOT / "checkpoints_manifest.json"))
    if options.check:
        if old != new:
            print("README.md: the model table is out of date; run: python scripts/model_table.py", file=sys.stderr)
        return int(old != new)
    readme.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
