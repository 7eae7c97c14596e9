"""The line at the end of a run on the cases whose intervals are wide, and the command in it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from examples import in_turns, measured, record, run_of
from torchzoo.analysis.cases import case_results
from torchzoo.record import Block, Measured, Record, Skipped
from torchzoo.report.summary import more_time_for


def alternating(half_width: float, blocks: int = 16) -> Measured:
    """Blocks of 0.1 s, whose interval reaches so far on both sides."""
    return measured(
        blocks=tuple(Block("eager", (0.1 * (1 + half_width * (-1) ** number),)) for number in range(blocks))
    )


def line_on(records: Iterable[Record]) -> str:
    run = run_of(records)
    return "".join(more_time_for(run, case_results(run)))


NARROW = record(in_turns(0.2, 0.1), model="narrow")


def test_the_models_with_wide_intervals_are_in_the_command_and_no_others() -> None:
    wide = [record(alternating(0.02), model="wide"), record(alternating(0.03), model="wider")]  # 1.6 s and 4 or 9 times
    line = line_on([NARROW, *wide, record(Skipped(reason="no"), model="skipped")])
    words = shlex.split(line.partition(": ")[2])
    assert words[2:4] == ["wide", "wider"]
    limit_s = float(words[words.index("--time-limit") + 1])
    assert 9 * 1.6 < limit_s < 2 * 9 * 1.6
    assert line.startswith("2 of 3 cases ")
    assert f"about {round(13 * 1.6)} s" in line


def test_what_is_out_of_reach_is_named_and_not_in_the_command() -> None:
    far = record(alternating(0.5), model="far")
    line = line_on([NARROW, far, record(alternating(0.02), model="wide")])
    assert far.case.label() in line
    assert shlex.split(line.rpartition(": ")[2])[2:4] == ["wide", "-t"]
    only_far = line_on([NARROW, far])
    assert far.case.label() in only_far
    assert "--time-limit" not in only_far


def test_too_few_values_for_an_interval_need_more_time() -> None:
    assert "--time-limit 1" in line_on([NARROW, record(alternating(0.0, blocks=3), model="few")])


def test_one_case_and_narrow_intervals_have_no_line() -> None:
    assert line_on([record(alternating(0.02))]) == ""
    assert line_on([NARROW, record(in_turns(0.2, 0.1), model="other")]) == ""


def test_all_processes_of_a_case_count_for_its_time() -> None:
    line = line_on([NARROW, *(record(alternating(0.02), model="wide", repeat=repeat) for repeat in range(2))])
    assert f"about {round(2 * 4 * 1.6)} s" in line
    assert "--repeats 2" in line
