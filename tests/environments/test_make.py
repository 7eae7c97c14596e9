"""Environments from a SPEC: what is kept and what is free, once and by content; and everything that goes wrong."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import torchzoo
from examples import ROOT
from made_packages import OWN, FakeInstaller, add_installed, git, make_repository, make_wheel, packages
from torchzoo.environments import cache as kept
from torchzoo.environments import pins
from torchzoo.environments.make import EnvironmentNotMade, NotMadeNow, PythonEnvironment, prepare
from torchzoo.errors import TorchzooError, UsageError

CONFLICT = "error: No solution found\n  cause: Because tztorch==3.0 depends on tzmath>=2 and you require tzmath==1.0\n"


pytestmark = pytest.mark.usefixtures("here")


# --- what is kept and what is free ---


def test_what_belongs_to_the_changed_package_is_free_and_all_else_is_kept(cache: Path, fake: FakeInstaller) -> None:
    environment = prepare("tztorch==3.0", cache, fake)
    assert fake.installs == [["tztorch===3.0", "tzbase>=1", "tzlib", "tzvision>=1"]]
    assert fake.constraints == [["tzbase==1.5", "tzlib==1.0", "tzmath==1.0"]]
    assert packages(cache, environment) == {"tzbase": "1.5", "tzlib": "1.0", "tztorch": "3.0", "tzvision": "9.0"}
    made = kept.read_made(cache, environment.key)
    assert made is not None
    assert (made.free, made.is_relaxed, made.spec) == (("tztriton", "tzvision"), False, "tztorch==3.0")


@pytest.mark.parametrize(
    ("wanted", "free"),
    [
        ({"tztorch": "2.0"}, ()),  # what is here
        ({"tzbase": "1.6"}, ()),
        ({"tzbase": "2.0"}, ("tzlib",)),  # tzlib does not allow it
        ({"tztriton": "8.0"}, ("tztorch", "tzvision")),
        ({"tznew": "1.0"}, ()),
        ({"tzlib": None}, ()),
    ],
)
def test_a_package_is_free_if_it_could_not_stay(wanted: dict[str, str | None], free: tuple[str, ...]) -> None:
    assert pins.choose(wanted).free == free


def test_where_versions_do_not_fit_what_the_package_needs_is_free_too(cache: Path, fake: FakeInstaller) -> None:
    fake.fails = [CONFLICT]
    environment = prepare("tztorch==3.0", cache, fake)
    assert fake.constraints[1] == ["tzbase==1.5", "tzlib==1.0"]
    made = kept.read_made(cache, environment.key)
    assert made is not None
    assert made.is_relaxed
    assert "tzmath" in made.free


def test_the_requirements_are_those_of_torchzoo_and_its_models(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    names = {pins.distribution_name(line) for line in pins.own_requirements()}
    assert {"torch", "msgspec", "torchvision", "timm"} <= names
    assert not {"pytest", "torchzoo"} & names
    here = pins.installed(["torch"])
    assert here["torch"].version.startswith("2.")


# --- environments ---


def test_this_environment_and_settings_need_no_build(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    this, other = prepare("this", cache), prepare(".,A=1,PYTHONPATH=/mine", cache)
    assert this.python == other.python == sys.executable
    assert this.key == other.key
    assert this.variables == {"PYTHONPATH": f"{ROOT}:/theirs"}
    assert other.variables == {"A": "1", "PYTHONPATH": f"{ROOT}:/mine"}
    assert other.name == ".,A=1,PYTHONPATH=/mine"
    assert not cache.exists()


def test_an_existing_python_is_used_as_it_is(cache: Path, tmp_path: Path) -> None:
    environment = prepare(f"python={sys.executable},A=1", cache)
    assert environment.python == sys.executable
    assert environment.variables == {"A": "1", "PYTHONPATH": str(ROOT)}
    for script, words in [
        ("#!/bin/sh\necho no >&2\nexit 1", "can't be used: no"),
        ("#!/bin/sh\nexit 1", "it is no Python"),
        ("no program", "Exec format error"),
        (
            '#!/bin/sh\necho \'{"version": "3.9.1", "is_new": false, "packages": {}}\'',
            "is Python 3.9.1: torchzoo needs",
        ),
        ('#!/bin/sh\necho \'{"version": "3.12.1", "is_new": true, "packages": {}}\'', "has no msgspec, filelock"),
    ]:
        path = tmp_path / "python"
        path.write_text(script)
        path.chmod(0o755)
        with pytest.raises(UsageError, match="python=") as error:
            prepare(f"python={path}", cache)
        assert words in str(error.value)


def test_an_environment_is_made_once_and_known_by_its_content(
    cache: Path, fake: FakeInstaller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare("tztorch==3.0", cache, fake)
    again = prepare("tztorch==3,A=1", cache, fake)
    assert (again.python, again.key, len(fake.installs)) == (first.python, first.key, 1)
    assert first.variables == {"PYTHONPATH": str(ROOT)}
    other = prepare("tztorch==3.0,PIP_EXTRA_INDEX_URL=https://example.org", cache, fake)
    assert other.key != first.key
    assert fake.variables["PIP_EXTRA_INDEX_URL"] == "https://example.org"
    wheels = [make_wheel(tmp_path / name, "tzlib", "3.0", needs) for name, needs in (("a", []), ("b", ["tzbase"]))]
    keys = {prepare(str(wheel), cache, fake).key for wheel in wheels}
    assert len(keys) == 2
    add_installed(tmp_path / "newer", "tzbase", "1.6")
    monkeypatch.syspath_prepend(str(tmp_path / "newer"))
    assert prepare("tztorch==3.0", cache, fake).key != first.key


def test_a_commit_is_installed_and_its_repository_stays_as_it_is(
    cache: Path, fake: FakeInstaller, tmp_path: Path
) -> None:
    commits = make_repository(tmp_path / "lib", ["1.0", "2.0"])
    (tmp_path / "lib" / "version").write_text("not committed")
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "lib").rglob("*")}
    first = prepare(f"tzlib@{tmp_path}/lib:HEAD~1", cache, fake)
    assert packages(cache, first)["tzlib"] == "1.0"
    assert prepare(f"tzlib@{tmp_path}/lib:{commits[0]}", cache, fake).key == first.key
    assert packages(cache, prepare(f"tzlib@{tmp_path}/lib:HEAD", cache, fake))["tzlib"] == "2.0"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "lib").rglob("*")} == files
    assert "lib" in git(tmp_path / "lib", "worktree", "list")
    assert not list(cache.glob("*/*-sources"))


def test_from_a_wheel_the_code_is_the_package_alone(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "torchzoo"
    (package / "_bundled").mkdir(parents=True)
    (package / "__init__.py").write_text("x = 1")
    monkeypatch.setattr(torchzoo, "__file__", str(package / "__init__.py"))
    code = kept.code_folder(cache)
    assert code.parent == cache / "code"
    assert [path.name for path in code.iterdir()] == ["torchzoo"]
    assert kept.code_folder(cache) == code
    assert (code / "torchzoo" / "__init__.py").read_text() == "x = 1"
    assert prepare("this", cache).variables == (
        {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    )


# --- what goes wrong ---


def test_a_version_that_does_not_exist_is_one_line_with_the_log(cache: Path, fake: FakeInstaller) -> None:
    fake.fails = ["error: no version of tztorch==77\n"]
    with pytest.raises(EnvironmentNotMade) as error:
        prepare("tztorch==77", cache, fake)
    log = next(cache.glob("*/install.log"))
    assert str(error.value) == (
        f"can't make the environment tztorch==77: error: no version of tztorch==77; the whole log: {log}"
    )
    assert [path.name for path in log.parent.iterdir()] == ["install.log"]
    prepare("tztorch==77", cache, fake)  # the next try is a new one
    assert len(fake.installs) == 2


def test_another_version_than_the_one_asked_for_is_an_error(cache: Path, fake: FakeInstaller) -> None:
    fake.instead = {"tztorch": "3.0"}
    with pytest.raises(EnvironmentNotMade, match=r"uv installed tztorch 3\.0 instead of tztorch===3\.1\.dev5"):
        prepare("tztorch==3.1.dev5", cache, fake)
    assert kept.entries(cache)[0].made is None
    fake.instead = {"tztorch": "3.1+cpu"}
    with pytest.raises(EnvironmentNotMade, match=r"uv installed tztorch 3\.1\+cpu instead of tztorch===3\.1"):
        prepare("tztorch==3.1", cache, fake)
    assert packages(cache, prepare("tztorch==3.1+cpu", cache, fake))["tztorch"] == "3.1+cpu"


def test_a_release_is_of_the_same_build_as_the_one_here(tmp_path: Path) -> None:
    add_installed(tmp_path / "site", "tzcuda", "2.15.0+cu130")
    add_installed(tmp_path / "site", "tzplain", "2.15.0")
    assert pins.exactly("tzcuda", "2.14.1") == "tzcuda==2.14.1+cu130"
    assert pins.exactly("tzcuda", "2.14.1+cpu") == "tzcuda==2.14.1+cpu"
    assert pins.exactly("tzplain", "2.14") == "tzplain===2.14.0"
    assert pins.exactly("tzplain", "2.14.0.dev1") == "tzplain===2.14.0.dev1"
    assert pins.exactly("tznew", "2.14") == "tznew==2.14"


def test_a_conflict_that_stays_is_told_as_it_was_first(cache: Path, fake: FakeInstaller) -> None:
    fake.fails = [CONFLICT, "error: another\n"]
    with pytest.raises(EnvironmentNotMade, match=r"Because tztorch==3\.0 depends on tzmath"):
        prepare("tztorch==3.0", cache, fake)


def test_a_cache_that_can_not_be_written_is_one_line(tmp_path: Path, fake: FakeInstaller) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TorchzooError, match=r"can't write to .*: Not a directory; name another folder"):
        prepare("tztorch==3.0", tmp_path / "file" / "cache", fake)


def test_a_full_disk_is_one_line_and_leaves_nothing(cache: Path) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device", "/x")

    with pytest.raises(EnvironmentNotMade, match=r"tztorch==3\.0: /x: No space left on device"):
        prepare("tztorch==3.0", cache, full)
    assert not list(cache.glob("*/venv-*"))


def test_two_builders_make_it_once(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow, found = FakeInstaller(sleep_s=0.3), list[PythonEnvironment]()
    threads = [threading.Thread(target=lambda: found.append(prepare("tztorch==3.0", cache, slow))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(slow.installs) == 1
    assert len({environment.python for environment in found}) == 1
    assert "another torchzoo makes or deletes the environment" in capsys.readouterr().err


SCRIPT = """
import sys, time
sys.path[:0] = [{tests!r}, {site!r}]
from pathlib import Path
from made_packages import FakeInstaller
from torchzoo.environments import pins
from torchzoo.environments.make import prepare
pins.own_requirements = lambda: {own!r}
prepare("tztorch==3.0", Path({cache!r}), FakeInstaller(sleep_s=60))
"""


@pytest.fixture
def builder(cache: Path, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is making an environment, and never comes to its end."""
    names = {"tests": str(ROOT / "tests"), "site": str(tmp_path / "site"), "cache": str(cache)}
    command = [sys.executable, "-c", SCRIPT.format(own=OWN, **names)]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)})
    while not list(cache.glob("*/venv-*/constraints.txt")):
        time.sleep(0.02)
    yield process
    process.kill()
    process.wait()


def test_a_builder_that_was_killed_leaves_nothing_that_is_used(
    cache: Path, fake: FakeInstaller, builder: subprocess.Popen[bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    entry = kept.entries(cache)[0]
    assert (entry.made, entry.is_locked) == (None, True)
    assert kept.prune(cache, [entry.key]) == ([], 0)
    assert entry.key in capsys.readouterr().err
    builder.kill()
    builder.wait()
    (half,) = cache.glob("*/venv-*")
    environment = prepare("tztorch==3.0", cache, fake)
    assert len(fake.installs) == 1
    assert list(cache.glob("*/venv-*")) == [Path(environment.python).parents[1]]
    assert not half.exists()


def test_what_a_killed_builder_left_is_pruned_without_being_named(cache: Path, fake: FakeInstaller) -> None:
    environment = prepare("tztorch==3.0", cache, fake)
    folder = cache / environment.key
    (folder / "venv-00000000").mkdir()
    (folder / "venv-00000000" / "file").write_bytes(b"x" * 100_000)
    (cache / "0123456789abcdef").mkdir()
    deleted, size_bytes = kept.prune(cache, [])
    assert deleted == ["0123456789abcdef"]
    assert size_bytes >= 100_000
    assert Path(environment.python).exists()
    assert not (folder / "venv-00000000").exists()


def test_an_environment_whose_python_is_gone_is_made_again(cache: Path, fake: FakeInstaller) -> None:
    environment = prepare("tztorch==3.0", cache, fake)
    Path(environment.python).unlink()
    assert Path(prepare("tztorch==3.0", cache, fake).python).exists()


def test_an_environment_that_somebody_changed_is_not_used(cache: Path, fake: FakeInstaller) -> None:
    environment = prepare("tztorch==3.0", cache, fake)
    (site,) = Path(environment.python).parents[1].glob("lib/python*/site-packages")
    add_installed(site, "tzmore", "1.0")
    advice = f"tzmore changed; `torchzoo env prune {environment.key}` deletes it"
    with pytest.raises(EnvironmentNotMade, match=advice):
        prepare("tztorch==3.0", cache, fake)
    kept.prune(cache, [environment.key])
    assert Path(prepare("tztorch==3.0", cache, fake).python).exists()


@pytest.mark.parametrize(
    ("printed", "passes"),
    [
        (
            "error: Failed to fetch: http://a/six/\n  cause: error sending request for url\n  cause: tcp connect error",
            True,
        ),
        ("OSError: [Errno 28] No space left on device", True),
        ("error: Failed to fetch: http://a/six/\n  cause: HTTP status client error (404 Not Found)", False),
        ("  cause: Because there is no version of tztorch==3.0 and you require tztorch==3.0", False),
    ],
)
def test_a_failure_that_may_pass_is_told_from_one_of_the_version(
    cache: Path, fake: FakeInstaller, printed: str, *, passes: bool
) -> None:
    fake.fails = [printed, printed]
    with pytest.raises(EnvironmentNotMade) as raised:
        prepare("tztorch==3.0", cache, fake)
    assert isinstance(raised.value, NotMadeNow) is passes
