"""A stand-in until the real one is there."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

import torchzoo


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    python: str
    variables: dict[str, str]
    key: str = ""


def prepare(spec: str) -> Environment:
    root = str(Path(torchzoo.__file__).resolve().parent.parent)
    variables = dict(part.split("=", 1) for part in spec.split(",") if "=" in part)
    return Environment(name=spec, python=sys.executable, variables={"PYTHONPATH": root, **variables})
