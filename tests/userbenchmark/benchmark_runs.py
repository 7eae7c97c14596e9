"""Runs from records, and the reports of userbenchmarks on them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from examples import manifest
from torchzoo import userbenchmark
from torchzoo.case import Domain
from torchzoo.record import Record
from torchzoo.store import Run
from torchzoo.userbenchmark import document

NAMES = ("api_coverage", "breakdown", "compile_modes", "compilers", "optim", "pt2_163")
NASTY = "a|b<i>`\n# heading"


def module(name: str) -> ModuleType:
    userbenchmark.load(name)
    return sys.modules[f"torchzoo_userbenchmarks.{name}"]


def run_of(records: list[Record], path: Path = Path("/nowhere"), **changes: Any) -> Run:
    domains = {"nlp_one": Domain.NLP, "nlp_two": Domain.NLP, "speech": Domain.SPEECH}
    cases = tuple(record.case for record in records)
    return Run(path=path, manifest=manifest(cases=cases, domains=domains, **changes), records=tuple(records))


def report(name: str, run: Run) -> str:
    return document(userbenchmark.load(name), run)


def table(text: str, first_heading: str) -> list[list[str]]:
    """The rows of the first table whose first heading is that, split into cells."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")])
    return rows
