"""Calls uv or pip to make an environment, and finds the line of their messages that says what went wrong."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.install import pip_error
from torchzoo.zoo.requirements import is_installed

#: Runs a command with these environment variables, adds what it prints to a file, and returns its exit status.
Run = Callable[[Sequence[str], Mapping[str, str], Path], int]

#: Variables of the calling shell that would lead an installer, git or another Python to the wrong place.
_MISLEADING = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")

#: A setting of pip, the variable of uv for it, and what stands between several values there. (`UV_INDEX` comes before
#: `UV_DEFAULT_INDEX`, but uv takes the best version of all indexes, as pip does: see `UV_INDEX_STRATEGY` below.)
_OF_UV = (
    ("index-url", "UV_DEFAULT_INDEX", " "),
    ("extra-index-url", "UV_INDEX", " "),
    ("find-links", "UV_FIND_LINKS", ","),
    ("no-index", "UV_NO_INDEX", " "),
    ("trusted-host", "UV_INSECURE_HOST", " "),
    ("cert", "SSL_CERT_FILE", " "),
    ("timeout", "UV_HTTP_TIMEOUT", " "),
    ("default-timeout", "UV_HTTP_TIMEOUT", " "),
    ("proxy", "ALL_PROXY", " "),
)

#: What uv, pip and git print where the disk is full, or the network or a server fails.
_PASSING = re.compile(
    r"No space left on device|Disk quota exceeded"
    r"|error sending request|dns error|tcp connect error|HTTP status server error"
    r"|(NewConnection|ConnectTimeout|ReadTimeout|IncompleteRead|ConnectionReset)Error|Read timed out"
    r"|Temporary failure in name resolution|Could not resolve host|Network is unreachable",
    re.IGNORECASE,
)


class EnvironmentInstaller(msgspec.Struct, frozen=True, kw_only=True):
    """Uv, or pip where there is no uv."""

    uv: str | None = None  # the program's path; None for pip

    @property
    def name(self) -> str:
        return "pip" if self.uv is None else "uv"

    def make_venv(self, folder: Path) -> list[str]:
        """The command that makes an empty virtual environment of this Python."""
        if self.uv is None:
            return [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        return [self.uv, "venv", "--python", sys.executable, str(folder)]

    def install(self, python: Path, arguments: Sequence[str], *, has_prereleases: bool) -> list[str]:
        """The command that installs into the environment of `python`."""
        if self.uv is None:
            pre = ["--pre"] if has_prereleases else []
            return [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-input", *pre, *arguments]
        pre = ["--prerelease", "allow"] if has_prereleases else []
        return [self.uv, "pip", "install", "--python", str(python), *pre, *arguments]

    @property
    def compiles(self) -> bool:
        """Whether installing compiles the bytecode. Where it does not, the first import would, in some measurement."""
        return self.uv is None

    def variables(self, extra: Mapping[str, str]) -> dict[str, str]:
        """The environment variables of these commands. Pip's own settings, such as its indexes, reach uv as well.

        Args:
            extra: variables of the SPEC that are for the installer.
        """
        found = clean_variables() | dict(extra)
        return found if self.uv is None else uv_variables(pip_settings(found), found)


def find_installer(name: str | None = None) -> EnvironmentInstaller:
    """Uv where it is there, else pip.

    Args:
        name: `uv` or `pip` to have that one.

    Raises:
        TorchzooError: it is not there.
    """
    beside = str(Path(sys.executable).parent)
    uv = None if name == "pip" else shutil.which("uv") or shutil.which("uv", path=beside)
    if uv is None and name == "uv":
        raise TorchzooError("uv is not installed: pip install uv")
    if uv is None and not is_installed("pip"):
        raise TorchzooError(f"{sys.executable} has neither uv nor pip: install one of them")
    return EnvironmentInstaller(uv=uv)


def clean_variables() -> dict[str, str]:
    """The variables of this process, without those that lead other programs to the wrong place."""
    return {name: value for name, value in os.environ.items() if name not in _MISLEADING and name[:4] != "GIT_"}


def pip_settings(variables: Mapping[str, str]) -> dict[str, list[str]]:
    """The values of pip's settings for `pip install`, by name; nothing where there is no pip.

    Settings of the environment come before those of `[install]` in pip's files, and these before those of `[global]`.
    """
    command = [sys.executable, "-m", "pip", "config", "list"]
    done = attempt(
        lambda: subprocess.run(  # noqa: S603  this Python
            command, check=False, capture_output=True, text=True, env=dict(variables)
        )
    )
    if isinstance(done, Exception) or done.returncode:
        return {}
    by_place: dict[str, dict[str, list[str]]] = {"global": {}, "install": {}, ":env:": {}}
    for place, name, value in re.findall(r"^(global|install|:env:)\.([\w-]+)=(.+)$", done.stdout, re.MULTILINE):
        text = attempt(functools.partial(ast.literal_eval, value))
        if isinstance(text, str):
            by_place[place][name] = text.split()
    return by_place["global"] | by_place["install"] | by_place[":env:"]


def uv_variables(settings: Mapping[str, Sequence[str]], variables: Mapping[str, str]) -> dict[str, str]:
    """The variables with pip's settings added as uv's. What is set for uv already stays."""
    found = dict(variables)
    chooses_index = {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX"} & set(found)
    for name, variable, between in _OF_UV:
        values = settings.get(name)
        if values and variable not in found and not (chooses_index and "INDEX" in variable):
            found[variable] = between.join(values)
    if settings.get("pre", ["false"])[0].lower() in ("1", "true", "yes", "on"):
        found.setdefault("UV_PRERELEASE", "allow")
    found.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return found


def run_logged(command: Sequence[str], variables: Mapping[str, str], log: Path) -> int:
    """Run a command. It and all that it prints are added to the log. Returns the exit status.

    Raises:
        OSError: it can't be started, or the log can't be written.
    """
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode(errors="backslashreplace"))
        file.flush()
        return subprocess.run(  # noqa: S603  uv, pip or git with what was asked for
            command, check=False, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=dict(variables)
        ).returncode


def essential_line(output: str, status: int) -> str:
    """The line of an installer's messages that says what went wrong."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    full = [line.strip() for line in plain.splitlines() if "No space left on device" in line]
    if full:
        return one_line(full[-1])
    causes = re.split(
        r"^\s*(?:cause:|Caused by:|\N{BOX DRAWINGS LIGHT ARC UP AND RIGHT}\S*)\s", plain, flags=re.MULTILINE
    )
    if len(causes) > 1:  # of uv, the last is the first cause; it may be wrapped
        return one_line(re.split(r"\n\s*(?:\n|\[|hint:)", causes[-1])[0])
    return one_line(pip_error(plain, status))


def is_passing(output: str) -> bool:
    """Whether an installer failed for a reason that has nothing to do with what it was asked for."""
    return _PASSING.search(output) is not None


def is_conflict(output: str) -> bool:
    """Whether an installer says that versions don't fit together. (Then some might fit that are not kept.)"""
    if re.search(r"there is no version of (\S+) and you require\s+\1", " ".join(output.split())):
        return False  # what is asked for does not exist
    return "No solution found" in output or "ResolutionImpossible" in output or "conflicting dependencies" in output
