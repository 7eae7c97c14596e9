"""The repository whose commits are watched, made once for all tests of `torchzoo watch`."""

from __future__ import annotations

import pytest

from fake_lab import Repository


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Six commits, one for each quiet night, then a day with ten."""
    made = Repository(tmp_path_factory.mktemp("src") / "timm")
    made.commit(16)
    return made
