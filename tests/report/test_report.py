"""Texts for people: units with their intervals, and the progress of a run."""

from __future__ import annotations

import math
import re

import msgspec
import pytest

from examples import (
    CASE,
    record,
    rendered,
)
from torchzoo.record import Failed, FailureKind
from torchzoo.report import units
from torchzoo.report.progress import Progress
from torchzoo.run.lanes import Lane
from torchzoo.settings import Stage
from torchzoo.stats import Estimate, median_estimate, quotient


def test_an_interval_of_few_samples_says_so() -> None:
    assert units.latency(median_estimate([1.0])) == "1.00 s (1 sample: too few for an interval)"
    two = median_estimate([1.0, 1.1])
    assert units.latency(two) == "1.05 s (2 samples: too few for an interval)"  # not one "at 50%"
    assert units.latency(two, has_confidence=False) == "1.05 s (2 samples)"
    assert units.speedup(quotient(two, two)) == "1.00x (2 samples: too few for an interval)"
    assert units.latency(median_estimate([1.0, 1.1, 1.3])) == "1.10 s [1.00, 1.30] (at 75%)"
    assert units.speedup(median_estimate([2.0] * 8)) == "2.000x [2.000, 2.000]"


def around(value: float, low: float, high: float) -> Estimate:
    return Estimate(value=value, low=low, high=high, confidence=0.95, count=9)


@pytest.mark.parametrize(
    ("estimate_s", "text"),
    [
        (around(0.0220, 0.0218, 0.0223), "22.0 ms [21.8, 22.3]"),
        (around(0.0220, 0.0151, 0.2650), "22.0 ms [15.1, 265]"),  # far more above than below
        (around(0.0220, 0.0000004, 31.0), "22.0 ms [0.00, 31,000]"),  # the ends keep the value's unit
        (around(0.9996, 0.9991, 1.2), "1,000 ms [999, 1,200]"),
        (around(3e-6, 1e-6, math.inf), "3.00 µs [1.00, inf]"),  # of two processes that hardly agree
        (around(131.0, 131.0, 131.0), "131.00 s [131.00, 131.00]"),
        (around(0.1572, 0.1571, 0.1573), "157.20 ms [157.10, 157.30]"),  # as many digits as make the interval clear
        (around(0.1572, 0.1562, 0.1582), "157.2 ms [156.2, 158.2]"),
        (around(0.1572, 0.1552, 0.1592), "157 ms [155, 159]"),
        (around(0.0088697, 0.0088642, 0.0088740), "8.870 ms [8.864, 8.874]"),
    ],
)
def test_an_interval_is_shown_as_it_is_in_the_unit_of_its_value(estimate_s: Estimate, text: str) -> None:
    assert units.latency(estimate_s) == text
    assert "±" not in text


def test_energy_and_rates_have_their_intervals_too() -> None:
    assert units.energy_estimate(around(20.0, 19.0, 1100.0)) == "20.0 J [19.0, 1,100]"
    assert units.operations_per_s(around(3.6e12, 1.1e9, 3.7e12)) == "3.60 TFLOP/s [0.00, 3.70]"
    assert units.operations_per_s(median_estimate([3.6e12])) == "3.60 TFLOP/s (1 sample: too few for an interval)"


@pytest.mark.parametrize(
    ("shares", "text"),
    [
        ([0.04, 0.012, 0.01], "1.2% and more in half of the cases (from 1.0% to 4.0%)"),
        ([0.029], "2.9% and more"),
        ([3.0, 0.5, 2.0], "over 100% in half of the cases (from 50.0%)"),
        ([3.0, 2.0], "more than 100% only"),
    ],
)
def test_the_least_differences_that_can_be_found(shares: list[float], text: str) -> None:
    assert units.least_differences(shares) == text


def test_the_live_display_shows_lanes_counts_and_the_rest() -> None:
    lane, now_s = Lane(device="cuda:0"), [0.0]
    progress = Progress(total=4, done=1, lanes=[lane], quiet=False, is_terminal=False, now_s=lambda: now_s[0])
    progress.stage(CASE, lane, Stage.MEASURE)
    other = msgspec.structs.replace(CASE, model="b[red]")
    progress.stage(other, lane, Stage.COMPILE)
    text = rendered(progress.render())
    assert "cuda:0: measuring tiny eval cpu eager bs4; preparing 1: b[red] eval cpu eager bs4 (compile)" in text
    now_s[0] = 10.0
    progress.done(record())
    text = rendered(progress.render())
    assert "2/4 cases: 1 measured, 0 skipped, 0 failed; about 20.0 s left" in text
    assert "measuring" not in text.splitlines()[1]


def test_without_a_terminal_each_case_is_a_line_and_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        with Progress(total=2, lanes=[], quiet=quiet, is_terminal=False) as progress:
            progress.done(record())
    assert capsys.readouterr().err == "[1/2] tiny eval cpu eager bs4: 100.50 ms [100.50, 100.50]\n"


def test_in_a_terminal_only_failures_stay(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(total=2, lanes=[], quiet=False, is_terminal=True) as progress:
        progress.done(record())
        progress.done(record(Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message="[bold]no")))
    shown = capsys.readouterr().err
    assert "FAILED (error in build): [bold]no" in shown
    assert "2/2 cases: 1 measured, 0 skipped, 1 failed" in shown


@pytest.mark.parametrize("variable", ["NO_COLOR", "FORCE_COLOR"])
def test_nothing_is_coloured(
    variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv(variable, "1")
    with Progress(total=2, lanes=[], quiet=False, is_terminal=True) as progress:
        progress.done(record(Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message="no")))
    shown = capsys.readouterr().err
    assert "\x1b[" in shown  # the display moves the cursor
    assert re.findall(r"\x1b\[[0-9;]*m", shown) == []
