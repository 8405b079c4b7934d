"""`lbzoo list`, `info`, `download` and `verify`: the manifest and the folders, without TensorFlow."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lbzoo import registry
from lbzoo.console import aligned, import_tensorflow, note, one_line
from lbzoo.errors import LbzooError, UsageError
from lbzoo.loading import checkpoint_folder, is_path, typed_model

if TYPE_CHECKING:
    from lbzoo import verify


def run_list(args: argparse.Namespace) -> None:
    """Print a table of the checkpoints that match, or JSON."""
    entries = [registry.find(name) for name in registry.list_models(args.pattern)]
    if args.json:
        print(json.dumps([entry.to_dict() for entry in entries], indent=2, ensure_ascii=False))
        return
    if not entries:
        note(f"no checkpoint has a name like {args.pattern!r}. `lbzoo list` shows every name.")
        return
    rows = [("NAME", "MODEL", "SIZE", "SOURCE", "LICENCE", "DESCRIPTION")]
    for entry in entries:
        units = getattr(entry.config, "units", None)
        model = entry.architecture + (f", {units} units" if units else "")
        source = " or ".join(dict.fromkeys(source.kind for source in entry.sources))
        rows.append((entry.name, model, registry.megabytes(entry.size), source, entry.license, entry.description))
    print(aligned(rows))


def run_info(args: argparse.Namespace) -> None:
    """Print an entry of the manifest with the card of a bundled one, or what a folder holds."""
    args.name = typed_model(args.name)
    if is_path(args.name):
        from lbzoo import checkpoint
        from lbzoo.folder import CARD

        info = checkpoint.read_folder(os.path.expanduser(args.name))
        values = {
            "folder": str(info.folder),
            "architecture": info.architecture,
            "config": info.config.to_dict(),
            "text": info.text,
            "dtype": info.dtype,
            "files": {spec.path: {"size": spec.size, "sha256": spec.sha256} for spec in info.files},
        }
        card = checkpoint.load_card(info.folder) if info.has(CARD) else None
        files = {spec.path: f"{spec.size:,} bytes, sha256 {spec.sha256}" for spec in info.files}
        shown = "\n".join(_items({**values, "files": files}))
    else:
        entry = registry.find(args.name)
        values, shown, card = entry.to_dict(), registry.describe(entry), _bundled_card(entry)
    if args.json:
        print(json.dumps({**values, "card": card}, indent=2, ensure_ascii=False))
        return
    print(shown)
    if card:
        print("card")
        print(textwrap.indent("\n".join(_items(card)), "  "))


def run_download(args: argparse.Namespace) -> None:
    """Bring checkpoints to this machine and print where they lie."""
    for name in args.names:
        print(checkpoint_folder(name, cache=args.cache, offline=args.offline), flush=True)


def run_verify(args: argparse.Namespace) -> int:
    """Check checkpoints file by file; one that fails does not keep the others from being checked."""
    if bool(args.names) == args.all:
        raise UsageError("name the checkpoints to verify, or pass --all.")
    found = _all_checks(args) if args.all else ((name, _checks(name, args)) for name in args.names)
    failed = 0
    for name, rows in found:
        good = not isinstance(rows, LbzooError) and all(row.ok for row in rows)
        failed += not good
        print(f"{name}: {'ok' if good else 'FAILED'}")
        if isinstance(rows, LbzooError):
            print(f"lbzoo: error: {one_line(rows)}", file=sys.stderr)
        else:
            print(textwrap.indent(check_table(rows), "  "), flush=True)
    return 1 if failed else 0


def check_table(rows: Sequence[verify.Check]) -> str:
    """The rows of a check as aligned text, failures marked."""
    cells = [("ok" if row.ok else "FAILED", row.check, row.expected, row.received) for row in rows]
    return aligned([("", "CHECK", "EXPECTED", "RECEIVED"), *cells])


def _checks(name: str, args: argparse.Namespace) -> list[verify.Check] | LbzooError:
    from lbzoo import hub, verify

    try:
        name = typed_model(name)
        if is_path(name):
            folder = Path(os.path.expanduser(name))
            if not folder.is_dir():
                folder = checkpoint_folder(name, cache=args.cache, offline=args.offline)  # a Hub repository
            return verify.verify_entry(folder)
        entry = registry.find(name)
        if entry.name == verify.OPENAI_MODEL:  # its features are computed, too; fetch it before TensorFlow starts
            hub.resolve(entry, cache=args.cache, offline=args.offline)
            import_tensorflow()
        return verify.verify_entry(entry, cache=args.cache, offline=args.offline)
    except LbzooError as error:
        return error


def _all_checks(args: argparse.Namespace) -> Iterator[tuple[str, list[verify.Check] | LbzooError]]:
    from lbzoo import hub, verify

    if hub.is_here(registry.find(verify.OPENAI_MODEL), args.cache):
        import_tensorflow()
    found = verify.verify_all(cache=args.cache, offline=args.offline)
    if not found:
        note("no checkpoint is bundled or cached on this machine.")
    return iter(found.items())


def _bundled_card(entry: Any) -> dict[str, Any] | None:
    folder = registry.bundled_folder(entry)
    if folder is None or not folder.is_dir():
        return None
    from lbzoo import checkpoint

    return checkpoint.load_card(folder)


def _items(values: dict[str, Any]) -> list[str]:
    """A JSON object as lines `key: value`, long texts wrapped, lists and objects indented."""
    lines = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            lines += [f"{key}:"] + [f"  {line}" for line in _items(value)]
        elif isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
            lines += [f"{key}:"] + [f"  - {json.dumps(item, ensure_ascii=False)}" for item in value]
        elif value is not None:
            text = ", ".join(map(str, value)) if isinstance(value, list) else value
            text = text if isinstance(text, str) else json.dumps(text)
            lines += textwrap.wrap(f"{key}: {text}", 116, subsequent_indent="  ", break_on_hyphens=False)
    return lines
