"""Passes that are kept: a test runs again if anything that it reads has changed, and always after a failure."""

from __future__ import annotations

import importlib.metadata
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from kept_passes import KeptPasses, fingerprint, needed, read_committed, software, write_committed


def runs(kept: KeptPasses, key: str, test: str = "contract-tiny") -> bool:
    """Whether the block is run. It passes."""
    ran = False
    try:
        with kept.unless_unchanged(test, key):
            ran = True
    except pytest.skip.Exception:
        assert not ran
    return ran


def test_a_pass_is_kept_for_the_same_inputs_only(tmp_path: Path) -> None:
    kept = KeptPasses(tmp_path / "passes")
    assert runs(kept, "one")
    assert not runs(kept, "one")
    assert runs(kept, "one", test="contract-other")
    assert runs(kept, "two")
    assert not runs(kept, "two")


def test_a_model_of_a_collection_keeps_a_pass_of_its_own(tmp_path: Path) -> None:
    kept = KeptPasses(tmp_path / "passes")
    assert runs(kept, "one", test="contract-timm:resnet18")
    assert runs(kept, "two", test="contract-timm_resnet18")
    assert not runs(kept, "one", test="contract-timm:resnet18")
    assert not runs(kept, "two", test="contract-timm_resnet18")
    write_committed(tmp_path / "passes", tmp_path / "committed.txt")
    here = KeptPasses(tmp_path / "here", read_committed(tmp_path / "committed.txt"))
    assert not runs(here, "one", test="contract-timm:resnet18")


def test_a_session_that_runs_everything_keeps_its_passes(tmp_path: Path) -> None:
    everything = KeptPasses(tmp_path, runs_all=True)
    assert runs(everything, "one")
    assert runs(everything, "one")
    assert not runs(KeptPasses(tmp_path), "one")


def test_committed_passes_count_like_those_of_this_machine(tmp_path: Path) -> None:
    assert runs(KeptPasses(tmp_path / "there"), "one")
    write_committed(tmp_path / "there", tmp_path / "committed.txt")
    committed = read_committed(tmp_path / "committed.txt")
    here = KeptPasses(tmp_path / "here", committed)
    assert not runs(here, "one")
    assert runs(here, "two")
    assert runs(here, "one", test="contract-other")
    assert runs(KeptPasses(tmp_path / "here", committed, runs_all=True), "one")
    assert read_committed(tmp_path / "none.txt") == {}


def test_passes_that_came_with_the_clone_stay_committed(tmp_path: Path) -> None:
    for folder, test in (("there", "contract-one"), ("here", "contract-other"), ("there", "contract-one")):
        assert runs(KeptPasses(tmp_path / folder, runs_all=True), folder, test=test)
        write_committed(tmp_path / folder, tmp_path / "committed.txt")
    assert sorted(read_committed(tmp_path / "committed.txt")) == ["contract-one", "contract-other"]


def distribution(name: str, version: str, place: str) -> SimpleNamespace:
    return SimpleNamespace(name=name, version=version, locate_file=lambda _: place)


def test_only_tested_packages_and_the_minor_version_of_python_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("# tested\nPyYAML==6.0\nmore_itertools==10.0\nmkdocs==1.6\n")
    site_packages = sysconfig.get_path("purelib")

    def found(*installed: tuple[str, str], python: str = "3.11.7", place: str = site_packages) -> list[str]:
        packages = [
            distribution("pyyaml", "6.0", site_packages),
            *(distribution(name, version, place) for name, version in installed),
        ]
        monkeypatch.setattr("kept_passes.importlib.metadata.distributions", lambda: packages)
        monkeypatch.setattr("kept_passes.needed", lambda _: {"pyyaml", "more-itertools"})
        monkeypatch.setattr("kept_passes.platform.python_version_tuple", lambda: tuple(python.split(".")))
        return software(constraints)

    tested = found(("more-itertools", "10.0"))
    assert found(("more-itertools", "10.0"), ("ipython", "9.0"), python="3.11.9") == tested
    assert found(("more-itertools", "10.0"), ("mkdocs", "1.6")) == tested  # it only builds the site
    assert found(("more-itertools", "10.1")) != tested
    assert found() != tested
    assert found(("more-itertools", "10.0"), python="3.12.1") != tested
    assert found(("more-itertools", "10.0"), place=f"{site_packages}/ray/thirdparty_files") == found()


def test_what_is_needed_is_what_is_needed_by_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    requires = {
        "zoo": ["msgspec>=0.19", 'A_b[fast]; extra == "models"', 'mkdocs; extra == "docs"'],
        "A_b": ["c", 'd; extra == "fast"', 'e; extra == "slow"', 'f; python_version < "3"'],
        "d": ["zoo"],
        "c": None,
    }

    def requires_of(name: str) -> list[str] | None:
        if name not in requires:
            raise importlib.metadata.PackageNotFoundError
        return requires[name]

    monkeypatch.setattr("kept_passes.importlib.metadata.requires", requires_of)
    assert needed("zoo[models]") == {"zoo", "msgspec", "a-b", "c", "d"}
    assert needed("zoo") == {"zoo", "msgspec"}


@pytest.mark.parametrize("outcome", [AssertionError, KeyboardInterrupt, pytest.skip.Exception])
def test_only_a_pass_is_kept(tmp_path: Path, outcome: type[BaseException]) -> None:
    kept = KeptPasses(tmp_path)
    assert runs(kept, "one")
    with pytest.raises(outcome), kept.unless_unchanged("contract-tiny", "two"):
        raise outcome
    assert runs(kept, "two")
    with pytest.raises(outcome), KeptPasses(tmp_path, runs_all=True).unless_unchanged("contract-tiny", "two"):
        raise outcome
    assert runs(kept, "two")  # the pass before the failure counts no more


def test_a_fingerprint_is_of_names_and_contents(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    (folder / "a.py").write_text("a")
    (folder / "parts" / "b.py").write_text("b")
    seen = {fingerprint([folder], ["torch 2.15"])}

    def is_new(facts: list[str] | None = None) -> bool:
        found = fingerprint([folder], facts or ["torch 2.15"])
        return found not in seen and not seen.add(found)

    assert not is_new()
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "a.pyc").write_text("compiled")
    assert not is_new()
    assert is_new(["torch 2.16"])
    (folder / "a.py").write_text("A")
    assert is_new()
    (folder / "a.py").rename(folder / "c.py")
    assert is_new()
    (folder / "parts" / "b.py").write_text("B")
    assert is_new()
    (folder / "parts" / "d.py").write_text("")
    assert is_new()
    (folder / "parts" / "d.py").unlink()
    (folder / "c.py").write_text("Ab.py 1\nB")  # no content can look like another file
    assert is_new()


def test_comments_and_layout_of_python_do_not_count_and_all_else_does(tmp_path: Path) -> None:
    def found(text: str, name: str = "a.py") -> str:
        (tmp_path / name).write_text(text)
        return fingerprint([tmp_path / name])

    code = found("def f(x):\n    return x + 1\n")
    assert found("# why\ndef f(\n    x,\n): return (x + 1)  # here\n") == code
    assert found("def f(x):\n    return x + 2\n") != code
    assert found("def f(x):\n    'Docstring.'\n    return x + 1\n") != code
    assert found("def f(x: return") != found("def f(x: return ")  # no Python
    assert found("# one\n", "a.yaml") != found("# two\n", "a.yaml")
