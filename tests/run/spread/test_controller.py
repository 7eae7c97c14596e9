"""A spread run over fake nodes: whatever becomes of them, every case gets exactly one outcome."""

from __future__ import annotations

from collections import Counter
from zlib import crc32

import msgspec
import pytest
from fake_nodes import (
    BEGIN,
    PREPARE,
    FakeNode,
    FakeNodes,
    cases,
    controller,
    environment,
    outcome,
    random_deaths,
    run,
)

from examples import CASE
from torchzoo.case import Parallel
from torchzoo.record import Failed, FailureKind, Record, Skipped
from torchzoo.run.spread import protocol
from torchzoo.run.spread.controller import Controller
from torchzoo.run.spread.crew import ANY, SILENCE_S, Crew, NodesGone
from torchzoo.run.spread.leases import Leases
from torchzoo.run.spread.nodes import Said


def hosts(records: list[Record]) -> dict[str, str]:
    return {
        one.case.model: one.outcome.reason.removeprefix("run on ")
        for one in records
        if isinstance(one.outcome, Skipped)
    }


def two(**options: object) -> FakeNodes:
    return FakeNodes({"n1": FakeNode("a"), "n2": FakeNode("b")}, **options)  # type: ignore[arg-type]


def test_cases_are_spread_and_each_has_one_row() -> None:
    ran = run(two(), cases(20))
    assert Counter(one.case.model for one in ran.records) == Counter(f"m{n}" for n in range(20))
    assert Counter(hosts(ran.records).values()) == {"a": 10, "b": 10}
    assert ran.controller.refused == 0


def test_a_node_that_dies_gives_its_cases_back_and_they_run_elsewhere() -> None:
    nodes = two()
    nodes.at(15, lambda: nodes.die("n1"))
    ran = run(nodes, cases(8))
    assert len(hosts(ran.records)) == 8
    assert [model for model, host in hosts(ran.records).items() if host == "a"] == ["m0"]  # its row stays
    assert ran.said == ["a is lost: somebody pulled the plug"]


def test_a_node_that_falls_silent_is_lost_and_its_late_outcome_counts_once() -> None:
    nodes = FakeNodes({"n1": FakeNode("a"), "n2": FakeNode("b")}, says_lost=False)
    made = controller(nodes, cases(3), said := [])
    nodes.nodes["n1"].is_mute = True
    records = []
    finished = made.run()
    while nodes.now_s < SILENCE_S - 10:
        records.append(next(finished))
        if len(records) == 2:
            break
    assert set(hosts(records).values()) == {"b"}
    held = next(case for case in nodes.nodes["n1"].had if case.model not in hosts(records))
    nodes.at(SILENCE_S + 4, lambda: nodes._events.append(("n1", late(held))))
    records += finished
    assert said == [f"a is not used: it has said nothing for {SILENCE_S:g} s"]
    assert nodes.dismissed == ["n1"]
    assert sorted(hosts(records)) == ["m0", "m1", "m2"]
    assert len(records) == 3


def late(case: object) -> Said:
    return Said(answer=protocol.Finished(record=outcome(case, "late"), log=""))  # type: ignore[arg-type]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_late_outcome_is_taken_if_it_is_the_first_and_refused_if_not(*, is_first: bool) -> None:
    nodes = FakeNodes({"n1": FakeNode("a"), "n2": FakeNode("b"), "n3": FakeNode("c")})
    nodes.at(2, lambda: nodes.die("n1"))
    case = cases(1)[0].case
    nodes.at(5 if is_first else 100, lambda: nodes._events.append(("n1", late(case))))
    nodes.case_s = lambda one: 300.0 if one.model == "m2" else 10.0
    ran = run(nodes, cases(3))
    assert hosts(ran.records)["m0"] == ("late" if is_first else "b")
    assert len(ran.records) == 3
    assert ran.controller.refused == 1


def test_a_case_that_ends_every_node_it_runs_on_fails_after_the_second_and_the_others_go_on() -> None:
    nodes = FakeNodes({f"n{n}": FakeNode(f"h{n}") for n in range(4)}, kills=["m1"])
    ran = run(nodes, cases(12))
    assert Counter(one.case.model for one in ran.records) == Counter(f"m{n}" for n in range(12))
    (failed,) = [one for one in ran.records if isinstance(one.outcome, Failed)]
    assert failed.case.model == "m1"
    assert isinstance(failed.outcome, Failed)
    assert failed.outcome.kind is FailureKind.CRASHED
    assert "the node was lost while it ran the case, on h0 and then on h" in failed.outcome.message
    assert "somebody pulled the plug" in failed.outcome.message
    assert sum(node.is_dead for node in nodes.nodes.values()) == 2


def test_cases_that_stood_beside_one_that_ends_nodes_do_not_fail_with_it() -> None:
    nodes = FakeNodes({f"n{n}": FakeNode(f"h{n}", lanes=4) for n in range(4)}, kills=["m3"])
    ran = run(nodes, cases(40))
    assert [one.case.model for one in ran.records if isinstance(one.outcome, Failed)] == ["m3"]
    assert len(ran.records) == 40


def test_when_all_nodes_are_gone_their_rows_stay_and_the_line_says_how_to_go_on() -> None:
    nodes = two()
    nodes.at(25, lambda: nodes.die("n1"))
    nodes.at(35, lambda: nodes.die("n2"))
    made = controller(nodes, cases(20), [])
    records = []
    with pytest.raises(NodesGone, match=r"all nodes are gone, and 15 cases have no outcome: go on with --resume"):
        records.extend(made.run())
    assert len(records) == 5


def test_a_node_that_comes_back_joins_the_run() -> None:
    nodes = two()
    nodes.nodes["n1.1"] = FakeNode("a")
    nodes.at(15, lambda: nodes.die("n1"))
    nodes.at(40, lambda: nodes.join("n1.1"))
    ran = run(nodes, cases(30))
    assert len(nodes.nodes["n1.1"].had) > 5
    assert len(hosts(ran.records)) == 30


@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_each_of_a_thousand_cases_has_exactly_one_row(seed: int) -> None:
    nodes = FakeNodes(
        {f"n{n}": FakeNode(f"h{n}", lanes=1 + n % 4) for n in range(30)},
        case_s=lambda case: 3.0 + crc32(case.model.encode()) % 40,  # hash() differs between processes
        kills=[f"m{seed * 7}", "m999"],
        says_lost=seed % 2 == 0,
    )
    random_deaths(nodes, 20, within_s=300, seed=seed)
    plan = cases(1000)
    ran = run(nodes, plan)
    assert Counter(one.case for one in ran.records) == Counter(one.case for one in plan)
    failed = {one.case.model for one in ran.records if isinstance(one.outcome, Failed)}
    assert {f"m{seed * 7}", "m999"} <= failed
    ran_where_a_node_died = Counter(
        case.model for node in nodes.nodes.values() if node.is_dead for case in node.busy.values()
    )
    assert failed == {model for model, times in ran_where_a_node_died.items() if times == 2}


def test_the_repeats_of_a_case_stay_on_one_kind_of_machine_when_kinds_are_mixed() -> None:
    nodes = FakeNodes({"n1": FakeNode("a"), "n2": FakeNode("b", facts=environment(cpu="another")), "n3": FakeNode("c")})
    plan = tuple(
        msgspec.structs.replace(one, case=msgspec.structs.replace(one.case, repeat=repeat))
        for repeat in range(3)
        for one in cases(10)
    )
    crew = Crew(nodes, PREPARE, lambda _: None, now_s=lambda: nodes.now_s)
    crew.gather(lambda member: member.prepared is not None)
    crew.choose(ANY)
    crew.let_begin(BEGIN)
    records = list(Controller(crew, Leases(plan), keep_log=lambda *_: "", now_s=lambda: nodes.now_s).run())
    assert len(records) == 30
    kinds: dict[str, set[str]] = {}
    for one in records:
        assert isinstance(one.outcome, Skipped)
        kinds.setdefault(one.case.model, set()).add("b" if one.outcome.reason.endswith("b") else "a or c")
    assert all(len(kind) == 1 for kind in kinds.values())
    assert {next(iter(kind)) for kind in kinds.values()} == {"b", "a or c"}


def test_a_case_that_no_node_can_run_ends_the_run_with_its_name() -> None:
    several = msgspec.structs.replace(CASE, model="several", world=2, parallel=Parallel.DDP)
    plan = (*cases(2), msgspec.structs.replace(cases(1)[0], case=several))
    with pytest.raises(NodesGone, match="no node is left that may run several eval cpu eager ddp x2"):
        run(two(), plan)
