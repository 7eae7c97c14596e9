"""What people read: units, tables, notes; and that names and messages do no harm."""

from __future__ import annotations

import io
import math
import re
from typing import Any

import msgspec
import pytest

from examples import (
    BREAK,
    CASE,
    INDUCTOR,
    compared,
    manifest,
    measured,
    record,
    rendered,
    results_of,
    run_of,
    variant_result,
)
from torchzoo.analysis.cases import ReportData, case_results
from torchzoo.analysis.figures import case_figures
from torchzoo.case import CompileScope, Domain, MemoryFormat, Mode, Parallel, Precision
from torchzoo.commands.report import FORMATS
from torchzoo.record import Block, Compilation, Failed, FailureKind, Record, Skipped, StopReason
from torchzoo.report import one_case, terminal_report, units
from torchzoo.report.progress import Progress
from torchzoo.report.remarks import remarks
from torchzoo.report.summary import counts, summary, where_time_went
from torchzoo.run.lanes import Lane
from torchzoo.settings import Stage
from torchzoo.stats import Estimate, median_estimate, quotient
from torchzoo.store import Run

LATER = "2026-11-20T10:00:19.000+00:00"


@pytest.mark.parametrize(
    ("value_s", "text"), [(2.345, "2.35 s"), (0.0456, "45.6 ms"), (0.000789, "789 µs"), (120.0, "120 s")]
)
def test_seconds(value_s: float, text: str) -> None:
    assert units.seconds(value_s) == text


@pytest.mark.parametrize(("value", "text"), [(3 * 2**29, "1.50 GiB"), (12 * 2**20, "12.0 MiB"), (None, "-")])
def test_size(value: int | None, text: str) -> None:
    assert units.size(value) == text


def test_an_interval_of_few_samples_says_so() -> None:
    assert units.latency(median_estimate([1.0])) == "1.00 s (1 sample: too few for an interval)"
    two = median_estimate([1.0, 1.1])
    assert units.latency(two) == "1.05 s (2 samples: too few for an interval)"  # not one "at 50%"
    assert units.latency(two, has_confidence=False) == "1.05 s (2 samples)"
    assert units.speedup(quotient(two, two)) == "1.00x (2 samples: too few for an interval)"
    assert units.latency(median_estimate([1.0, 1.1, 1.3])) == "1.10 s [1.00, 1.30] (at 75%)"
    assert units.speedup(median_estimate([2.0] * 8)) == "2.000x [2.000, 2.000]"


@pytest.mark.parametrize(
    ("active_s", "issued_s", "cell"),
    [(0.02, 0.07, "70.0 ms (70%)"), (0.02, None, None), (None, 0.1, None)],  # None: older records; the CPU
)
def test_figures_say_when_a_step_returns_to_the_host(
    active_s: float | None, issued_s: float | None, cell: str | None
) -> None:
    blocks = tuple(Block("eager", (0.1, 0.1), issued_s) for _ in range(10))
    outcome = measured(blocks=blocks, variants={"eager": variant_result(device_active_s=active_s)})
    figures = case_figures([record(outcome)])
    lines = dict(one_case.figure_lines(figures, [figures.eager]))
    assert lines.get("step returns after") == (None if cell is None else [cell])


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


def test_what_a_reader_must_know_is_said() -> None:
    candidate = variant_result(
        result_is_finite=False,
        compilation=Compilation(graphs=2, breaks=(BREAK,) * 3, cudagraph_skips=1, traced=True),
    )
    outcome = measured(
        stop_reason=StopReason.STABLY_NOISY,
        host_syncs="NMS",
        variants={"eager": variant_result(), "candidate": candidate},
        blocks=compared().blocks,
        precision_flags={
            "quantized_by": "torchao",
            "quantized_layers": "1 of 9 Linear layers",
            "base_dtype": "bfloat16",
        },
    )
    shown = "; ".join(remarks(outcome))
    quantized = "quantized by torchao: 1 of 9 Linear layers; all else in bfloat16"
    traced = "its times of compiling include writing the structured trace"
    for words in ("stably noisy", "NMS", "not finite", "skipped 1", "3 graph breaks", quantized, traced):
        assert words in shown


def mixed() -> list[Record]:
    nasty = 'x | y <script>alert("1")</script>\n# [bold]heading'
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=nasty)
    return [
        record(),
        record(compared(), backend=INDUCTOR),
        record(Skipped(reason="no [/bold] way"), model="skips"),
        record(failed, model="a|b<i>"),
    ]


def test_the_terminal_table_shows_all_and_reads_no_markup_in_foreign_text() -> None:
    text = rendered(terminal_report.terminal_table(results_of(mixed())))
    assert "no [/bold] way" in text
    assert "[bold]heading" in text
    lines = text.splitlines()
    assert lines[0] == "4 cases: eval, cpu, batch 4"
    assert [line.split()[0] for line in lines[2:6]] == ["tiny", "tiny", "skips", "a|b<i>"]


def markdown_of(*runs: Run) -> str:
    file = io.StringIO()
    cases = tuple(result for run in runs for result in case_results(run))
    FORMATS["md"].write(ReportData(runs=runs, cases=cases, not_run=0, superseded=0), file)
    return file.getvalue()


def test_no_two_cases_look_alike_in_markdown() -> None:
    axes: list[dict[str, Any]] = [
        {},
        {"memory_format": MemoryFormat.CHANNELS_LAST},
        {"compile_scope": CompileScope.STEP},
        {"world": 2, "parallel": Parallel.DDP},
        {"world": 4, "parallel": Parallel.DDP},
        {"precision": Precision.BF16},
    ]
    text = markdown_of(run_of([record(compared(), backend=INDUCTOR, **some) for some in axes]))
    rows = {line for line in text.partition("## ")[0].splitlines() if line.startswith("| tiny |")}
    assert len(rows) == len(axes)
    assert any("| inductor ddp x2 |" in row for row in rows)


def test_markdown_is_one_table_that_foreign_text_can_not_break() -> None:
    text = markdown_of(run_of(mixed()))
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|"))
    table = lines[start : lines.index("", start)]
    assert len(table) == 2 + 4
    assert {line.replace("\\|", "").count("|") for line in table} == {len(table[0].split(" | ")) + 1}
    assert "<script>" not in text
    assert "torch 2.15.0" in text


def test_markdown_of_several_runs_names_every_command_and_date() -> None:
    later = run_of([], command=("run.py", "b"), created_at="2026-02-01T00:00:00+00:00")
    text = markdown_of(run_of(mixed()), later)
    commands = [line for line in text.splitlines() if line.startswith("- command: ")]
    assert commands == [f"- command: `{' '.join(manifest().command)}`", "- command: `run.py b`"]
    assert f"- date: {manifest().created_at[:10]}, 2026-02-01\n" in text


def test_the_summary_counts_averages_and_says_where_the_time_went() -> None:
    faster = msgspec.structs.replace(
        record(compared(), backend=INDUCTOR, model="b", mode=Mode.TRAIN), lane="cpu", finished_at=LATER
    )
    stages = measured(blocks=compared().blocks, variants=compared().variants, stage_seconds={"measure": 5.0})
    second = msgspec.structs.replace(record(stages, backend=INDUCTOR, model="tiny"), lane="cpu")
    failed = record(Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.WARM_UP, message="out"), model="c")
    records = [record(), faster, second, failed, record(Skipped(reason="no"), model="d")]
    waiting = tuple(record(model=name).case for name in "ef")
    cases = (*(each.case for each in records), *waiting)
    run = run_of(records, cases=cases, domains={"tiny": Domain.NLP, "b": Domain.OTHER})
    assert counts(run) == (
        "7 cases: 3 measured, 1 skipped with a reason, 1 failed, 2 not run; 75% of those that could run passed"
    )
    text = rendered(summary([run], case_results(run)))
    assert "speedup of inductor on cpu over eager, geometric mean [95% interval] (cases)" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "2.00x (1 model: too few for an interval) (1)" in lines["nlp"]
    assert lines["all"].count("(1)") == 2  # one in training, one in evaluation
    assert "failed, oom_device in warm_up (1): c eval cpu eager bs4" in text
    assert where_time_went(run)[:2] == [
        "time: 19.0 s for 2 cases that ran, 9.50 s a case",
        "measuring windows: cpu 5.00 s, 26%",
    ]


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
