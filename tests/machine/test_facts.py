"""What is recorded of the software: all that is installed, whoever uses it."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from torchzoo.machine.facts import PACKAGES, collect_environment, installed_distributions


def install(folder: Path, file: str, about: str) -> None:
    (folder / file).mkdir(parents=True)
    (folder / file / "METADATA").write_text(f"Metadata-Version: 2.1\n{about}")


def test_every_distribution_is_recorded_as_it_would_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "first", "My_Backend-1.0.dist-info", "Name: My_Backend\nVersion: 1.0\n")
    install(tmp_path / "second", "my_backend-2.0.dist-info", "Name: my-backend\nVersion: 2.0\n")
    install(tmp_path / "first", "half-1.0.dist-info", "")
    monkeypatch.syspath_prepend(tmp_path / "second")
    monkeypatch.syspath_prepend(tmp_path / "first")
    found = installed_distributions()
    assert found["my-backend"] == "1.0"
    assert "half" not in found
    assert found["pytest"] == importlib.metadata.version("pytest")


def test_the_main_libraries_are_named_apart() -> None:
    environment = collect_environment()
    distributions, packages = environment.distributions, environment.packages
    assert distributions is not None
    assert set(packages) <= set(PACKAGES)
    assert packages.items() <= distributions.items()
    assert packages["numpy"] == importlib.metadata.version("numpy")
    assert list(packages) == [name for name in PACKAGES if name in packages]
