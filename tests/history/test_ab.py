"""Two environments in turns: the order, what is refused, and a real measurement that is cut short and resumed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from examples import CASE, FACTS, ROOT, SPEC, record
from fake_lab import FakeLab, latency, make_environments_by
from torchzoo.analysis.compare import Side
from torchzoo.case import EAGER, Axes, Mode
from torchzoo.cli import main
from torchzoo.environments import make
from torchzoo.environments.parsing import parse
from torchzoo.history import ab
from torchzoo.history.ab import AbError, AbRequest
from torchzoo.record import Measured
from torchzoo.run.experiment import here, in_turns, ready
from torchzoo.run.plan import PlannedCase
from torchzoo.run.pool import Pool, ServerError
from torchzoo.run.request import RunRequest, Software
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


@pytest.mark.usefixtures("_no_server")
@pytest.mark.parametrize("wrong", [["--candidate", "A=1", "-d", "tpu"], ["--candidate", "torch==2.9"]])
def test_a_measurement_that_could_not_begin_leaves_its_folder_for_another(
    wrong: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(spec: str, *_: object) -> make.PythonEnvironment:
        if "torch==" in spec:
            raise make.EnvironmentNotMade(f"can't make the environment {spec}: no such version")
        return make._this(parse(spec))

    make_environments_by(refuse, monkeypatch)
    command = ["ab", "resnet18", "-o", str(tmp_path / "out"), "-d", "cpu", "-q"]
    assert main([*command, *wrong]) == 2
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


def asked(zoo: Path, *, repeats: int = 1, device: str = "cpu") -> RunRequest:
    axes = Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=(device,), backends=(EAGER,), repeats=repeats)
    return RunRequest(patterns=("tiny",), axes=axes, settings=Settings(), models_dirs=(str(zoo),))


@pytest.fixture
def _no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answer questions about the machine without a server."""
    monkeypatch.setattr(Pool, "machine_info", lambda _: FACTS)
    monkeypatch.setattr(Pool, "missing", lambda *_: {})
    monkeypatch.setattr(Pool, "host_speed", lambda *_: 0.001)


@pytest.mark.usefixtures("_no_server")
def test_only_some_cases_of_a_request_are_planned(tmp_path: Path) -> None:
    request = asked(tmp_path / "zoo", repeats=2)
    make_folder(tmp_path / "zoo", "tiny")
    with RunStore(tmp_path / "all") as store:
        cases = ready(here(store), request).manifest.cases
    assert len(cases) == 4
    with RunStore(tmp_path / "some") as store:
        some = ready(here(store), request, only={cases[0].first_repeat()})
        (part,) = some.parts.values()
    assert [one.case for one in part.left] == [msgspec.structs.replace(cases[0], repeat=n) for n in range(2)]
    assert some.manifest.cases == tuple(one.case for one in part.left)


@pytest.mark.usefixtures("_no_server")
def test_a_version_that_sees_no_device_is_named(tmp_path: Path) -> None:
    """`bisect` skips it: an error of the whole request would end the bisection."""
    make_folder(tmp_path / "zoo", "tiny")
    with RunStore(tmp_path / "run") as store, pytest.raises(ServerError, match=r"torch==2.14.1: .*xpu") as raised:
        ready({"bad": (Software(name="torch==2.14.1"), store)}, asked(tmp_path / "zoo", device="xpu"))
    assert raised.value.environment == "torch==2.14.1"


@pytest.mark.usefixtures("_no_server")
def test_a_begun_run_keeps_its_own_cases_and_the_other_side_is_planned(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    with RunStore(tmp_path / "base") as store:
        begun = ready(here(store), asked(tmp_path / "zoo")).manifest
        store.append(msgspec.structs.replace(record(), case=begun.cases[0]))
    with RunStore(tmp_path / "base", resume=True) as base, RunStore(tmp_path / "candidate") as candidate:
        stores = {"base": (Software(), base), "candidate": (Software(), candidate)}
        found = ready(stores, asked(tmp_path / "zoo", repeats=2))
    assert [one.case for one in found.parts["base"].left] == list(begun.cases[1:])
    assert len(found.parts["candidate"].left) == 2 * len(begun.cases)
    assert (len(found.done), found.total) == (1, 3 * len(begun.cases))
