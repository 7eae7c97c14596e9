"""The folder of an A/B: its request, and the two runs, one for each side."""

from __future__ import annotations

import enum
from pathlib import Path

FILE = "ab.json"


class Side(enum.StrEnum):
    BASE = "base"
    CANDIDATE = "candidate"


def are_sides(base: Path, candidate: Path) -> bool:
    """Whether two runs are the sides of one A/B, whose processes were measured in turns."""
    folder = base.resolve().parent
    return (folder / FILE).is_file() and {base.resolve(), candidate.resolve()} == {folder / side for side in Side}
