"""A made-up checkout, a made-up pip, and a Python without some modules."""

from __future__ import annotations

import importlib.util
from pathlib import Path

# The real msgspec, packaging and rich, before `FakePip` puts empty modules of these names on the path.
import msgspec  # noqa: F401
import packaging  # noqa: F401
import pytest
import rich  # noqa: F401
from fake_pip import FakePip

import torchzoo
from torchzoo import install


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    (root / "models").mkdir(parents=True)
    (root / "collections").mkdir()
    (root / "pyproject.toml").write_text('[project]\nname = "torchzoo"\ndependencies = []\n')
    monkeypatch.setattr(torchzoo, "__file__", str(root / "torchzoo" / "__init__.py"))
    monkeypatch.setattr(install, "_require_usable_pip", lambda: None)
    monkeypatch.delenv("TORCHZOO_PATH", raising=False)
    return root


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    pip = FakePip(site)
    pip.add("torchzoo")
    return pip


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that this Python seems not to have."""
    absent: set[str] = set()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else find_spec(name))
    return absent
