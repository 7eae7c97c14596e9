"""A suite that is watched night after night, and what is planted in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_lab import FakeLab, Repository, latency
from in_this_process import torchzoo
from kept_nights import MIB
from kept_runs import failed
from torchzoo.case import Case
from torchzoo.history import nights
from torchzoo.history.nights import finished_nights


class Planted:
    """From the commit `culprit` on, some models are slower, larger, fail or leak."""

    def __init__(self, repository: Repository, culprit: int = 11, second: int = 99) -> None:
        self.repository = repository
        self.culprit = culprit
        self.second = second
        self.fails = False

    def __call__(self, spec: str, case: Case, noise: float) -> Any:
        number = self.repository.number(spec)
        seconds, size = 0.02, 300 * MIB
        if case.model == "slower" and number >= self.culprit:
            seconds *= 1.1
        if case.model == "larger" and number >= self.culprit:
            size = int(size * 1.2)
        if case.model == "later" and number >= self.second:
            seconds *= 1.3
        if case.model == "fails" and number >= self.culprit:
            return failed("no kernel for this shape")
        return latency(seconds * noise, memory=size)


class Suite:
    """Calls `torchzoo watch` night after night, in a laboratory with a plan."""

    def __init__(self, root: Path, repository: Repository, lab: FakeLab, *models: str) -> None:
        self.root = root
        self.repository = repository
        self.lab = lab
        self.models = models
        self.shown = ""  # on standard output, by the last night
        self.said = ""  # on standard error

    def spec(self, number: int) -> str:
        return f"timm@{self.repository.folder}:main~{len(self.repository.commits) - 1 - number}"

    def night(self, number: int, *options: str) -> int:
        return self.call("--software", self.spec(number), *options)

    def call(self, *options: str) -> int:
        done = torchzoo("watch", self.root, *self.models, "-d", "cpu", "-q", *options)
        self.shown, self.said = done.stdout, done.stderr
        return done.returncode

    def quiet(self, count: int) -> None:
        for number in range(count):
            assert self.night(number) == 0

    @property
    def last(self) -> nights.Night:
        return finished_nights(self.root)[-1]

    @property
    def folder(self) -> Path:
        return self.root / "nights" / self.last.stamp


#: Begins a watch of some models: `(*models, quiet=4, plan=Planted(repository), folder="w")`.
Watching = Callable[..., Suite]
