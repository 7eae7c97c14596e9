"""Made packages that are installed here, for tests of environments."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_packages import OWN, FakeInstaller, add_installed
from torchzoo.environments import pins


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This environment: tzvision pins tztorch, which pins tztriton, which needs tzmath."""
    site = tmp_path / "site"
    add_installed(site, "tzbase", "1.5")
    add_installed(site, "tztorch", "2.0", ["tztriton==7.0", "tzmath>=1", "tzwin; sys_platform == 'win32'"])
    add_installed(site, "tztriton", "7.0")
    add_installed(site, "tzmath", "1.0")
    add_installed(site, "tzvision", "0.5", ["tztorch==2.0", "tzbase"])
    add_installed(site, "tzlib", "1.0", ["tzbase<2", "tztorch>=1,<4"])
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setattr(pins, "own_requirements", lambda: OWN)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def fake() -> FakeInstaller:
    return FakeInstaller()
