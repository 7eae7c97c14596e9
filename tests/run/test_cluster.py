"""A run over fake hosts: whatever becomes of them, every case gets exactly one record."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

import examples
from examples import CASE, SPEC
from torchzoo import __version__
from torchzoo.case import Case, Parallel
from torchzoo.commands.executor_options import Engine, parse_executor, parse_sbatch, without_executor
from torchzoo.errors import UsageError
from torchzoo.machine.differences import machine_kind
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Environment, Failed, FailureKind, Gpu, Record, Skipped
from torchzoo.run.cluster import ANY, Cluster, ClusterSession, choose_kinds
from torchzoo.run.host_process import Entered, Finished, Given, HostReady, HostStart
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import Plan, PlannedCase
from torchzoo.run.ray_hosts import ClusterError, Event, Lost
from torchzoo.settings import Settings, Stage
from torchzoo.store import RunStore, read_run

START = HostStart(settings=Settings())


def facts(**changes: Any) -> Environment:
    return examples.environment(**{"torchzoo": __version__, **changes})


H200 = facts(gpus=(Gpu(name="NVIDIA H200", memory_bytes=150 * 2**30, driver="580"),))
A100 = facts(gpus=(Gpu(name="NVIDIA A100", memory_bytes=80 * 2**30, driver="580"),))


@dataclass
class FakeHost:
    """A host of which each lane runs one case at a time, in one step of the fake time."""

    lanes: int = 1
    facts: Environment = field(default_factory=facts)
    is_there: bool = True  # whether it is ready from the beginning
    queue: list[Case] = field(default_factory=list)
    running: list[Case] = field(default_factory=list)


class FakeHosts:
    """Hosts in fake time: each `wait` is a step.

    Args:
        hosts: by name.
        kills: models whose cases end each host on which they begin.
        on_step: called with the number of each step.
    """

    def __init__(
        self, hosts: dict[str, FakeHost], kills: Iterable[str] = (), on_step: Callable[[int], None] = lambda _: None
    ) -> None:
        self.hosts = hosts
        self.kills = set(kills)
        self.on_step = on_step
        self.steps = 0
        self.had: dict[str, list[Case]] = {name: [] for name in hosts}
        self.dismissed: list[str] = []
        self.shares_s: set[float | None] = set()
        self.events: list[tuple[str, Event]] = []

    def begin(self, start: HostStart) -> None:
        for name, host in self.hosts.items():
            if host.is_there:
                self.join(name)

    def join(self, name: str) -> None:
        host = self.hosts[name]
        host.queue.clear()
        host.running.clear()
        machine = MachineInfo(devices={"cpu": 1}, dynamo_backends=(), environment=host.facts)
        lanes = tuple(Lane(device="cpu", cores=(number,), host=name) for number in range(host.lanes))
        ready = HostReady(
            machine=machine,
            missing={},
            lanes=lanes,
            most_alive=2 * host.lanes,
            settings=Settings(),
            undisturbed_loop_s=0.001,
        )
        host.is_there = True
        self.events.append((name, ready))

    def die(self, name: str, why: str = "somebody pulled the plug") -> None:
        if self.hosts[name].is_there:
            self.hosts[name].is_there = False
            self.events.append((name, Lost(why=why)))

    def give(self, name: str, given: Given) -> None:
        self.had[name] += given.cases
        self.hosts[name].queue += given.cases
        self.shares_s.add(given.share_s)

    def dismiss(self, name: str) -> None:
        self.hosts[name].is_there = False
        self.dismissed.append(name)

    def expected(self) -> bool:
        return any(isinstance(event, HostReady) for _, event in self.events)

    def wait(self, _: float) -> list[tuple[str, Event]]:
        self.steps += 1
        self.on_step(self.steps)
        for name, host in self.hosts.items():
            if host.is_there:
                self._step(name, host)
        events, self.events = self.events, []
        return events

    def _step(self, name: str, host: FakeHost) -> None:
        for case in host.running:
            outcome = Skipped(reason=f"ran on {name}")
            now = "2026-11-20T10:00:00.000+00:00"
            record = Record(case=case, outcome=outcome, started_at=now, finished_at=now, lane=f"{name}/cpu")
            self.events.append((name, Finished(record=record)))
        host.running, host.queue = host.queue[: host.lanes], host.queue[host.lanes :]
        for case in host.running:
            self.events.append((name, Entered(case=case, lane=Lane(device="cpu", host=name), stage=Stage.BUILD)))
        if any(case.model in self.kills for case in host.running):
            self.die(name)


def cases(count: int, **changes: Any) -> list[Case]:
    return [msgspec.structs.replace(CASE, model=f"m{number}", **changes) for number in range(count)]


def planned(some: Iterable[Case]) -> Plan:
    return tuple(PlannedCase(case=case, spec=SPEC) for case in some)


def gathered(hosts: FakeHosts, said: list[str] | None = None) -> Cluster:
    cluster = Cluster(hosts, (said if said is not None else []).append, now_s=lambda: 100.0 * hosts.steps)  # type: ignore[arg-type]
    cluster.gather(START)
    return cluster


def run(
    hosts: FakeHosts, some: Sequence[Case], folder: Path, *, kind: str | None = None, said: list[str] | None = None
) -> list[Record]:
    """The records of a run over the hosts, as its folder has them."""
    cluster = gathered(hosts, said)
    cluster.choose(kind)
    with RunStore(folder) as store:
        settings = Settings(share_s=1.5)
        manifest = examples.manifest(cases=tuple(some), settings=settings)
        session = ClusterSession(manifest, planned(some), (), cluster, store)
        store.begin(session.manifest)
        told = [record for _, record in session.run(lambda *_: None)]
    lines = (folder / "records.jsonl").read_bytes().splitlines()
    kept = read_run(folder)
    assert len(lines) == len(told) == len(kept.records) == len(some)  # none is lost, none is doubled
    assert {host.name for host in kept.manifest.hosts} >= {record.lane.split("/")[0] for record in told if record.lane}
    return told


def where(records: Iterable[Record]) -> dict[str, str]:
    """The host of each model that ran."""
    return {r.case.model: str(r.lane).split("/")[0] for r in records if isinstance(r.outcome, Skipped)}


def failed(records: Iterable[Record]) -> dict[str, Failed]:
    return {r.case.model: r.outcome for r in records if isinstance(r.outcome, Failed)}


def test_hosts_share_the_cases(tmp_path: Path) -> None:
    hosts = FakeHosts({"a": FakeHost(), "b": FakeHost(), "c": FakeHost(lanes=2)})
    counts = Counter(where(run(hosts, cases(20), tmp_path)).values())
    assert all(abs(counts[name] - 5 * host.lanes) <= 1 for name, host in hosts.hosts.items())
    assert hosts.shares_s == {1.5}


def test_the_cases_of_a_lost_host_run_elsewhere(tmp_path: Path) -> None:
    hosts = FakeHosts({"a": FakeHost(), "b": FakeHost()})
    hosts.on_step = lambda step: hosts.die("a") if step == 5 else None
    found = where(run(hosts, cases(12), tmp_path, said=(said := [])))
    assert Counter(found.values())["a"] in (2, 3)
    assert said == ["a is lost: somebody pulled the plug"]


def test_a_case_fails_when_it_has_lost_two_hosts_and_those_beside_it_do_not(tmp_path: Path) -> None:
    hosts = FakeHosts({f"h{number}": FakeHost(lanes=4) for number in range(4)}, kills=["m3"])
    records = run(hosts, cases(40), tmp_path)
    assert failed(records).keys() == {"m3"}
    outcome = failed(records)["m3"]
    assert outcome.kind is FailureKind.CRASHED
    assert outcome.message.startswith("the host was lost while it ran the case, on h0 and then on h")
    assert outcome.message.endswith("somebody pulled the plug")
    assert sum(not host.is_there for host in hosts.hosts.values()) == 2


def test_a_host_that_comes_back_or_comes_later_joins(tmp_path: Path) -> None:
    hosts = FakeHosts({"a": FakeHost(), "b": FakeHost(), "late": FakeHost(is_there=False)})
    steps = {4: lambda: hosts.die("a"), 6: lambda: hosts.join("a"), 8: lambda: hosts.join("late")}
    hosts.on_step = lambda step: steps.get(step, lambda: None)()
    run(hosts, cases(40), tmp_path)
    assert len(hosts.had["late"]) > 5
    assert len(hosts.had["a"]) > 8


def test_when_all_hosts_are_gone_their_records_stay(tmp_path: Path) -> None:
    hosts = FakeHosts({"a": FakeHost(), "b": FakeHost()})
    hosts.on_step = lambda step: [hosts.die(name) for name in hosts.hosts if step == 6] and None
    with pytest.raises(ClusterError, match=r"all hosts are gone, and 14 cases have no outcome: go on with --resume"):
        run(hosts, cases(20), tmp_path)
    assert len(read_run(tmp_path).records) == 6


@pytest.mark.parametrize("seed", range(3))
def test_whatever_dies_each_case_has_one_record(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    hosts = FakeHosts({f"h{n}": FakeHost(lanes=1 + n % 4) for n in range(30)}, kills=[f"m{seed * 7}", "m299"])

    def on_step(_: int) -> None:
        for name, host in hosts.hosts.items():
            if not host.is_there and chance.random() < 0.2:
                hosts.join(name)
            elif chance.random() < 0.03:
                hosts.die(name)

    hosts.on_step = on_step
    some = cases(300)
    records = run(hosts, some, tmp_path)
    assert {record.case for record in records} == set(some)
    assert {f"m{seed * 7}", "m299"} <= failed(records).keys()
    assert len(failed(records)) < 50


def test_the_repeats_of_a_case_stay_on_one_kind_of_machine(tmp_path: Path) -> None:
    hosts = FakeHosts({"a": FakeHost(facts=H200), "b": FakeHost(facts=A100), "c": FakeHost(facts=H200)})
    some = [case for repeat in range(3) for case in cases(10, repeat=repeat)]
    kinds: dict[str, set[bool]] = {}
    for record in run(hosts, some, tmp_path, kind=ANY):
        kinds.setdefault(record.case.model, set()).add(str(record.lane).startswith("b/"))
    assert sorted(kinds.values(), key=str).count({True}) > 0
    assert all(len(kind) == 1 for kind in kinds.values())


def test_a_case_that_no_host_can_run_ends_the_run_with_its_name(tmp_path: Path) -> None:
    several = msgspec.structs.replace(CASE, model="several", world=2, parallel=Parallel.DDP)
    with pytest.raises(ClusterError, match="no host is left that may run several eval cpu eager ddp x2"):
        run(FakeHosts({"a": FakeHost()}), [*cases(2), several], tmp_path)


# --- which hosts take part ---


def mixed() -> FakeHosts:
    return FakeHosts({"a": FakeHost(facts=H200), "b": FakeHost(facts=H200), "c": FakeHost(facts=A100)})


def test_hosts_that_differ_need_a_choice() -> None:
    with pytest.raises(UsageError, match=r"\(a, b: device .*H200.*; c: device .*A100.*--host-kind"):
        gathered(mixed()).choose(None)
    with pytest.raises(UsageError, match="--host-kind B200: no such kind"):
        gathered(mixed()).choose("B200")
    hosts = mixed()
    cluster = gathered(hosts)
    cluster.choose("h200")
    assert list(cluster.ready) == ["a", "b"]
    assert hosts.dismissed == ["c"]
    (cluster := gathered(mixed())).choose(ANY)
    assert len(cluster.ready) == 3


def test_a_run_goes_on_only_on_the_kinds_that_it_began_on() -> None:
    there = {machine_kind(H200): ["a"], machine_kind(A100): ["b"]}
    assert choose_kinds(there, None, [machine_kind(A100)]) == (machine_kind(A100),)
    other = machine_kind(msgspec.structs.replace(H200, torch="2.14.0"))
    with pytest.raises(UsageError, match=r"there torch 2\.14\.0, here torch 2\.15\.0"):
        choose_kinds({machine_kind(H200): ["a"]}, None, [other])


def test_hosts_of_another_kind_or_torchzoo_are_let_go_whenever_they_come(tmp_path: Path) -> None:
    hosts = FakeHosts({"a": FakeHost(), "old": FakeHost(facts=facts(torchzoo="0.0.1"))})
    hosts.hosts["late"] = FakeHost(facts=H200, is_there=False)
    hosts.on_step = lambda step: hosts.join("late") if step == 3 else None
    run(hosts, cases(8), tmp_path, said=(said := []))
    assert hosts.dismissed == ["old", "late"]
    assert len(said) == 2
    with pytest.raises(ClusterError, match="no host is ready"):
        gathered(FakeHosts({"old": FakeHost(facts=facts(torchzoo="0.0.1"))}))


# --- options ---


def test_executors() -> None:
    assert parse_executor("local") == (Engine.LOCAL, None)
    assert parse_executor("ray:10.0.0.1:6379") == (Engine.RAY, "10.0.0.1:6379")
    for text in ("rey", "ray:", "slurm:x", "local:1"):
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


def test_the_command_line_of_a_job_has_no_executor() -> None:
    words = ["run", "a*", "--sbatch=account=lab", "--executor", "slurm", "--nodes", "2", "-d", "cuda", "--", "b"]
    assert without_executor(words) == ["run", "a*", "--nodes", "2", "-d", "cuda", "--", "b"]
