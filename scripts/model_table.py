"""Write README's model table from `checkpoints_manifest.json`: `python scripts/model_table.py [--check]`."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # the checkout's, installed or not

from lbzoo.manifest import Entry, read_manifest  # noqa: E402
from lbzoo.registry import megabytes  # noqa: E402
from training import readme_table  # noqa: E402

COMMAND = "python scripts/model_table.py"
START, END = f"<!-- models: start ({COMMAND}) -->", "<!-- models: end -->"
HEAD = ("name", "model", "size", "licence", "measured here", "published", "status")


def model_table(entries: tuple[Entry, ...]) -> str:
    """The Markdown table of all entries, one row each."""
    rows = [HEAD, ("---",) * len(HEAD), *(_row(entry) for entry in entries)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def with_table(readme: str, entries: tuple[Entry, ...]) -> str:
    """README's text with the table of these entries; ValueError where a marker is missing or repeated."""
    return readme_table.between(readme, START, END, model_table(entries))


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
    """The command line; exit status 1 where --check finds the table out of date."""
    entries = read_manifest(ROOT / "checkpoints_manifest.json")
    return readme_table.main(
        arguments, ROOT / "README.md", ("model", COMMAND), __doc__, lambda text: with_table(text, entries)
    )


if __name__ == "__main__":
    sys.exit(main())
