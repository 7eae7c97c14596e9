"""Runs from records, and the reports of userbenchmarks on them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from examples import CASE, INDUCTOR, manifest
from torchzoo.case import Case, Domain
from torchzoo.record import Failed, Record, Skipped, Took
from torchzoo.store import Run
from torchzoo.studies import study, userbenchmark
from torchzoo.studies.userbenchmark import document

#: All userbenchmarks; those among them that measure cases as `torchzoo run` does.
NAMES = ("dynamic_shapes", "optim", "power_values", "warm_start")
OF_RUNS = ("optim", "power_values")
STUDIES = (
    "gpt2_modes",
    "nanogpt",
    "paper_api",
    "paper_breakdown",
    "paper_compilers",
    "paper_devices",
    "paper_optimizations",
    "pt2_claim",
    "resnets",
)
NASTY = "a|b<i>`\n# heading"


def module(name: str) -> ModuleType:
    (study if name in STUDIES else userbenchmark).load(name)
    return sys.modules[f"torchzoo_userbenchmarks.{name}"]


def run_of(records: list[Record], path: Path = Path("/nowhere"), **changes: Any) -> Run:
    domains = {"nlp_one": Domain.NLP, "nlp_two": Domain.NLP, "speech": Domain.SPEECH}
    cases = tuple(dict.fromkeys(record.case for record in records))
    return Run(path=path, manifest=manifest(cases=cases, domains=domains, **changes), records=tuple(records))


def case_of(model: str, **changes: Any) -> Case:
    return msgspec.structs.replace(CASE, model=model, backend=INDUCTOR, **changes)


def turn(case: Case, role: str, number: int, result: Any) -> Record:
    """The record of a fresh process."""
    outcome = result if isinstance(result, Skipped | Failed) else Took(result=msgspec.to_builtins(result))
    now = "2026-11-23T10:00:00.000+00:00"
    return Record(case=case, role=role, number=number, outcome=outcome, started_at=now, finished_at=now)


def report(name: str, run: Run) -> str:
    if name in STUDIES:
        return study.document(study.load(name), [run]).text
    return document(userbenchmark.load(name), run)


def figures(text: str) -> str:
    """The headings, tables and findings of a document, without its prose."""
    lines = [line for line in text.splitlines() if line.startswith(("#", "| ", "- ")) and not line.startswith("| ---")]
    return "\n".join(lines) + "\n"


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


def beside(text: str, title: str) -> dict[str, list[str]]:
    """The lines of the table of a study's document with that title: published, measured, difference and reason."""
    part = text.partition(f"### {title} (")[2]
    return {row[0]: row[1:] for row in table(part, "")}
