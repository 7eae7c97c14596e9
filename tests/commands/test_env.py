"""`torchzoo env`: make, list and prune, as the command line shows them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from made_packages import FakeInstaller
from torchzoo import cli
from torchzoo.commands import env
from torchzoo.environments import cache as kept
from torchzoo.environments import make, pins

DAY_S = 86_400


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCHZOO_ENV_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(pins, "own_requirements", list)
    fake = FakeInstaller()

    def prepare(spec: str, **_: object) -> make.PythonEnvironment:
        return make.prepare(spec, run=fake)

    monkeypatch.setattr(env, "prepare", prepare)
    return tmp_path / "cache"


def torchzoo(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert cli.main(["env", *arguments]) == cli.OK
    return capsys.readouterr().out.splitlines()


def test_an_environment_is_made_listed_and_deleted(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert torchzoo(capsys, "list")[0] == f"{cache}: 0 environments, 0.00 KiB on disk"
    (python,) = torchzoo(capsys, "make", "tza==1.0,A=1")
    key = Path(python).relative_to(cache).parts[0]
    first, headings, row = torchzoo(capsys, "list")
    assert first.startswith(f"{cache}: 1 environment, ")
    assert headings.split() == ["key", "size", "made", "last", "used", "state", "spec"]
    assert row.split()[0] == key
    assert row.split()[3:] == ["just", "now", "just", "now", "ready", "tza==1.0,A=1"]
    assert torchzoo(capsys, "prune")[0].startswith(f"{cache}: deleted 0 environments, 0.00 KiB")
    with kept.locked(cache, key):
        assert "being made" in torchzoo(capsys, "list")[2]
    assert torchzoo(capsys, "prune", key[:6])[0].startswith(f"{cache}: deleted 1 environment, ")
    assert not (cache / key).exists()


def test_old_environments_are_deleted_by_their_last_use(capsys: pytest.CaptureFixture[str]) -> None:
    old, new = (Path(torchzoo(capsys, "make", f"tza=={version}")[0]).parents[2] for version in ("1.0", "2.0"))
    os.utime(old / "used", (0, time.time() - 31 * DAY_S))
    assert torchzoo(capsys, "list")[3].split()[5:8] == ["31", "d", "ago"]
    torchzoo(capsys, "prune", "--older-than", "30d")
    assert (old.exists(), new.exists()) == (False, True)
    torchzoo(capsys, "prune", "--all")
    assert not new.exists()


def test_a_file_with_two_links_takes_its_space_once(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"x" * 2**20)
    before = kept.disk_bytes(tmp_path)
    os.link(tmp_path / "one", tmp_path / "two")
    assert 2**20 <= kept.disk_bytes(tmp_path) < before + 2**16
