"""Pip requirements, against distributions that are only metadata in a folder."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from torchzoo.zoo.requirements import read_constraints, top_module, unsatisfied


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def add(site: Path, name: str, version: str = "0.9", files: tuple[str, ...] = ()) -> None:
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (folder / "RECORD").write_text("".join(f"{file},,\n" for file in (*files, f"{folder.name}/METADATA")))
    importlib.invalidate_caches()


def test_a_requirement_is_satisfied_by_a_version_that_fits(site: Path) -> None:
    add(site, "fakevision")
    assert unsatisfied("fakevision") is None
    assert unsatisfied("Fake_Vision") == "fake-vision not installed"
    assert unsatisfied("fakevision>=0.5,<1") is None
    assert unsatisfied("fakevision[extra]>=1") == "fakevision 0.9 is installed, not >=1"
    assert unsatisfied("fakeother>=1") == "fakeother not installed"


def test_a_requirement_whose_marker_is_false_here_is_satisfied(site: Path) -> None:
    add(site, "fakevision")
    assert unsatisfied("fakevision>=1; python_version < '3'") is None
    assert unsatisfied("fakeother; extra == 'dev'") is None
    assert unsatisfied("fakevision>=1; python_version >= '3'") == "fakevision 0.9 is installed, not >=1"


def test_a_constraint_must_be_satisfied_too(site: Path, tmp_path: Path) -> None:
    add(site, "Fake.Vision", "0.9+cu130")
    (tmp_path / "constraints.txt").write_text("# a comment\n\nfake_vision==0.9\nother==3\n")
    constraints = read_constraints(tmp_path / "constraints.txt")
    assert sorted(constraints) == ["fake-vision", "other"]
    assert unsatisfied("fake-vision", constraints) is None  # a local version satisfies it
    (tmp_path / "constraints.txt").write_text("fake-vision==1.5\n")
    problem = unsatisfied("fake-vision>=0.5", read_constraints(tmp_path / "constraints.txt"))
    assert problem is not None
    assert problem.startswith("fake-vision 0.9+cu130 is installed, not ==1.5 as in constraints.txt")


@pytest.mark.parametrize(
    "text",
    ["==", "!!", "", "--index-url=http://elsewhere x", "x>=abc", "x; os_name ~= 'a'", "x; " + "(" * 150, "\x1b[2J"],
)
def test_what_is_no_requirement_is_a_reason_of_one_line(text: str) -> None:
    reason = unsatisfied(text)
    assert reason is not None
    assert reason.startswith(f"not a pip requirement: {text!r}")
    assert reason.isprintable()


def test_a_prerelease_that_is_installed_counts(site: Path) -> None:
    add(site, "fakevision", "2.0.dev20261120")
    assert unsatisfied("fakevision>=1.5") is None


@pytest.mark.parametrize(
    ("distribution", "module"),
    [("pyyaml", "yaml"), ("torch", "torch"), ("nvidia-ml-py", "pynvml"), ("PyYAML>=6", "yaml")],
)
def test_top_module_is_what_a_library_is_imported_by(distribution: str, module: str) -> None:
    assert top_module(distribution) == module


def test_top_module_leaves_strays_out(site: Path) -> None:
    strays = ("tests/test_a.py", "_private.py", "../../../bin/run.py", "example.py")
    add(site, "fake-vision", files=(*strays, "zoom.py", "eyes/__init__.py"))
    assert top_module("fake-vision") == "eyes"
    add(site, "fake-ears", files=("aural.py", "fake_ears/__init__.py"))
    assert top_module("fake-ears") == "fake_ears"
    add(site, "fake-editable", files=("_fake_editable.pth",))  # `pip install -e` keeps no list of modules
    assert top_module("fake-editable") == "fake_editable"
