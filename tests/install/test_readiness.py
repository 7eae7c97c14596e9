"""What `install.py` says of models: ready, or what is missing, too old or does not import."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from fake_pip import FakePip, add_model, rows

from examples import ROOT, SPEC
from torchzoo import install
from torchzoo.case import Backend
from torchzoo.run.resources import missing


def test_check_installs_nothing_and_gives_the_same_table_and_status(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    assert install.main(["--check"], run=pip) == 1
    assert rows(capsys.readouterr().out) == {"torchzoo": "ready", "one": "not ready fakevision not installed"}
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == 0
    assert rows(capsys.readouterr().out) == {"torchzoo": "ready", "one": "ready"}
    assert pip.pip_calls == []


def test_a_library_that_is_installed_but_does_not_import_is_not_ready_unless_fast(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    add_model(checkout / "models", "two", "fakeother")
    pip.broken_imports["fakevision"] = (
        "Traceback (most recent call last):\n  File x\nRuntimeError: operator fakevision::nms does not exist\n\n"
    )
    assert install.main([], run=pip) == 1
    assert rows(capsys.readouterr().out) == {
        "torchzoo": "ready",
        "one": "not ready import fakevision: RuntimeError: operator fakevision::nms does not exist",
        "two": "ready",
    }
    before = len(pip.commands)
    assert install.main(["--check", "--fast"], run=pip) == 0
    assert len(pip.commands) == before


def test_no_model_is_ready_where_torchzoo_itself_is_not(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    add_model(checkout / "models", "two")
    (checkout / "pyproject.toml").write_text('[project]\ndependencies = ["fakespec"]\n')
    assert install.main(["--check"], run=pip) == 1
    captured = capsys.readouterr().out
    assert rows(captured) == {
        "torchzoo": "not ready fakespec not installed",
        "one": "not ready fakevision not installed",
        "two": "not ready torchzoo itself is not ready",
    }
    assert captured.splitlines()[-1] == "0 of 2 models ready"


def test_a_long_problem_is_one_line_where_the_table_goes_to_a_file(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "a_model_whose_name_is_long", "fakevision")
    pip.add("fakevision")
    reason = "ImportError: " + "why it is so " * 30
    pip.broken_imports["fakevision"] = reason
    assert install.main(["--check"], run=pip) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert reason.strip() in lines[1]


@pytest.mark.parametrize(
    ("requirement", "constraint", "problem"),
    [
        ("fakevision>=2", "", "fakevision 1.0 is installed, not >=2"),
        ("fakevision", "fakevision==1.5", "fakevision 1.0 is installed, not ==1.5 as in constraints.txt"),
        ("fakevision", "Fake-Vision==1.5", None),  # another distribution
        ("fakevision; python_version < '3'", "fakevision==1.5", None),  # not needed here
    ],
)
def test_the_version_must_be_one_that_is_wanted(
    checkout: Path,
    pip: FakePip,
    capsys: pytest.CaptureFixture[str],
    requirement: str,
    constraint: str,
    problem: str | None,
) -> None:
    add_model(checkout / "models", "one", f'"{requirement}"')
    (checkout / "constraints.txt").write_text(constraint + "\n")
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == (0 if problem is None else 1)
    assert (problem or "one ready") in " ".join(capsys.readouterr().out.split())


def test_a_build_with_a_local_version_satisfies_its_constraint(checkout: Path, pip: FakePip) -> None:
    add_model(checkout / "models", "one", "fakevision")
    (checkout / "constraints.txt").write_text("fakevision==1.5\n")
    pip.versions["fakevision"] = "1.5+cu130"
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == 0


def test_from_a_wheel_torchzoo_needs_what_the_wheel_says_but_no_extras(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "torchzoo" / "_bundled" / "models", "one")
    (checkout / "torchzoo" / "_bundled" / "collections").mkdir()
    with (pip.site / "torchzoo-1.0.dist-info" / "METADATA").open("a") as file:
        file.write("Requires-Dist: fakespec\nRequires-Dist: fakedev; extra == 'dev'\n")
    importlib.invalidate_caches()
    assert install.main(["one", "--check"], run=pip) == 1
    assert rows(capsys.readouterr().out)["torchzoo"] == "not ready fakespec not installed"
    pip.add("fakespec")
    assert install.main(["one", "--check"], run=pip) == 0


@pytest.mark.slow
def test_check_of_a_real_model_by_the_real_script() -> None:
    command = [sys.executable, str(ROOT / "install.py"), "resnet18", "--check", "--no-constraints"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    found = rows(done.stdout)
    assert list(found) == ["torchzoo", "resnet18"], done.stderr
    assert done.returncode == (0 if set(found.values()) == {"ready"} else 1)


@pytest.mark.parametrize(("name", "package"), [("tvm", "tvm"), ("openxla", "torch_xla"), ("openvino", "openvino")])
def test_a_run_skips_a_backend_whose_library_is_not_there(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    reason = missing([], [Backend(name)])[package]
    assert reason.startswith(f"{name} needs {package}, which is not installed: pip install ")


def test_a_run_skips_a_model_whose_library_is_too_old_and_says_what_to_do(pip: FakePip) -> None:
    pip.versions["fakevision"] = "0.9"
    pip.add("fakevision")
    models = [
        msgspec.structs.replace(SPEC, name="old", requirements=("fakevision>=1", "fakeother")),
        msgspec.structs.replace(SPEC, name="fine", requirements=("fakevision>=0.9",)),
    ]
    reasons = missing(models, [])
    reasons.pop("torchao", None)  # of quantized precisions, where it is not installed
    assert reasons == {"old": "fakevision 0.9 is installed, not >=1, fakeother not installed: python install.py old"}
