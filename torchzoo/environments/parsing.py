"""The words for a software environment: `torch==2.14.1`, a wheel, a commit, an index, a Python, settings."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from torchzoo.errors import UsageError, attempt, one_line
from torchzoo.zoo.requirements import distribution_name, is_installed

FORMS = "PACKAGE==VERSION, a wheel, LIBRARY@FOLDER:COMMIT, index=URL, python=PATH, VARIABLE=VALUE or this"
#: Variables of the calling shell that would lead uv, git or another Python to the wrong place.
_MISLEADING = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")
#: The words for the environment that torchzoo runs in.
THIS = (".", "this")


class Package(msgspec.Struct, frozen=True, kw_only=True):
    """A release of a package: `torch==2.14.1`."""

    name: str  # normalised
    version: str


class Wheel(msgspec.Struct, frozen=True, kw_only=True):
    """A wheel that is on this machine."""

    name: str  # normalised
    version: str
    path: str  # absolute


class Checkout(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of a library's git repository."""

    name: str  # normalised
    repository: str  # its root, absolute
    subfolder: str  # of the library in the repository; empty if it is the root
    commit: str  # 40 hexadecimal digits, or 64


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What a SPEC asks for."""

    text: str  # as it was given
    packages: tuple[Package, ...] = ()
    wheels: tuple[Wheel, ...] = ()
    checkouts: tuple[Checkout, ...] = ()
    indexes: tuple[str, ...] = ()  # URLs, where packages may come from beside the installer's own indexes
    python: str | None = None  # an existing Python, absolute
    variables: dict[str, str] = {}

    @property
    def wanted(self) -> dict[str, str | None]:
        """The version of each package that the SPEC names; None for a commit, whose version is not known before."""
        releases: dict[str, str | None] = {one.name: one.version for one in self.packages}
        wheels = {one.name: one.version for one in self.wheels}
        return {**releases, **wheels, **dict.fromkeys((one.name for one in self.checkouts), None)}


class _Setting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str


class _Python(msgspec.Struct, frozen=True, kw_only=True):
    path: str


class _Index(msgspec.Struct, frozen=True, kw_only=True):
    url: str


_Part = Package | Wheel | Checkout | _Setting | _Python | _Index


def parse(text: str) -> Spec:
    r"""Read a SPEC: parts between commas. In a part, `\,` is a comma.

    Args:
        text: such as `torch==2.14.1,torchvision==0.29.1`, `timm@/src/timm:abc123`, `OMP_NUM_THREADS=4`, `this`.

    Raises:
        UsageError: a part has no known form, names what is not there, or names the same thing as another part.
    """
    words = [word.strip().replace("\\,", ",") for word in re.split(r"(?<!\\),", text)]
    if not all(words):
        raise UsageError(f"'{text}' has an empty part: write {FORMS}, with commas between several")
    parts = [_part(word, text) for word in words if word not in THIS]
    pythons = [part.path for part in parts if isinstance(part, _Python)]
    settings = [part for part in parts if isinstance(part, _Setting)]
    packages = [part for part in parts if isinstance(part, Package | Wheel | Checkout)]
    indexes = [part.url for part in parts if isinstance(part, _Index)]
    _refuse_twice("the package", (part.name for part in packages), text)
    _refuse_twice("the variable", (part.name for part in settings), text)
    if len(pythons) > 1 or (pythons and (packages or indexes)):
        raise UsageError(f"'{text}': an existing Python is used as it is: give it alone, or with VARIABLE=VALUE")
    return Spec(
        text=text,
        packages=tuple(part for part in packages if isinstance(part, Package)),
        wheels=tuple(part for part in packages if isinstance(part, Wheel)),
        checkouts=tuple(part for part in packages if isinstance(part, Checkout)),
        indexes=tuple(dict.fromkeys(indexes)),
        python=pythons[0] if pythons else None,
        variables={part.name: part.value for part in settings},
    )


def canonical(spec: Spec) -> str:
    """The SPEC with everything in full: whole names of commits, absolute paths. `this` if it asks for nothing."""
    parts = [f"{one.name}=={one.version}" for one in spec.packages]
    parts += [one.path for one in spec.wheels]
    parts += [f"{one.name}@{Path(one.repository) / one.subfolder}:{one.commit}" for one in spec.checkouts]
    parts += [f"index={url}" for url in spec.indexes]
    parts += [f"python={spec.python}"] if spec.python is not None else []
    parts += [f"{name}={value}" for name, value in sorted(spec.variables.items())]
    return ",".join(part.replace(",", "\\,") for part in parts) or "this"


def with_index(text: str, url: str | None) -> str:
    """The SPEC with an index more, from which its packages may come. An existing Python installs nothing.

    Raises:
        UsageError: the SPEC or the URL is wrong.
    """
    spec = parse(text)
    if url is None or spec.python is not None or url in spec.indexes:
        return text
    longer = f"{text},index={url.replace(',', chr(92) + ',')}"
    parse(longer)
    return longer


def _refuse_twice(what: str, names: Iterable[str], text: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"'{text}' names {what} {name} twice: name it once")
        seen.add(name)


def _part(word: str, text: str) -> _Part:
    if match := re.match(r"([A-Za-z0-9._-]+)\s*(?:[<>~!]=|[<>])", word):
        raise UsageError(f"'{word}': a SPEC names one version: write {match[1]}==VERSION")
    if match := re.match(r"([^=/@]*)=(?!=)(.*)", word, re.DOTALL):
        return _setting(match[1], match[2])
    if "==" in word:
        return _package(word)
    if word.endswith(".whl"):
        return _wheel(word)
    if "@" in word:
        return _checkout(word)
    comma = r" (a comma inside a value is written \,)" if "=" in text.replace("==", "") else ""
    raise UsageError(f"'{word}' is no part of a software environment: write {FORMS}{comma}")


def _setting(name: str, value: str) -> _Setting | _Python | _Index:
    if name == "python":
        path = Path(value).expanduser().absolute()  # not resolved: a link to Python makes a virtual environment
        if not path.is_file():
            raise UsageError(f"python={value}: there is no such file: name a Python, such as /venvs/x/bin/python")
        return _Python(path=str(path))
    if name == "index":
        return _index(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
        raise UsageError(f"'{name}' is no name of a variable: use letters, digits and _ in VARIABLE=VALUE")
    if "\0" in value:
        raise UsageError(f"the value of {name} has a null character: leave it out")
    if name.islower() and is_installed(name):
        raise UsageError(f"{name}={value}: {name} is a package: write {name}=={value}")
    return _Setting(name=name, value=value)


def _index(url: str) -> _Index:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https", "file") or not (parts.netloc or parts.path):
        raise UsageError(f"index={url} is no URL: write one such as https://download.pytorch.org/whl/nightly/cpu")
    if "@" in parts.netloc:
        raise UsageError(f"the index at {parts.hostname}: records would show the password: write it to ~/.netrc")
    return _Index(url=url)


def _package(word: str) -> Package:
    from packaging.version import InvalidVersion, Version

    name, _, version = word.partition("==")
    try:
        return Package(name=_name(name, word), version=str(Version(version)))
    except InvalidVersion as error:
        raise UsageError(f"'{word}': '{version}' is no version: write one such as torch==2.14.1") from error


def _name(text: str, word: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?", text.strip()):
        raise UsageError(f"'{word}': '{text.strip()}' is no name of a package")
    return distribution_name(text.strip())


def _wheel(word: str) -> Wheel:
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    if "://" in word:
        raise UsageError(f"{word}: a wheel is a file on this machine: download it, and name the file")
    path = Path(word).expanduser().absolute()
    if not path.is_file():
        raise UsageError(f"there is no wheel {path}")
    try:
        name, version, *_ = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise UsageError(f"{path} has no name of a wheel: {one_line(error)}") from error
    return Wheel(name=str(name), version=str(version), path=str(path))


def _checkout(word: str) -> Checkout:
    name, _, place = word.partition("@")
    folder, _, commit = place.rpartition(":")
    if not folder or not commit or commit.startswith("-"):
        raise UsageError(f"'{word}' names no commit: write LIBRARY@FOLDER:COMMIT, such as timm@/src/timm:abc123")
    path = Path(folder).expanduser().absolute()
    if not path.is_dir():
        raise UsageError(f"'{word}': there is no folder {path}: clone the library there")
    found = git(path, "rev-parse", "--show-toplevel", "--show-prefix")
    if found.returncode:
        raise UsageError(f"'{word}': {path} can't be used: {one_line(found.stderr)}")
    root, subfolder = found.stdout.split("\n")[:2]
    known = git(path, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    if known.returncode:
        raise UsageError(f"'{word}': {path} has no commit '{commit}': fetch it there, or name another")
    return Checkout(name=_name(name, word), repository=root, subfolder=subfolder, commit=known.stdout.strip())


def clean_variables() -> dict[str, str]:
    """Return the variables of this process, without those that lead other programs to the wrong place."""
    return {name: value for name, value in os.environ.items() if name not in _MISLEADING and name[:4] != "GIT_"}


def run_without_input(
    command: Sequence[str], variables: Mapping[str, str], timeout_s: float
) -> subprocess.CompletedProcess[str]:
    """Run a program that has nothing to read from, and return what it printed as text.

    Raises:
        OSError: the program can't be started.
        subprocess.TimeoutExpired: the program took longer than `timeout_s`.
    """
    return subprocess.run(  # noqa: S603  words that were checked
        command,
        env=dict(variables),
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        stdin=subprocess.DEVNULL,
        timeout=timeout_s,
    )


def git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run git in a folder. The caller looks at the exit status.

    Raises:
        UsageError: there is no git.
    """
    done = attempt(
        lambda: subprocess.run(  # noqa: S603  fixed words, and names that were checked
            ["git", "-C", str(folder), *arguments],  # noqa: S607  the user's own git
            check=False,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            env=clean_variables(),
        )
    )
    if isinstance(done, Exception):
        raise UsageError(f"git can't be run: {one_line(done)}: install it") from done
    return done
