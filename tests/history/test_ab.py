"""Two environments in turns: the order, what is refused, and a real measurement that is cut short and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest

from examples import CASE, ENVIRONMENT, FACTS, ROOT, SPEC, record
from fake_lab import FakeLab, latency, make_environments_by
from torchzoo.case import EAGER, Axes, Mode
from torchzoo.cli import main
from torchzoo.environments import make
from torchzoo.environments.parsing import parse
from torchzoo.history import ab, turns
from torchzoo.history.ab import AbError, AbRequest
from torchzoo.history.ab_folder import Side
from torchzoo.history.turns import in_turns
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Measured
from torchzoo.run.batches import TunedBatch
from torchzoo.run.plan import PlannedCase
from torchzoo.run.pool import ServerError
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import RunStore, StoreError, read_run
from user_models import make_broken, make_folder


def planned(model: str, repeat: int) -> PlannedCase:
    return PlannedCase(case=msgspec.structs.replace(CASE, model=model, repeat=repeat), spec=SPEC)


def order(some: tuple[PlannedCase, ...]) -> list[str]:
    by_repeat = sorted(some, key=lambda one: one.case.repeat)  # as the scheduler does
    return [f"{one.case.model}{one.case.repeat} {one.environment}" for one in by_repeat]


def test_the_sides_take_turns_and_who_begins_changes_with_each_repeat() -> None:
    plan = tuple(planned(model, repeat) for model in "xy" for repeat in range(3))
    found = order(in_turns({"base": plan, "candidate": plan}))
    a, b = "base", "candidate"
    expected = [(f"{m}{r}", side) for r in range(3) for m in "xy" for side in ((a, b) if r != 1 else (b, a))]
    assert found == [" ".join(one) for one in expected]


def test_what_is_left_of_one_side_alone_is_measured_alone() -> None:
    plan = (planned("x", 0), planned("x", 1))
    found = order(in_turns({"base": plan[1:], "candidate": plan}))
    assert found == ["x0 candidate", "x1 candidate", "x1 base"]


@pytest.mark.parametrize("had_something", [False, True])
@pytest.mark.parametrize("wrong", [["--candidate", "A=1", "-d", "tpu"], ["--candidate", "torch==2.9"]])
def test_a_measurement_that_could_not_begin_leaves_its_folder_as_it_was(
    wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, had_something: bool
) -> None:
    def refuse(spec: str, *_: object) -> make.PythonEnvironment:
        if "torch==" in spec:
            raise make.EnvironmentNotMade(f"can't make the environment {spec}: no such version")
        return make._this(parse(spec))

    make_environments_by(refuse, monkeypatch)
    out = tmp_path / "out"
    if had_something:
        out.mkdir()
        (out / "notes.txt").write_text("mine")
    command = ["ab", "resnet18", "-o", str(out), "-d", "cpu", "-q"]
    assert main([*command, *wrong]) == 2
    assert [path.name for path in tmp_path.rglob("*")] == (["out", "notes.txt"] if had_something else [])
    lab = FakeLab(lambda *given: latency(0.02 * given[2])).install(monkeypatch)
    assert main([*command, "--candidate", "A=1"]) == 0
    assert len(lab.measured) == 10


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = FakeLab(lambda *given: latency(0.02 * given[2])).install(monkeypatch)

    def full(*_: object) -> object:
        if len(lab.measured) > 3:
            raise StoreError("the disk is full")
        return latency(0.02)

    monkeypatch.setattr(lab, "plan", full)
    assert main(["ab", "resnet18", "-d", "cpu", "-q", "--candidate", "A=1", "-o", str(tmp_path / "out")]) == 2
    monkeypatch.setattr(lab, "plan", lambda *_: latency(0.02))
    assert main(["ab", "-q", "--resume", str(tmp_path / "out")]) == 0


def test_a_request_is_read_as_it_was_begun(tmp_path: Path) -> None:
    run = RunRequest(patterns=("x",), axes=Axes(modes=(CASE.mode,), devices=(), backends=()), settings=Settings())
    request = AbRequest(base="this", candidate="A=1", run=run)
    ab.begin(request, tmp_path / "new")
    assert ab.read_request(tmp_path / "new") == request
    with pytest.raises(AbError, match="no A/B measurement"):
        ab.read_request(tmp_path)


def processes_of(parent: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(parent.pid).children(recursive=True)


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_both_sides_are_runs_of_their_own_and_kill_9_loses_nothing(tmp_path: Path) -> None:
    """A setting that only the candidate has breaks one model there; the other is measured on both sides."""
    zoo, out = tmp_path / "zoo", tmp_path / "out"
    make_folder(zoo, "a_tiny")
    broken = make_broken(zoo, "raises") / "__init__.py"
    broken.write_text(broken.read_text().replace("raise ValueError", 'if os.environ.get("BREAK"): raise ValueError'))
    broken.write_text(broken.read_text() + "\n        return super().eval_step()\n")
    words = ["a_tiny", "raises", "--models-dir", str(zoo), "-d", "cpu", "--threads", "1", "--time-limit", "0.3"]
    command = [sys.executable, "-m", "torchzoo", "ab", "--candidate", "BREAK=1", *words, "--repeats", "2"]
    started = subprocess.Popen([*command, "-o", str(out)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    files = [out / side / "records.jsonl" for side in Side]
    deadline = time.monotonic() + 120
    while not all(file.exists() and file.read_text().endswith("\n") for file in files):
        assert time.monotonic() < deadline
        assert started.poll() is None
        time.sleep(0.05)
    children = processes_of(started)
    started.send_signal(signal.SIGKILL)
    started.communicate()
    _, alive = psutil.wait_procs(children, timeout=30)
    assert alive == []
    before = {side: (out / side / "records.jsonl").read_text() for side in Side}

    resumed = subprocess.run(
        [sys.executable, "-m", "torchzoo", "ab", "--resume", str(out), "--format", "json"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert resumed.returncode == 1, resumed.stderr  # what newly fails is a regression
    for side in Side:
        assert (out / side / "records.jsonl").read_text().startswith(before[side])
        records = read_run(out / side).records
        assert len({record.case for record in records}) == len(records) == 4
    (change,) = json.loads(resumed.stdout)["changes"]
    assert (change["case"]["model"], change["change"]) == ("raises", "newly failing")


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_cases_with_several_ranks_are_measured_in_turns_too(tmp_path: Path) -> None:
    zoo, out = tmp_path / "zoo", tmp_path / "out"
    make_folder(zoo, "a_tiny")
    words = ["a_tiny", "--models-dir", str(zoo), "-d", "cpu", "-t", "train", "--world", "2", "--parallel", "ddp"]
    command = [sys.executable, "-m", "torchzoo", "ab", "--base", "SIDE=a", "--candidate", "SIDE=b", *words]
    command += ["--threads", "1", "--time-limit", "0.1", "--repeats", "1", "-o", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode in (0, 1), done.stderr  # 1: one short process of each may well differ
    for side in Side:
        (one,) = read_run(out / side).records
        assert isinstance(one.outcome, Measured), one.outcome
        assert one.case.world == 2


class FakePool:
    name = "torch==2.14.1"

    def __init__(self, machine: MachineInfo = FACTS) -> None:
        self.machine_info = lambda: machine
        self.missing: Any = lambda *_: {}


def test_only_some_cases_of_a_request_are_planned(tmp_path: Path) -> None:
    axes = Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=("cpu",), backends=(EAGER,), repeats=2)
    request = RunRequest(patterns=("tiny",), axes=axes, settings=Settings())
    with RunStore(tmp_path / "all") as store:
        whole = turns._ready(FakePool(), store, request, [SPEC], {}, only=(), grows=False, cases_in=2)  # type: ignore[arg-type]
    assert len(whole.left) == len(whole.manifest.cases) == 4
    with RunStore(tmp_path / "some") as store:
        some = turns._ready(FakePool(), store, request, [SPEC], {}, only={CASE}, grows=False, cases_in=2)  # type: ignore[arg-type]
    assert [one.case for one in some.left] == [msgspec.structs.replace(CASE, repeat=n) for n in range(2)]
    assert some.manifest.cases == tuple(one.case for one in some.left)


def test_batches_are_the_tuned_ones_as_in_a_run(tmp_path: Path) -> None:
    """A begun run whose cases are not asked for any more says so: else nothing would be measured, without a word."""
    axes = Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(EAGER,))
    request = RunRequest(patterns=("tiny",), axes=axes, settings=Settings())
    machine = msgspec.structs.replace(FACTS, environment=ENVIRONMENT)
    batch = TunedBatch(batch_size=64, precision="default", torch="2.15.0", date="2026-11-25", samples_per_s={64: 9.0})

    with RunStore(tmp_path / "run") as store:
        tuned = {"a CPU": {"tiny": batch}}
        side = turns._ready(FakePool(machine), store, request, [SPEC], tuned, only=(), grows=False, cases_in=2)  # type: ignore[arg-type]
        store.begin(side.manifest)
    assert [case.batch_size for case in side.manifest.cases] == [64]
    with (
        RunStore(tmp_path / "run", resume=True) as store,
        pytest.raises(StoreError, match="was begun with tiny eval cpu eager bs64, which is not asked for now"),
    ):
        turns._ready(FakePool(machine), store, request, [SPEC], {}, only=(), grows=False, cases_in=2)  # type: ignore[arg-type]


def test_a_version_that_sees_no_device_is_named(tmp_path: Path) -> None:
    """`bisect` skips it: an error of the whole request would end the bisection."""
    axes = Axes(modes=(Mode.EVAL,), devices=("xpu",), backends=(EAGER,))
    request = RunRequest(patterns=("tiny",), axes=axes, settings=Settings())
    with RunStore(tmp_path / "run") as store, pytest.raises(ServerError, match=r"torch==2.14.1: .*xpu") as raised:
        turns._ready(FakePool(), store, request, [SPEC], {}, only=(), grows=False, cases_in=2)  # type: ignore[arg-type]
    assert raised.value.environment == "torch==2.14.1"


@pytest.mark.parametrize("grows", [False, True])
def test_a_begun_run_takes_more_repeats_only_if_asked(tmp_path: Path, *, grows: bool) -> None:
    def side(repeats: int, *, resume: bool) -> turns._Side:
        axes = Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(EAGER,), repeats=repeats)
        request = RunRequest(patterns=("tiny",), axes=axes, settings=Settings())
        with RunStore(tmp_path / "run", resume=resume) as store:
            found = turns._ready(FakePool(), store, request, [SPEC], {}, only=(), grows=grows, cases_in=2)  # type: ignore[arg-type]
            if not resume:
                store.begin(found.manifest)
                store.append(msgspec.structs.replace(record(), case=found.manifest.cases[0]))
            return found

    first, second = side(1, resume=False), side(3, resume=True)
    assert not first.is_kept
    assert second.is_kept is not grows
    assert [one.case.repeat for one in second.left] == ([1, 2] if grows else [])
    assert [case.repeat for case in second.manifest.cases] == ([0, 1, 2] if grows else [0])
    assert side(1, resume=True).left == ()
