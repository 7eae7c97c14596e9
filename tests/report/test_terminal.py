"""Tables in the terminal: nothing is cut at any width, and no name is read as markup."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from examples import INDUCTOR, compared, measured, record, results_of, run_of, variant_result
from kept_runs import against_eager, failed, incorrect, keep
from torchzoo.analysis.compare import compare_runs
from torchzoo.case import Mode
from torchzoo.cli import main
from torchzoo.record import Block, Breakdown, Compilation, GraphBreak, Kernel, Record, StepTime
from torchzoo.report import noise, one_case, run_comparison, terminal, terminal_report
from torchzoo.report.summary import summary

SHORT, LONG = "a", "[bold]a_model_with_a_very_long_name[/bold]_" + "x" * 60
MARKUP = "[x] [/] [red]m"
WIDTHS = (80, 160)


def words(lines: list[str]) -> str:
    """All characters of the lines but spaces, in their order: whatever is wrapped is the same."""
    return re.sub(r"\s", "", "".join(lines))


# --- the helper ---

ROWS = [
    (SHORT, "1.00 s [0.99, 1.01]", "", "8 B"),
    (MARKUP, "22.0 ms [15.1, 265] (at 75%)", "2.000x [1.999, 2.001]", "1,014 MiB"),
    ("ñandú_模型", "131 ms (one sample)", "0.9x", "12.0 MiB"),  # Chinese characters are two columns wide
]
HEADINGS = ("eager", "speedup", "memory")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_figures_stand_beside_their_case_or_below_it_and_line_up(width: int) -> None:
    rows = [*ROWS, (LONG, "3 s", "", "1 KiB")]
    lines = terminal.lines(terminal.CaseTable(HEADINGS, rows, right={"memory"}), width=width)
    assert max(map(len, lines)) <= width
    eager = next(line for line in lines if "eager" in line).index("eager")
    for first in ("1.00", "22.0", "131", "3 s"):
        (line,) = [line for line in lines if first in line]
        assert line.index(first) == eager
    ends = {len(line) for line in lines if line.endswith(("memory", "8 B", " MiB", "KiB"))}
    assert len(ends) == 1
    for row in rows:
        assert words([row[0]]) in words(lines)  # nothing of a name is cut
    assert "75%)" in words(lines)


def test_a_word_that_is_wider_than_its_column_is_wrapped_and_not_cut() -> None:
    rows = [(SHORT, "q" * 100, "8 B"), (LONG, "j" * 70, "1 B")]
    for width in (60, 80):
        lines = terminal.lines(terminal.table(("name", "text", "memory"), rows), width=width)
        assert max(map(len, lines)) <= width
        found = words(lines)
        assert [found.count(letter) for letter in "xqj"] == [60 + 1, 100, 70]  # an x is in "text"


def test_no_column_is_left_out_however_narrow_the_terminal_says_it_is() -> None:
    row = [letter * 4 for letter in "abcdefghij"]
    assert words(terminal.lines(terminal.CaseTable(row, [("name", *row)]), width=10)).count("j") == 8


def test_any_width_wraps_nothing() -> None:
    rows = [("a", "word " * 300), (LONG, "b")]
    lines = terminal.lines(terminal.table(("", ""), rows, has_headings=False), width=terminal.ANY_WIDTH)
    assert len(lines) == 2
    assert lines[0].index("word") == lines[1].index(" b") + 1


# --- the tables of reports ---


def profiled() -> Any:
    steps = (StepTime(0.25, 0.15, 0.05),) * 6
    kernels = (Kernel("gemm", 12, 0.9), Kernel(MARKUP, 60_000, 0.03))
    variants = {
        "eager": variant_result(breakdown=Breakdown(steps=steps, kernels=kernels)),
        "candidate": variant_result(),
    }
    return measured(blocks=compared().blocks, variants=variants)


def many() -> list[Record]:
    counts = Compilation(graphs=12, compile_s=9.0, breaks=(GraphBreak(reason=MARKUP, place="a.py:1 in f"),))
    variants = {"eager": variant_result(), "candidate": variant_result(compilation=counts)}
    slow = tuple(Block(name, (12.0,)) for name in ("eager", "candidate", "candidate", "eager"))
    return [
        record(model=SHORT),
        record(against_eager(2.0, variants=variants), model=LONG, backend=INDUCTOR),
        record(against_eager(123.0, blocks=slow), model=MARKUP, backend=INDUCTOR, mode=Mode.TRAIN),
        record(incorrect(3.0), model="wrong", backend=INDUCTOR),
        record(failed(MARKUP), model="fails"),
    ]


def renderables() -> dict[str, Any]:
    records = many()
    slower = [record(measured(blocks=(Block("eager", (0.4, 0.41)),) * 10), model=SHORT), *records[1:]]
    comparison = compare_runs(run_of(records), run_of(slower, path=MARKUP))
    return {
        "cases": terminal_report.terminal_table(results_of(records)),
        "one case": terminal.render(one_case.brief(record(profiled(), model=LONG, backend=INDUCTOR, device="cuda"))),
        "summary": summary([run_of(records)], results_of(records)),
        "comparison": terminal.render(run_comparison.document(comparison)),
        "noise": terminal.render(noise.document(run_of(records))),
    }


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", list(renderables()))
def test_every_table_stays_within_the_width_and_reads_no_markup(
    name: str, width: int, snapshot: SnapshotAssertion
) -> None:
    lines = terminal.lines(renderables()[name], width=width)
    assert max(map(len, lines)) <= width
    if name != "summary":
        assert words([LONG]) in words(lines) or words([MARKUP]) in words(lines)
    assert "\x1b" not in "".join(lines)
    assert "\n".join(lines) == snapshot


# --- pipes and files ---


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return keep(tmp_path / "run", many())


def test_a_pipe_gets_80_columns_without_escape_codes(kept: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "FORCE_COLOR")}
    for command in (["report", str(kept)], ["report", str(kept), "--noise"], ["compare", str(kept), str(kept)]):
        done = subprocess.run(
            [sys.executable, "-m", "torchzoo", *command], check=False, capture_output=True, text=True, env=environment
        )
        assert done.returncode == 0, done.stderr
        assert "\x1b" not in done.stdout
        lines = done.stdout.splitlines()
        assert max(len(line) for line in lines if ": torchzoo " not in line) <= 80
        assert words([LONG]) in words(lines) or command[0] == "compare"  # equal runs: no case is named


def test_a_file_holds_what_the_terminal_shows(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["report", str(kept)]) == 0
    shown = capsys.readouterr().out
    assert main(["report", str(kept), "-o", str(kept / "report.txt")]) == 0
    assert (kept / "report.txt").read_text() == shown
    assert any(80 < len(line) <= 120 for line in shown.splitlines() if ": torchzoo " not in line)
