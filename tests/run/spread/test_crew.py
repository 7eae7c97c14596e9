"""Which nodes take part: their kinds, their versions, and what the user is told."""

from __future__ import annotations

import msgspec
import pytest
from fake_nodes import BEGIN, PREPARE, FakeNode, FakeNodes, environment

from torchzoo.errors import UsageError
from torchzoo.machine.differences import MachineKind, machine_kind
from torchzoo.record import Environment, Gpu
from torchzoo.run.spread.crew import ANY, Crew, choose_kinds
from torchzoo.run.spread.executor import Engine, parse_executor, parse_sbatch
from torchzoo.run.spread.nodes import EngineError

H200 = environment(gpus=(Gpu(name="NVIDIA H200", memory_bytes=150 * 2**30, driver="580"),))
A100 = environment(gpus=(Gpu(name="NVIDIA A100", memory_bytes=80 * 2**30, driver="580"),))


def kind(facts: Environment) -> MachineKind:
    return machine_kind(facts)


def gathered(nodes: FakeNodes) -> tuple[Crew, list[str]]:
    said: list[str] = []
    crew = Crew(nodes, PREPARE, said.append, now_s=lambda: nodes.now_s)
    crew.gather(lambda member: member.prepared is not None)
    return crew, said


def mixed() -> FakeNodes:
    facts = {"a": H200, "b": H200, "c": A100}
    return FakeNodes({name: FakeNode(name, facts=one) for name, one in facts.items()})


def test_nodes_that_differ_are_refused_with_a_line_that_names_the_kinds_and_the_option() -> None:
    crew, _ = gathered(mixed())
    with pytest.raises(UsageError) as error:
        crew.choose(None)
    assert str(error.value) == (
        "the nodes differ (a, b: device 1 x NVIDIA H200 (150.0 GiB); c: device 1 x NVIDIA A100 (80.0 GiB)): choose one "
        "kind with --host-kind, by a word of it, or mix them with --host-kind any"
    )


def test_one_kind_is_chosen_by_a_word_and_the_other_nodes_are_let_go() -> None:
    nodes = mixed()
    crew, said = gathered(nodes)
    crew.choose("h200")
    assert [member.host for member in crew.members.values()] == ["a", "b"]
    assert nodes.dismissed == ["c"]
    assert said == ["c is not used: it is of another kind"]


def test_all_kinds_take_part_when_that_is_asked_for() -> None:
    crew, _ = gathered(mixed())
    crew.choose(ANY)
    assert len(crew.members) == 3


def test_a_kind_that_is_not_there_is_an_error() -> None:
    with pytest.raises(UsageError, match="--host-kind B200: no such kind among a: "):
        choose_kinds({kind(H200): ["a"], kind(A100): ["b"]}, "B200", ())


def test_a_run_goes_on_only_on_the_kinds_that_it_began_on() -> None:
    there = {kind(H200): ["a"], kind(A100): ["b"]}
    assert choose_kinds(there, None, [kind(A100)]) == (kind(A100),)
    with pytest.raises(UsageError, match=r"there torch 2\.14\.0, here torch 2\.15\.0"):
        choose_kinds({kind(H200): ["a"]}, None, [kind(msgspec.structs.replace(H200, torch="2.14.0"))])


def test_a_node_of_another_kind_that_joins_later_is_let_go() -> None:
    nodes = FakeNodes({"n1": FakeNode("a", facts=H200)})
    crew, said = gathered(nodes)
    crew.choose(None)
    crew.let_begin(BEGIN)
    crew.gather(lambda member: member.begun is not None)
    nodes.nodes["n2"] = FakeNode("b", facts=A100)
    nodes.join("n2")
    for _ in range(4):
        crew.wait(1.0)
    assert nodes.dismissed == ["n2"]
    assert said == ["b is not used: it is of another kind: device 1 x NVIDIA A100 (80.0 GiB)"]


def test_a_node_with_another_torchzoo_is_not_used() -> None:
    nodes = FakeNodes({"n1": FakeNode("a", facts=environment(torchzoo="0.0.1"))})
    with pytest.raises(EngineError, match="no node is ready"):
        gathered(nodes)
    assert nodes.dismissed == ["n1"]


def test_a_node_that_is_lost_before_it_joins_is_named_with_the_reason() -> None:
    nodes = FakeNodes({"n1": FakeNode("a")})
    crew, said = gathered(nodes)
    nodes.nodes["n2"] = FakeNode("b")
    nodes.die("n2", "its CPUs are in use by something else")
    crew.wait(1.0)
    assert said == ["a node is not used: its CPUs are in use by something else"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("local", (Engine.LOCAL, None)),
        ("ray", (Engine.RAY, None)),
        ("ray:10.0.0.1:6379", (Engine.RAY, "10.0.0.1:6379")),
        ("slurm", (Engine.SLURM, None)),
    ],
)
def test_executors(text: str, found: tuple[Engine, str | None]) -> None:
    assert parse_executor(text) == found


@pytest.mark.parametrize("text", ["rey", "ray:", "slurm:x", "local:1"])
def test_an_executor_that_means_nothing_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="executor"):
        parse_executor(text)


def test_options_of_sbatch() -> None:
    assert parse_sbatch(["account=lab", "--gres=gpu:8", "contiguous"]) == (
        ("account", "lab"),
        ("gres", "gpu:8"),
        ("contiguous", ""),
    )
    with pytest.raises(UsageError, match="write KEY=VALUE"):
        parse_sbatch(["=x"])
