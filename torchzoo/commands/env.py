"""`torchzoo env`: make, list and delete the software environments of comparisons."""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

from torchzoo.environments import cache as kept
from torchzoo.environments.make import prepare
from torchzoo.report import terminal, units

_UNITS_S = {"d": 86_400.0, "h": 3_600.0, "m": 60.0}
_PLACE = "They are in $TORCHZOO_ENV_CACHE, or in ~/.cache/torchzoo/environments."


def add_parser(commands: Any) -> None:
    """Add `env` to argparse's subcommands."""
    parser = commands.add_parser(
        "env",
        help="make, list or delete the software environments of comparisons",
        description=f"Make, list or delete the software environments of comparisons. {_PLACE}",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    _add_make(actions)
    listing = actions.add_parser("list", help="show place, size, age and last use of each", description=_PLACE)
    listing.set_defaults(command=show)
    _add_prune(actions)


def _add_make(actions: Any) -> None:
    make = actions.add_parser(
        "make",
        help="make an environment, and print the path of its Python",
        description="Make an environment if it is not there yet, and print the path of its Python. SPEC has parts "
        "between commas: PACKAGE==VERSION, a wheel, LIBRARY@FOLDER:COMMIT (of a git repository), or python=PATH; and "
        "index=URL and VARIABLE=VALUE. All other packages have the versions of this environment.",
    )
    make.add_argument("spec", metavar="SPEC", help="such as torch==2.14.1 or timm@/src/timm:abc123")
    make.set_defaults(command=make_one)


def _add_prune(actions: Any) -> None:
    prune = actions.add_parser(
        "prune",
        help="delete environments, and say how much space that frees",
        description="Delete environments. Without arguments, only half-made ones are deleted.",
    )
    which = prune.add_mutually_exclusive_group()
    which.add_argument("keys", nargs="*", default=[], metavar="KEY", help="as `list` shows it, or its beginning")
    which.add_argument("--older-than", type=_duration_s, metavar="30d", help="those unused for so long: 30d, 12h, 5m")
    which.add_argument("--all", action="store_true", help="all environments")
    prune.set_defaults(command=delete)


def _duration_s(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,6})([dhm])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"expected a time such as 30d, 12h or 5m, found '{text}'")
    return int(match[1]) * _UNITS_S[match[2]]


def make_one(arguments: argparse.Namespace) -> int:
    """Make an environment and print the path of its Python."""
    terminal.show_line(prepare(arguments.spec).python)
    return 0


def show(_: argparse.Namespace) -> int:
    """Show all environments."""
    cache = kept.cache_folder()
    found = kept.entries(cache)
    total = units.size(kept.disk_bytes(cache))
    terminal.show_line(f"{cache}: {units.counted(len(found), 'environment')}, {total} on disk")
    if found:
        headings = ("key", "size", "made", "last used", "state", "spec")
        rows = [_row(entry, time.time()) for entry in found]
        terminal.show(terminal.table(headings, rows, right=("size",)))
    return 0


def _row(entry: kept.CachedFolder, now_s: float) -> tuple[str, ...]:
    made = entry.made
    state = "being made" if entry.is_locked else "half-made" if made is None else "ready"
    return (
        entry.key,
        units.size(entry.size_bytes),
        _ago(now_s - made.made_s) if made else "-",
        _ago(now_s - entry.used_s),
        state,
        made.spec if made else "-",
    )


def _ago(age_s: float) -> str:
    for unit, seconds in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if age_s >= seconds:
            return f"{int(age_s / seconds)} {unit} ago"
    return "just now"


def delete(arguments: argparse.Namespace) -> int:
    """Delete environments, and say how much space that frees."""
    cache = kept.cache_folder()
    deleted, size_bytes = kept.prune(cache, _doomed(cache, arguments))
    count = units.counted(len(deleted), "environment")
    terminal.show_line(f"{cache}: deleted {count}, {units.size(size_bytes)}")
    if deleted:
        terminal.show_line("Files that uv's own cache shares stay there: `uv cache clean` deletes those.")
    return 0


def _doomed(cache: Path, arguments: argparse.Namespace) -> list[str]:
    if arguments.keys:
        return kept.chosen(cache, arguments.keys)
    if arguments.older_than is not None:
        oldest_s = time.time() - arguments.older_than
        return [entry.key for entry in kept.entries(cache) if entry.used_s < oldest_s]
    return [entry.key for entry in kept.entries(cache)] if arguments.all else []
