"""A suite that is watched night after night, and what is planted in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_lab import Repository, latency
from kept_nights import MIB
from kept_runs import failed
from torchzoo.case import Case
from torchzoo.cli import main
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
    """Calls `torchzoo watch` night after night."""

    def __init__(self, root: Path, repository: Repository, *models: str) -> None:
        self.root = root
        self.repository = repository
        self.models = models

    def spec(self, number: int) -> str:
        return f"timm@{self.repository.folder}:main~{len(self.repository.commits) - 1 - number}"

    def night(self, number: int, *options: str) -> int:
        words = ["-d", "cpu", "-q", "--software", self.spec(number)]
        return main(["watch", str(self.root), *self.models, *words, *options])

    def quiet(self, count: int = 6) -> None:
        for number in range(count):
            assert self.night(number) == 0

    @property
    def last(self) -> nights.Night:
        return finished_nights(self.root)[-1]

    @property
    def folder(self) -> Path:
        return self.root / "nights" / self.last.stamp
