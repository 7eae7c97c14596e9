"""Documents of studies and userbenchmarks: foreign text stays text, and what is missing is said."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmark_runs import NASTY, OF_RUNS, STUDIES, report, run_of

from examples import INDUCTOR, compared, measured, variant_result
from examples import record as example
from torchzoo.record import (
    ApiSurface,
    Breakdown,
    Failed,
    FailureKind,
    Measured,
    StepTime,
)
from torchzoo.settings import Stage


def broken_down(active_s: float, movement_s: float, **changes: Any) -> Measured:
    steps = (StepTime(0.5, active_s / 2, movement_s / 2), StepTime(0.5, active_s / 2, movement_s / 2))
    return measured(variants={"eager": variant_result(breakdown=Breakdown(steps=steps, kernels=()))}, **changes)


@pytest.mark.parametrize("name", STUDIES)
def test_foreign_text_breaks_no_table(name: str) -> None:
    outcome = broken_down(0.5, 0.1, api=ApiSurface(functions=(NASTY,), operators=(NASTY,)))
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=NASTY)
    records = [
        example(outcome, model=NASTY),
        example(compared(), model=NASTY, backend=INDUCTOR),
        example(failed, model=f"{NASTY}2"),
    ]
    text = report(name, run_of(records, command=("torchzoo", NASTY)))
    assert not any(line.startswith("# heading") for line in text.splitlines())
    no_code = re.sub(r"^(`{3,})sh\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<i>" not in re.sub(r"(?<!\\)`[^`\n]*`", "", no_code)
    columns = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        bars = line.replace("\\|", "").count("|")
        assert bars == (columns or bars), line
        columns = bars


@pytest.mark.parametrize("name", [*OF_RUNS, *STUDIES])
def test_an_empty_or_partial_run_says_what_is_missing(name: str, tmp_path: Path) -> None:
    skipped = example(Failed(kind=FailureKind.TIMEOUT, stage=Stage.BUILD, message="too slow"))
    run = run_of([skipped], tmp_path)
    run = msgspec.structs.replace(
        run, manifest=msgspec.structs.replace(run.manifest, cases=(*run.manifest.cases, example(model="other").case))
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pairs.json").write_text("{}")
    text = report(name, run)
    assert "2 cases: 0 measured, 1 skipped or failed (at the end), 1 not run yet" in text
    assert "No case of this run" in text or "it needs two runs" in text
    assert "## Measured on" in text
    assert "a CPU, 2 cores" in text
