"""Fixtures of the tests of `torchzoo watch`."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched_suite import Planted, Suite, Watching

from fake_lab import FakeLab, Plan, Repository


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Six commits, one for each quiet night, then a day with ten."""
    made = Repository(tmp_path_factory.mktemp("src") / "timm")
    made.commit(16)
    return made


@pytest.fixture
def watching(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Watching:
    def begin(*models: str, quiet: int = 4, plan: Plan | None = None, folder: str = "w") -> Suite:
        lab = FakeLab(plan or Planted(repository)).install(monkeypatch)
        suite = Suite(tmp_path / folder, repository, lab, *models)
        suite.quiet(quiet)
        return suite

    return begin
