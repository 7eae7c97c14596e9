"""Tiny packages, and an installer that stands for uv: it makes real virtual environments, quickly."""

from __future__ import annotations

import re
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote, urlparse

from packaging.requirements import Requirement

from torchzoo.environments import cache as kept
from torchzoo.environments.make import PythonEnvironment, run_logged

#: What torchzoo requires, where the packages are those of tests/history/conftest.py.
OWN = ["tzbase>=1", "tztorch>=1", "tzvision>=1", "tzlib"]

#: A library without any tool that must be downloaded to build it.
BACKEND = """
import zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    version = open("version").read().strip()
    name = f"tzlib-{version}-py3-none-any.whl"
    info = f"tzlib-{version}.dist-info"
    with zipfile.ZipFile(f"{folder}/{name}", "w") as wheel:
        wheel.writestr("tzlib.py", f"version = {version!r}")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\\nName: tzlib\\nVersion: {version}\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
PROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


def metadata(name: str, version: str, requires: Sequence[str] = ()) -> str:
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}"


def add_installed(site: Path, name: str, version: str, requires: Sequence[str] = ()) -> None:
    """Make a package that Python takes for installed."""
    folder = site / f"{name.replace('-', '_')}-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(metadata(name, version, requires))


def make_wheel(folder: Path, name: str, version: str, requires: Sequence[str] = ()) -> Path:
    stem = f"{name.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name.replace('-', '_')}.py", f"version = {version!r}\n")
        wheel.writestr(f"{stem}.dist-info/METADATA", metadata(name, version, requires))
        wheel.writestr(
            f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{stem}.dist-info/RECORD", "")
    return path


def make_index(folder: Path, versions: Mapping[str, str]) -> str:
    """A simple index with one wheel of each package. Returns its URL."""
    for name, version in versions.items():
        wheel = make_wheel(folder / name, name, version)
        (folder / name / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return folder.as_uri()


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def make_repository(folder: Path, versions: Sequence[str]) -> list[str]:
    """A repository of `tzlib` with a commit for each version. Returns the commits."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "pyproject.toml").write_text(PROJECT)
    (folder / "backend.py").write_text(BACKEND)
    commits = []
    for version in versions:
        (folder / "version").write_text(version)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", version)
        commits.append(git(folder, "rev-parse", "HEAD"))
    return commits


class FakeInstaller:
    """Installs what it is asked for by writing metadata. The newest version of everything is 9.0."""

    def __init__(self, *, sleep_s: float = 0.0) -> None:
        self.installs: list[list[str]] = []  # the lines of each call's requirements
        self.constraints: list[list[str]] = []
        self.variables: dict[str, str] = {}
        self.sleep_s = sleep_s
        self.fails: list[str] = []  # what the next calls print before they fail
        self.instead: dict[str, str] = {}  # versions that are installed whatever is asked for

    def __call__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> int:
        if command[0] == "git":
            return run_logged(command, variables, log)
        if "install" not in command:
            venv.EnvBuilder(symlinks=True).create(command[-1])
            return 0
        self.variables = dict(variables)
        lines = Path(command[command.index("-r") + 1]).read_text().split("\n")[:-1]
        constraints = Path(command[command.index("-c") + 1]).read_text().split("\n")[:-1]
        self.installs.append(lines)
        self.constraints.append(constraints)
        time.sleep(self.sleep_s)
        if self.fails:
            log.write_text(self.fails.pop(0))
            return 1
        site = Path(command[command.index("--python") + 1]).parents[1] / "lib"
        site = site / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        kept = dict(line.split("==") for line in constraints)
        for line in lines:
            asked = Requirement(line)
            version = self.instead.get(asked.name) or self._version(asked, kept)
            add_installed(site, asked.name, version)
        return 0

    @staticmethod
    def _version(asked: Requirement, kept: Mapping[str, str]) -> str:
        if asked.url is not None:
            path = Path(unquote(urlparse(asked.url).path))
            return path.name.split("-")[1] if path.suffix == ".whl" else (path / "version").read_text()
        pin = re.fullmatch(r"===?([^,=]+)", str(asked.specifier))
        return pin[1] if pin else kept.get(asked.name, "9.0")


def packages(cache: Path, environment: PythonEnvironment) -> dict[str, str]:
    """What a made environment has."""
    made = kept.read_made(cache, environment.key)
    assert made is not None
    return made.packages
