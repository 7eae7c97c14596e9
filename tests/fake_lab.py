"""A laboratory without models: in place of `experiment.measure`, it writes records with planted effects."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import environment, manifest, record
from kept_nights import MIB, eager_s
from torchzoo.case import Case, Mode
from torchzoo.commands import ab, bisect
from torchzoo.environments import make
from torchzoo.environments.make import PythonEnvironment
from torchzoo.history import ab_evidence, confirm, into_inductor, watch
from torchzoo.record import Growth, Outcome
from torchzoo.run import experiment
from torchzoo.run.experiment import Place
from torchzoo.run.request import RunRequest
from torchzoo.store import RunStore, read_run

#: The outcome of a case in the environment of a SPEC; the number is noise around 1.
Plan = Callable[[str, Case, float], Outcome]


def make_environments_by(prepare: Callable[..., PythonEnvironment], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all that needs an environment call this function."""
    for module in (ab, ab_evidence, bisect, confirm, into_inductor, watch):
        monkeypatch.setattr(module, "prepare", prepare)


class FakeLab:
    """Measures nothing. Counts each record, and may be killed before one of them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.packages: dict[str, str] = {"timm": "1.0.19"}
        self.facts: dict[str, Any] = {}
        self.measured: list[tuple[str, Case]] = []
        self.dies_at = -1
        self.prepared: list[str] = []
        self.cannot_make: set[str] = set()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeLab:
        monkeypatch.setattr(experiment, "measure", self.measure)
        make_environments_by(self.prepare, monkeypatch)
        return self

    def prepare(self, spec: str, *_: object) -> PythonEnvironment:
        self.prepared.append(spec)
        if spec in self.cannot_make:
            raise make.EnvironmentNotMade(f"can't make the environment {spec}: no such version")
        return PythonEnvironment(name=spec, python="/nowhere/bin/python", variables={}, key="0" * 16)

    def measure(
        self,
        request: RunRequest,
        places: Mapping[str, Place],
        *,
        only: Collection[Case] = (),
        on_record: experiment.OnRecord = experiment.ignore,
        on_stage: experiment.OnStage = experiment.ignore,
    ) -> None:
        for name, place in places.items():
            resume = (place.folder / "run.json").is_file()
            with RunStore(place.folder, resume=resume) as store:
                cases = self._cases(request, only)
                if not resume:
                    store.begin(self._manifest(place, request, cases))
                done = {one.case for one in read_run(place.folder).records}
                for case in [one for one in cases if one not in done]:
                    if len(self.measured) == self.dies_at:
                        raise KeyboardInterrupt
                    self.measured.append((str(place.folder), case))
                    text = f"{place.folder.name} {place.folder.parent.parent.name} {case}"
                    noise = 1 + 0.004 * (zlib.crc32(text.encode()) / 2**32 - 0.5)
                    made = record(self.plan(place.software.name, case, noise))
                    on_record(name, store.append(msgspec.structs.replace(made, case=case)), 1, 1)

    def _manifest(self, place: Place, request: RunRequest, cases: tuple[Case, ...]) -> Any:
        packages = dict(self.packages)
        torch = packages.pop("torch", "2.15.0")
        for part in place.software.name.split(","):
            package, equal, version = part.partition("==")
            if equal and package == "torch":
                torch = version
            elif equal:
                packages[package] = version
        facts = environment(**{"torch": torch, "packages": packages, **self.facts})
        return manifest(environment=facts, cases=cases, settings=request.settings)

    @staticmethod
    def _cases(request: RunRequest, only: Collection[Case]) -> tuple[Case, ...]:
        axes = request.axes
        cases = [
            Case(model=model, mode=mode, device="cpu", batch_size=4, repeat=repeat)
            for model in request.patterns
            for mode in axes.modes
            for repeat in range(axes.repeats)
        ]
        return tuple(one for one in cases if not only or one.first_repeat() in only)


def latency(seconds: float, *, memory: int = 300 * MIB, leaks: bool | None = None) -> Any:
    """A measured case. `leaks`: whether its memory grows; None: that was not looked at."""
    made = eager_s(seconds, memory=memory)
    if leaks is None:
        return made
    grown = tuple(10**8 + (10**5 * step if leaks else 0) for step in range(20))
    growth = Growth(device_bytes=None, host_bytes=grown, heap_bytes=grown)
    variants = {"eager": msgspec.structs.replace(made.variants["eager"], growth=growth)}
    return msgspec.structs.replace(made, variants=variants)


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"]
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


class Repository:
    """A library's repository. Its commits are numbered from 0."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.commits: list[str] = []
        git(folder, "init", "-q", "-b", "main")

    def commit(self, count: int = 1) -> None:
        """Add commits at the end."""
        for _ in range(count):
            git(
                self.folder,
                "commit",
                "--allow-empty",
                "-qm",
                f"change {len(self.commits)}",
                "--date",
                "2026-11-01T10:00:00",
            )
            self.commits.append(git(self.folder, "rev-parse", "HEAD"))

    @property
    def head(self) -> str:
        return f"timm@{self.folder}:HEAD"

    def spec(self, number: int) -> str:
        return f"timm@{self.folder}:{self.commits[number]}"

    def number(self, spec: str) -> int:
        return self.commits.index(spec.partition(",")[0].rpartition(":")[2])


def eval_case(model: str) -> Case:
    return Case(model=model, mode=Mode.EVAL, device="cpu", batch_size=4)
