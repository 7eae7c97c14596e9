"""The forms of a comparison: Markdown, an issue for GitHub, JSON, a title; hostile names stay text."""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import pytest

from examples import environment, measured, record, run_of
from repeated_runs import FAILED, LOOP_S, STEADY, records, times
from torchzoo.analysis.compare import RunComparison, compare_runs
from torchzoo.record import Block
from torchzoo.report import run_comparison as shown

NASTY = 'x|y<img src=1 onerror="a()">](http://z)`rm`\n# h\n```\n@b'


def nasty() -> RunComparison:
    base = [*records(STEADY, model=NASTY), record(model="b")]
    candidate = [*records(times(1.2), model=NASTY), record(msgspec.structs.replace(FAILED, message=NASTY), model="b")]
    return compare_runs(run_of(base, path=NASTY), run_of(candidate, environment=environment(packages={"timm": NASTY})))


@pytest.mark.parametrize("write", [shown.as_markdown, shown.as_issue])
def test_foreign_text_can_not_break_out_of_markdown(write: Any) -> None:
    text = write(nasty())
    prose = text.split("````sh")[0]
    assert "<img" not in prose
    assert "](http" not in prose
    assert "\n# h" not in prose
    assert re.search(r"(?<!\w)@\w", prose) is None
    for table in (part for part in prose.split("\n\n") if part.startswith("|")):
        assert len({line.replace("\\|", "").count("|") for line in table.splitlines()}) == 1


def test_the_issue_stays_within_what_github_takes() -> None:
    base = [one for number in range(400) for one in records(STEADY[:2], model=f"model_of_a_long_name_{number}")]
    text = shown.as_markdown(compare_runs(run_of(base), run_of(base)))
    assert len(text) < 65_536
    assert "more rows are left out" in text


def test_json_has_no_infinity() -> None:
    once = measured(blocks=(Block("eager", (20.0,)),), host_loop_s=LOOP_S)
    text = shown.as_json(compare_runs(run_of([record(once)]), run_of([record(once)])))
    assert "Infinity" not in text
    assert json.loads(text)["findings"][0]["verdict"] == "inconclusive"


def test_a_title_without_regression_tells_what_is_open() -> None:
    noisy = (0.08, 0.12, 0.10, 0.13, 0.09)
    comparison = compare_runs(run_of(records(noisy)), run_of(records(step_s * 1.1 for step_s in noisy)))
    assert shown.title(comparison) == "No regression found, 1 inconclusive beyond the threshold (torch 2.15.0)"
    assert shown.title(compare_runs(run_of(records(STEADY)), run_of(records(STEADY)))) == (
        "No regression found (torch 2.15.0)"
    )
