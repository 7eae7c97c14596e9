"""`install.py` by a Python that lacks what it needs itself, or that is not to be changed."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_pip import FakePip, add_model

from examples import ROOT
from torchzoo import install


def test_a_bare_python_first_gets_what_reads_the_metadata_and_prints_the_table(
    checkout: Path, pip: FakePip, bare: set[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    (checkout / "constraints.txt").write_text("fakevision==1.0\n")
    bare |= {"msgspec", "packaging", "yaml", "rich"}
    install.main(["one", "--fast"], run=pip)
    constraints = ["-c", str(checkout / "constraints.txt")]
    assert pip.pip_calls == [
        [*constraints, "msgspec", "packaging", "pyyaml", "rich"],
        [*constraints, "-e", str(checkout), "fakevision"],
    ]


def test_only_what_is_missing_is_installed_first(checkout: Path, pip: FakePip, bare: set[str]) -> None:
    add_model(checkout / "models", "one")
    bare.add("yaml")
    install.main(["one", "--fast", "--no-constraints"], run=pip)
    assert pip.pip_calls == [["pyyaml"], ["-e", str(checkout)]]


def test_check_of_a_bare_python_says_that_torchzoo_is_not_ready_and_what_to_run(
    checkout: Path, pip: FakePip, bare: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    bare |= {"msgspec", "rich"}
    assert install.main(["--check"], run=pip) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "torchzoo itself is not ready: msgspec, rich not installed" in captured.err
    assert "`python install.py`" in captured.err
    assert pip.commands == []


def test_when_nothing_can_read_the_metadata_pip_s_error_is_one_line(
    checkout: Path, pip: FakePip, bare: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    bare.add("yaml")
    pip.refused["pyyaml"] = "ERROR: No matching distribution found for pyyaml\n[notice] A new release of pip\n"
    assert install.main(["one"], prog="torchzoo install", run=pip) == 1
    assert pip.pip_calls == [["pyyaml"]]
    assert capsys.readouterr().err.splitlines()[-1] == (
        "torchzoo install: error: torchzoo itself is not ready: pyyaml not installed: "
        "No matching distribution found for pyyaml"
    )


def test_nothing_but_the_standard_library_is_needed_to_begin() -> None:
    script = [sys.executable, "-S", str(ROOT / "install.py")]  # -S: without site-packages
    for arguments in (["resnet18", "--check"], ["--check", "--fast"]):
        done = subprocess.run([*script, *arguments], check=False, capture_output=True, text=True, cwd="/")
        assert done.returncode == 1
        assert "not ready: msgspec, packaging, pyyaml, rich not installed" in done.stderr
        assert done.stderr.count("\n") == 1
    done = subprocess.run([*script, "--help"], check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0
    assert "--no-constraints" in done.stdout


def test_a_command_that_lacks_a_library_says_how_to_get_it() -> None:
    script = [sys.executable, "-S", str(ROOT / "run.py"), "resnet18"]
    done = subprocess.run(script, check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 2
    assert done.stderr == "torchzoo: msgspec is not installed for this Python: run `python install.py`\n"


def test_a_python_that_belongs_to_the_system_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise AssertionError(command)

    (tmp_path / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr(sysconfig, "get_path", {"stdlib": str(tmp_path)}.get)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.delenv("PIP_BREAK_SYSTEM_PACKAGES", raising=False)
    assert install.main(["resnet18"], run=run) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "python3 -m venv" in error


def test_a_python_without_pip_is_told_where_to_find_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "is_installed", lambda requirement: requirement != "pip")
    assert install.main(["resnet18"]) == 1
    assert "has no pip; use a virtual environment" in capsys.readouterr().err
