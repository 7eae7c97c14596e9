"""What lies between two versions: commits of a real checkout, and releases of a folder of empty wheels."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.version import Version

from torchzoo.environments.parsing import with_index
from torchzoo.errors import UsageError
from torchzoo.history import candidates
from torchzoo.history.candidates import about_commit, short_name

VERSIONS = ("1.0", "1.1rc1", "1.1", "1.2.dev20261101+cpu", "1.2.dev20261102", "1.2.dev20261103", "1.2")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A checkout with five commits on its main line and two of a branch that was merged; the main line's commits."""
    folder = tmp_path_factory.mktemp("checkout")

    def git(*words: str) -> str:
        who = ["-c", "user.name=Ada Lovelace", "-c", "user.email=ada@example.org"]
        return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout

    def commit(subject: str) -> str:
        git("commit", "--allow-empty", "-qm", subject, "--date", "2026-11-01T10:00:00")
        return git("rev-parse", "HEAD").strip()

    git("init", "-q", "-b", "main")
    line = [commit("first"), commit("second")]
    git("checkout", "-qb", "side")
    commit("on the side")
    git("tag", "side-work")
    commit("more on the side")
    git("checkout", "-q", "main")
    line.append(commit("third: faster\tlayers"))
    git("merge", "-q", "--no-ff", "-m", "merged", "side")
    line += [git("rev-parse", "HEAD").strip(), commit("last")]
    git("tag", "v2")
    git("checkout", "-q", "--orphan", "other")
    commit("unrelated")
    return folder, line


def test_from_a_merged_branch_the_line_goes_through_the_merge(checkout: tuple[Path, list[str]]) -> None:
    folder, line = checkout
    found = candidates.candidates(f"timm@{folder}:side-work", f"timm@{folder}:v2")
    subjects = [about_commit(spec).rpartition(": ")[2] for spec in found]
    assert subjects == ["on the side", "more on the side", "merged", "last"]
    assert [spec.rpartition(":")[2] for spec in found[2:]] == line[3:]


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("v2", "main~4", "is not an ancestor of the bad commit .*: it is newer: exchange them"),
        ("other", "v2", "is not an ancestor of the bad commit .*: the two have no common line"),
        ("v2~1", "v2", "nothing lies between"),
        ("v2", "main", "good and bad are the same: timm@"),
        ("nothing", "v2", "has no commit 'nothing'"),
        ("--all", "v2", "names no commit"),
    ],
)
def test_commits_that_are_no_pair(checkout: tuple[Path, list[str]], good: str, bad: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        candidates.candidates(f"timm@{checkout[0]}:{good}", f"timm@{checkout[0]}:{bad}")


def test_a_folder_that_is_no_checkout(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a git repository"):
        candidates.candidates(f"timm@{tmp_path}:a", f"timm@{tmp_path}:b")
    with pytest.raises(UsageError, match="there is no folder /no/where"):
        candidates.candidates("timm@/no/where:a", "timm@/no/where:b")


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A simple index with one package, which pip reads: its only configuration. Returns the URL."""
    folder = tmp_path / "simple" / "tinyzoo"
    folder.mkdir(parents=True)
    wheels = [f"tinyzoo-{version}-py3-none-any.whl" for version in VERSIONS]
    (folder / "index.html").write_text("\n".join(f'<a href="{name}">{name}</a>' for name in wheels))
    for name in wheels:
        (folder / name).touch()
    url = folder.parent.as_uri()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    return url


def versions(*arguments: str, **options: object) -> list[str]:
    return [spec.removeprefix("tinyzoo==") for spec in candidates.candidates(*arguments, **options)]  # type: ignore[arg-type]


@pytest.mark.usefixtures("index")
def test_releases() -> None:
    assert versions("tinyzoo==1.0", "tinyzoo==1.2") == ["1.0", "1.1", "1.2"]
    assert versions("tinyzoo==1.0", "tinyzoo==1.1", pre_releases=True) == ["1.0", "1.1rc1", "1.1"]
    assert versions("tinyzoo==1.0", "tinyzoo==1.2.dev20261103") == [
        "1.0", "1.2.dev20261101+cpu", "1.2.dev20261102", "1.2.dev20261103",
    ]  # fmt: skip
    with pytest.raises(UsageError, match=r"nothing lies between tinyzoo==1\.1 and tinyzoo==1\.2"):
        versions("tinyzoo==1.1", "tinyzoo==1.2")
    with pytest.raises(UsageError, match=r"pip finds no tinyzoo==1\.0\.7 for this Python: did you mean 1\.0 or"):
        versions("tinyzoo==1.0.7", "tinyzoo==1.2")
    with pytest.raises(UsageError, match=r"tinyzoo==1\.3 for this Python: did you mean 1\.2\?"):
        versions("tinyzoo==1.1", "tinyzoo==1.3")  # and not 1.1
    with pytest.raises(UsageError, match="pip finds no package nosuchzoo in its index"):
        versions("nosuchzoo==1", "nosuchzoo==2")


def test_versions_of_an_index_that_the_specs_name(index: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "empty").as_uri())
    good, bad = (with_index(f"tinyzoo==1.2.dev2026110{day}", index) for day in (1, 3))
    assert candidates.candidates(good, bad) == tuple(f"tinyzoo==1.2.dev2026110{day},index={index}" for day in (1, 2, 3))
    with pytest.raises(UsageError, match=rf"pip finds no package nosuchzoo in its index and {index} for this Python"):
        candidates.candidates(with_index("nosuchzoo==1", index), with_index("nosuchzoo==2", index))


def test_other_packages_of_a_spec_stay_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "offered_versions", lambda *_, **__: list(map(Version, ("2.11", "2.12", "2.13"))))
    found = candidates.candidates("torch==2.11,timm==1.0", "timm==1.0,torch==2.13")
    assert found == ("torch==2.11,timm==1.0", "torch==2.12,timm==1.0", "torch==2.13,timm==1.0")
    assert short_name(found[1]) == "2.12"
    assert about_commit(found[1]) == ""
    found = candidates.candidates("A=1,torch==2.11", "torch==2.13,A=1")
    assert found == ("torch==2.11,A=1", "torch==2.12,A=1", "torch==2.13,A=1")
    assert short_name(found[1]) == "2.12"


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("torch==2.11", "torch==2.11", "good and bad are the same"),
        ("torch==2.12", "torch==2.11", "the good version 2.12 is not older than the bad version 2.11"),
        ("torch==new", "torch==2.11", "'new' is no version"),
        ("torch==2.11", "timm==1.0", "can't find what lies between"),
        ("torch==2.11,timm==1", "torch==2.12,timm==2", "can't find what lies between"),
        ("A=1", "A=2", "can't find what lies between"),
    ],
)
def test_specs_that_are_no_pair(good: str, bad: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        candidates.candidates(good, bad)
