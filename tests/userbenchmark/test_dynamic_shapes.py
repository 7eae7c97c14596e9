"""The userbenchmark `dynamic_shapes`: its processes, and its report of made-up ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmark_runs import NASTY, case_of, module, report, run_of, table, turn

from examples import SPEC
from torchzoo.case import EAGER, Domain
from torchzoo.errors import UsageError
from torchzoo.measure.fresh_turns import SizeResult, SizeSweep
from torchzoo.record import Block, Failed, FailureKind, Recompilation, Skipped
from torchzoo.settings import Stage
from torchzoo.studies.userbenchmark import Choice
from torchzoo.zoo.catalog import find_models


def size(
    number: int, slowdown: float | None, *, graphs: int = 0, compile_s: float = 0.0, problem: str = ""
) -> SizeResult:
    blocks: tuple[Block, ...] = ()
    if slowdown is not None:
        turns = [("eager", 0.1), ("candidate", 0.1 * slowdown), ("candidate", 0.1 * slowdown), ("eager", 0.1)]
        blocks = tuple(Block(name, (time_s,)) for name, time_s in turns * 6)
    guards = (Recompilation(place="f.py:1 in f", reason=f"size {number} # of x"),) if graphs and number != 4 else ()
    return SizeResult(
        size=number, problem=problem, graphs=graphs, compile_s=compile_s, recompilations=guards, blocks=blocks
    )


STATIC = SizeSweep(sizes=(size(4, 1.0, graphs=1, compile_s=10.0), size(8, 1.0, graphs=1, compile_s=10.0)))
AUTOMATIC = SizeSweep(sizes=(size(4, 1.0, graphs=1, compile_s=10.0), size(8, 1.5, graphs=1, compile_s=15.0)))
MARKED = SizeSweep(sizes=(size(4, 1.25, graphs=1, compile_s=15.0), size(8, 1.25)), marked_dims=1)
UNBACKED = SizeSweep(sizes=(size(4, None, problem=f"no {NASTY}"), size(8, None, problem=f"no {NASTY}")), marked_dims=1)


def text_of(*changed: tuple[str, SizeSweep]) -> str:
    sweeps = {
        "static": STATIC,
        "automatic": AUTOMATIC,
        "mark_dynamic": MARKED,
        "mark_unbacked": UNBACKED,
        **dict(changed),
    }
    records = [turn(case_of("one"), f"batch, {policy}", 0, found) for policy, found in sweeps.items()]
    return report("dynamic_shapes", run_of(records))


def test_guards_that_failed_are_counted_without_their_numbers() -> None:
    three = SizeSweep(sizes=(size(4, 1.0, graphs=1), size(8, 1.0, graphs=1), size(5, 1.0, graphs=1)))
    text = text_of(("automatic", three))
    rows = table(text[text.index("## Why functions were compiled again") :], "how")
    assert rows == [["static", "size N", "1", "one eval by batch"], ["automatic", "size N", "2", "one eval by batch"]]


def test_a_size_that_the_model_can_not_take_is_no_fault_of_the_policy() -> None:
    small = SizeSweep(sizes=(size(4, 1.0, graphs=1, compile_s=1.0), size(1, None, problem="in eager too: no")))
    text = text_of(("automatic", small))
    assert table(text, "by")[1][2] == "1 of 1"
    assert table(text[text.index("## one eval") :], "how")[1][-1] == "not in eager"


CRASHED = Failed(kind=FailureKind.CRASHED, stage=Stage.COMPILE, message="the process ended with SIGKILL")


def test_a_case_whose_process_failed_is_one_that_did_not_work() -> None:
    records = [turn(case_of("one"), "batch, static", 0, STATIC), turn(case_of("two"), "batch, static", 0, CRASHED)]
    records.append(turn(case_of("three"), "batch, static", 0, Skipped(reason="its inputs do not change")))
    records += [
        turn(case_of("one"), "batch, automatic", 0, AUTOMATIC),
        turn(case_of("one"), "batch, automatic", 1, CRASHED),
    ]
    records.append(turn(case_of("one"), "batch, mark_dynamic", 0, CRASHED))
    text = report("dynamic_shapes", run_of(records))
    worked = {row[1]: row[2] for row in table(text, "by")}
    assert worked == {"static": "1 of 2", "automatic": "0 of 1", "mark_dynamic": "0 of 1"}
    assert table(text[text.index("## one eval") :], "how")[2] == ["mark_dynamic", "", "", "", "failed", "failed"]
    assert "## two eval" not in text
    lost = table(text[text.index("## Without a result") :], "why")
    assert "; ".join(row[0] for row in lost).count("the process ended with SIGKILL") == 1
    assert [row[1] for row in lost] == ["3", "1"]  # processes: as many as the head of the document says
    assert "4 skipped or failed (at the end)" in text


def test_a_size_that_did_not_work_in_one_of_two_processes_did_not_work() -> None:
    case, broken = case_of("one"), SizeSweep(sizes=(STATIC.sizes[0], size(8, None, problem="no")))
    records = [turn(case, "batch, static", 0, STATIC), turn(case, "batch, static", 1, broken)]
    (found,) = module("dynamic_shapes").swept(run_of(records))
    assert [(one.problem, bool(one.blocks)) for one in found.sizes] == [("", True), ("no", False)]
    assert not found.works


def test_the_plan_has_a_batch_that_can_be_halved_and_doubled(tmp_path: Path) -> None:
    for choice in (Choice(folder=tmp_path), Choice(patterns=("resnet50",), folder=tmp_path)):
        (batch,) = module("dynamic_shapes").plan(choice).axes.batch_sizes
        assert len({batch, 2 * batch, batch + 1, batch // 2, 1}) == 5


def test_several_processes_give_their_blocks_together() -> None:
    case = case_of("one")
    records = [turn(case, "batch, automatic", number, AUTOMATIC) for number in range(3)]
    (found,) = module("dynamic_shapes").swept(run_of(records))
    assert [len(one.blocks) for one in found.sizes] == [3 * 24, 3 * 24]
    assert found.graphs == 2


def test_language_models_have_lengths_too() -> None:
    turns = module("dynamic_shapes").turns
    assert [one.role for one in turns(case_of("tiny"), SPEC, 1)] == [
        "batch, static",
        "batch, automatic",
        "batch, mark_dynamic",
        "batch, mark_unbacked",
    ]
    found = turns(case_of("tiny"), msgspec.structs.replace(SPEC, domain=Domain.NLP), 1)
    assert {one.options["axis"] for one in found} == {"batch", "length"}
    assert not any(one.cache for one in found)  # what one compiles, no other one finds
    with pytest.raises(UsageError, match="leave out --backend"):
        turns(msgspec.structs.replace(case_of("tiny"), backend=EAGER), SPEC, 1)


def test_its_names_are_those_of_what_measures() -> None:
    from torchzoo.measure import size_sweep

    benchmark = module("dynamic_shapes")
    assert tuple(size_sweep.POLICIES) == benchmark.POLICIES
    assert callable(getattr(size_sweep, benchmark.FUNCTION.partition(":")[2]))
    assert all(name in find_models() for name in benchmark.DEFAULT_MODELS)
