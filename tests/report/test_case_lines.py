"""Reports for the terminal: what fits, marks that are explained once, and the order of cases."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from examples import INDUCTOR, ROOT, measured, record, results_of, run_of
from kept_runs import against_eager, everything, failed, incorrect, keep
from torchzoo.analysis.cases import ReportData, read_report_data
from torchzoo.case import Backend, Mode
from torchzoo.cli import main
from torchzoo.record import Block, CheckStatus, Record, StopReason
from torchzoo.report import terminal, terminal_report
from torchzoo.report.case_lines import without_middle
from torchzoo.report.remarks import CHECK_WORDS, Mark, marks_of, remarks_of
from torchzoo.report.summary import summary
from torchzoo.report.terminal_report import SortKey, View

SCREEN = (24, 80)  # lines and columns


def test_a_summary_of_all_domains_groups_and_failures_fits_a_screen(tmp_path: Path) -> None:
    records = [
        record(against_eager(1.5), backend=Backend("inductor", f"mode{n}"), mode=mode)
        for n in range(9)
        for mode in Mode
    ]
    records += [record(failed(f"out {n}"), model=f"fails_{n}_{'x' * 40}") for n in range(30)]
    data = read_report_data([keep(tmp_path / "run", records)])
    lines = terminal.lines(summary(data.runs, data.cases), width=80)
    assert len(lines) <= SCREEN[0] - 2
    assert any("and 3 more groups: torchzoo report has them all" in line for line in lines)
    full = read_report_data([everything(tmp_path / "full")])
    assert len(terminal.lines(summary(full.runs, full.cases), width=80)) <= SCREEN[0] - 2


# --- what a line says ---


def lines_of(records: list[Record], width: int = 80) -> list[str]:
    return terminal.lines(terminal_report.terminal_table(results_of(records)), width=width)


def test_a_name_that_is_too_long_keeps_its_ends_and_is_whole_in_the_legend() -> None:
    name = "a" * 50 + "the_end"
    lines = lines_of([record(model=name), record(model="b", mode=Mode.TRAIN)])
    (row,) = [line for line in lines if line.startswith("aaa") and " is " not in line and "ms" in line]
    assert row.split()[0].endswith("the_end")
    assert name in "".join(line.strip() for line in lines)
    assert without_middle("abcdefghij", 8) == "abc..hij"


def test_each_remark_has_a_mark(tmp_path: Path) -> None:
    """Whatever a record can tell: a remark in words means a mark, and the other way round."""
    runs = [everything(tmp_path / "run"), ROOT / "docs/results/2026-11-21-h200-zoo-inductor"]
    for result in (result for run in runs for result in read_report_data([run]).cases):
        marks = set(marks_of(result)) - {Mark.FEW_SAMPLES, Mark.SOME_FAILED}
        assert bool(marks) == bool(remarks_of(result.measured)), result.case.label()
    letters = [mark.letter for mark in Mark]
    assert len(set(letters)) == len(letters)
    assert set(CHECK_WORDS) == set(CheckStatus)


@pytest.mark.parametrize(
    ("outcome", "letters"),
    [
        (measured(), ""),
        (measured(stop_reason=StopReason.TIME_LIMIT), "l"),
        (measured(stop_reason=StopReason.BUDGET), "m"),
        (measured(stop_reason=StopReason.STABLY_NOISY, host_syncs="NMS"), "ns"),
        (measured(blocks=(Block("eager", (0.1,)),) * 2), "f"),
        (incorrect(2.0), "Wb"),
    ],
)
def test_marks_stand_for_what_a_reader_must_know(outcome: object, letters: str) -> None:
    (result,) = results_of([record(outcome)])
    assert "".join(mark.letter for mark in marks_of(result)) == letters


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"threads": 9}, "its processes differ in their CPU threads: 2 and 9"),
        ({"device_name": "another"}, "its processes differ in their device: a CPU and another"),
        ({"precision_flags": {"autocast_dtype": "off"}}, "its processes differ in the settings of precision: "),
    ],
)
def test_processes_that_did_not_do_the_same_are_told(changes: dict[str, Any], words: str) -> None:
    same = [record(repeat=repeat) for repeat in range(3)]
    (result,) = results_of([*same, record(measured(**changes), repeat=3)])
    assert marks_of(result) == [Mark.DIFFERENT]
    assert len(remarks_of(result.measured)) == 1
    assert remarks_of(result.measured)[0].startswith(words)


# --- order ---


def several() -> list[Record]:
    speedups = {"fast": 4.0, "slow": 0.5, "same": 1.0}
    records = [record(against_eager(x), backend=INDUCTOR, model=name) for name, x in speedups.items()]
    return [*records, record(incorrect(50.0), backend=INDUCTOR, model="wrong"), record(failed(), model="fails")]


def names(lines: list[str]) -> list[str]:
    """The models of the rows, in their order, up to the legend."""
    known = ("slow", "same", "fast", "wrong", "fails")
    return [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in known]


@pytest.mark.parametrize(
    ("options", "models"),
    [
        ([], ["fast", "slow", "same", "wrong", "fails"]),
        (["--sort", "speedup"], ["slow", "same", "fast", "wrong", "fails"]),
        (["--sort", "time"], ["slow", "same", "fast", "wrong", "fails"]),
        (["--sort", "model"], ["fails", "fast", "same", "slow", "wrong"]),
        (["--worst", "2"], ["slow", "same"]),
        (["--best", "2"], ["fast", "same"]),
        (["--best", "1", "--worst", "1"], ["slow", "fast"]),
        (["--worst", "9"], ["slow", "same", "fast"]),  # what did not pass is no best and no worst
    ],
)
def test_the_worst_and_the_best_come_first_where_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], models: list[str]
) -> None:
    path = keep(tmp_path / "run", several())
    assert main(["report", str(path), *options]) == 0
    lines = capsys.readouterr().out.splitlines()
    end = next(n for n, line in enumerate(lines) if line.startswith(("time: ", "±: ", "memory: ")))
    assert names(lines[:end]) == models
    assert any("5 cases: 4 measured (1 of them incorrect)" in line for line in lines)  # the summary is of all


def test_without_a_speedup_the_worst_takes_longest() -> None:
    records = [record(measured(blocks=(Block("eager", (t,)),) * 8), model=name) for name, t in (("a", 0.1), ("b", 0.9))]
    run = run_of(records)
    data = ReportData(runs=(run,), cases=tuple(results_of(records)), not_run=0, superseded=0)
    file = io.StringIO()
    terminal_report.write(data, file, View(worst=1, sort=SortKey.SPEEDUP))
    assert "2 cases" in file.getvalue()  # none has a speedup: all are shown
    file = io.StringIO()
    terminal_report.write(data, file, View(worst=1))
    title, _, row, *_ = file.getvalue().splitlines()
    assert title.startswith("the worst 1 of 2 cases that passed, by time: ")
    assert row.split()[0] == "b"


def test_an_order_goes_with_the_tables_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = keep(tmp_path / "run", several())
    assert main(["report", str(path), "--format", "csv", "--worst", "3"]) == 2
    assert "go with --format table" in capsys.readouterr().err


def test_several_runs_are_summed_up_together() -> None:
    records = several()
    runs = [run_of(records, path=f"run{n}") for n in range(5)]
    lines = terminal.lines(summary(runs, results_of(records)), width=80)
    assert sum(line.startswith("run") for line in lines) == 3
    assert "and 2 more runs" in lines


# --- colours ---


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("no_color", "has_colors"), [(None, True), ("1", False)])
def test_a_terminal_has_colours_unless_it_is_asked_to_have_none(
    monkeypatch: pytest.MonkeyPatch, no_color: str | None, *, has_colors: bool
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", no_color)
    file = Terminal()
    terminal.show(terminal_report.terminal_table(results_of(several())), file=file)
    assert ("\x1b[31m" in file.getvalue()) is has_colors  # red: what failed, and figures that must be doubted
    assert "FAILED: oom_device in compile" in file.getvalue()
