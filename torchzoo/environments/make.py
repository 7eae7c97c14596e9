"""Software environments beside this one: made once for what a SPEC asks, and kept by their content.

An environment that is made has the libraries of torchzoo and its models at the versions of this one, except what the
SPEC changes and what belongs to that (see `pins`). Torchzoo is not installed there: the same code of ours is
imported through `PYTHONPATH`.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from torchzoo.environments.cache import (
    KEY_LETTERS,
    MadeEnvironment,
    cache_folder,
    code_folder,
    delete,
    locked,
    read_made,
    remove_leftovers,
    touch_used,
)
from torchzoo.environments.parsing import Spec, clean_variables, parse
from torchzoo.environments.pins import Requirements, choose, exactly
from torchzoo.errors import TorchzooError, UsageError, attempt, one_line
from torchzoo.files import read_file
from torchzoo.report import terminal
from torchzoo.report.units import first_few
from torchzoo.run.request import Software
from torchzoo.store import write_whole
from torchzoo.zoo.folders import checkout
from torchzoo.zoo.requirements import distribution_name, parse_requirement

#: Runs a command with these environment variables, adds what it prints to a file, and returns its exit status.
Run = Callable[[Sequence[str], Mapping[str, str], Path], int]

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

#: What uv and git print where the disk is full, or the network or a server fails.
_PASSING = re.compile(
    r"No space left on device|Disk quota exceeded"
    r"|error sending request|dns error|tcp connect error|HTTP status server error"
    r"|Temporary failure in name resolution|Could not resolve host|Network is unreachable",
    re.IGNORECASE,
)

_INSPECT = """
import importlib.metadata, json, platform, sys
packages = {one.metadata["Name"]: one.version for one in importlib.metadata.distributions() if one.metadata["Name"]}
version = platform.python_version()
print(json.dumps({"version": version, "is_new": sys.version_info >= (3, 11), "packages": packages}))
"""


# --- uv ---


def uv() -> str:
    """Return the path of uv.

    Raises:
        TorchzooError: it is not installed.
    """
    found = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if found is None:
        raise TorchzooError("software environments are made by uv, which is not installed: pip install uv")
    return found


def installer_variables(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of uv. Pip's own settings, such as its indexes, reach uv as well.

    What is set for uv already stays.

    Args:
        extra: variables of the SPEC that are for the installer.
    """
    found = clean_variables() | dict(extra)
    settings = _pip_settings(found)
    chooses_index = {"UV_DEFAULT_INDEX", "UV_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_NO_INDEX"} & set(found)
    for name, variable, between in _OF_UV:
        values = settings.get(name)
        if values and variable not in found and not (chooses_index and "INDEX" in variable):
            found[variable] = between.join(values)
    if settings.get("pre", ["false"])[0].lower() in ("1", "true", "yes", "on"):
        found.setdefault("UV_PRERELEASE", "allow")
    found.setdefault("UV_INDEX_STRATEGY", "unsafe-best-match")
    return found


def _pip_settings(variables: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the values of pip's settings for `pip install`, by name; nothing where there is no pip.

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


def run_logged(command: Sequence[str], variables: Mapping[str, str], log: Path) -> int:
    """Run a command, add it and all that it prints to the log, and return its exit status.

    Raises:
        OSError: it can't be started, or the log can't be written.
    """
    with log.open("ab") as file:
        file.write(f"$ {' '.join(command)}\n".encode(errors="backslashreplace"))
        file.flush()
        return subprocess.run(  # noqa: S603  uv or git with what was asked for
            command, check=False, stdout=file, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=dict(variables)
        ).returncode


def essential_line(output: str, status: int) -> str:
    """Return the line of uv's or git's messages that says what went wrong."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", output)
    full = [line.strip() for line in plain.splitlines() if "No space left on device" in line]
    if full:
        return one_line(full[-1])
    causes = re.split(
        r"^\s*(?:cause:|Caused by:|\N{BOX DRAWINGS LIGHT ARC UP AND RIGHT}\S*)\s", plain, flags=re.MULTILINE
    )
    if len(causes) > 1:  # of uv, the last is the first cause; it may be wrapped
        return one_line(re.split(r"\n\s*(?:\n|\[|hint:)", causes[-1])[0])
    lines = [line.strip() for line in plain.splitlines() if re.match(r"\s*(error|fatal):", line)]
    return one_line(lines[-1]) if lines else f"exit status {status}"


def is_passing(output: str) -> bool:
    """Return whether uv or git failed for a reason that has nothing to do with what was asked for."""
    return _PASSING.search(output) is not None


def is_conflict(output: str) -> bool:
    """Return whether uv says that versions don't fit together. (Then some might fit that are not kept.)"""
    if re.search(r"there is no version of (\S+) and you require\s+\1", " ".join(output.split())):
        return False  # what is asked for does not exist
    return "No solution found" in output


# --- environments ---


class EnvironmentNotMade(TorchzooError):
    """An environment can't be made or used. The message is one line, and names the log."""


class NotMadeNow(EnvironmentNotMade):
    """It can't be made for a reason that may pass: a full disk, or a network that fails. Later it may be made."""


class PythonEnvironment(Software, frozen=True, kw_only=True):
    """A Python with its libraries. The name is the SPEC as it was given; the variables have the path of our code."""

    key: str  # hash of the software: Python and all versions. Variables are no part of it.


class _Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a Python says of itself."""

    version: str
    is_new: bool  # whether torchzoo runs with it
    packages: dict[str, str]


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to be installed."""

    spec: Spec
    key: str
    requirements: Requirements


def prepare(spec: Spec | str, cache: Path | None = None, run: Run = run_logged) -> PythonEnvironment:
    """Return the environment that a SPEC asks for. If the cache does not have it, it is made, which can take minutes.

    Args:
        spec: what is asked for, see `parsing.parse`.
        cache: the folder of environments; None for `cache_folder()`.
        run: runs git and uv; a test gives its own.

    Raises:
        UsageError: the SPEC asks for what is not there.
        EnvironmentNotMade: the environment can't be made, or lacks what was asked for.
        CacheError: the cache can't be written.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    cache = cache_folder() if cache is None else cache.absolute()
    if spec.python is not None:
        return _existing(spec, spec.python, cache)
    if not spec.wanted:
        return _this(spec)
    plan = _plan(spec)
    with locked(cache, plan.key):
        made = read_made(cache, plan.key)
        if made is None:
            made = _make(plan, cache, run)
        else:
            _check_unchanged(made)
        touch_used(cache, plan.key)
    return PythonEnvironment(
        name=spec.text, python=made.python, variables=_variables(spec, code_folder(cache)), key=plan.key
    )


# --- environments that are there ---


def _this(spec: Spec) -> PythonEnvironment:
    packages = {str(one.metadata["Name"]): one.version for one in importlib.metadata.distributions()}
    key = _hash({"python": sys.executable, **_here(), "packages": _normal(packages)})
    root = checkout()
    return PythonEnvironment(
        name=spec.text,
        python=sys.executable,
        variables=_variables(spec, root, inherited=os.environ.get("PYTHONPATH", "")),
        key=key,
    )


def _existing(spec: Spec, python: str, cache: Path) -> PythonEnvironment:
    facts = _inspect(python)
    if isinstance(facts, str):
        raise UsageError(f"python={python} can't be used: {facts}")
    if not facts.is_new:
        raise UsageError(f"python={python} is Python {facts.version}: torchzoo needs 3.11 or newer")
    packages = _normal(facts.packages)
    lacking = [name for name in ("msgspec", "filelock", "numpy", "psutil", "torch") if name not in packages]
    if lacking:
        raise UsageError(f"python={python} has no {', '.join(lacking)}: install torchzoo's requirements there")
    key = _hash({"python": python, "version": facts.version, "packages": packages})
    return PythonEnvironment(name=spec.text, python=python, variables=_variables(spec, code_folder(cache)), key=key)


def _inspect(python: str) -> _Facts | str:
    """What a Python says of itself, or why it says nothing."""
    done = attempt(
        lambda: subprocess.run(  # noqa: S603  a Python that the user named, or that was made here
            [python, "-I", "-c", _INSPECT], check=False, capture_output=True, env=clean_variables(), timeout=300
        )
    )
    if isinstance(done, Exception):
        return one_line(done)
    last = (done.stdout.splitlines() or [b""])[-1]
    facts = attempt(lambda: msgspec.json.decode(last, type=_Facts))
    if isinstance(facts, Exception):
        return one_line((done.stderr.decode(errors="replace").splitlines() or ["it is no Python"])[-1])
    return facts


def _normal(packages: Mapping[str, str]) -> dict[str, str]:
    return {distribution_name(name): version for name, version in sorted(packages.items())}


def _here() -> dict[str, str]:
    """The Python and the platform that wheels are chosen for."""
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    return {"version": implementation, "platform": sysconfig.get_platform()}


def _hash(content: object) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:KEY_LETTERS]


# --- our own code ---


def _variables(spec: Spec, code: Path | None, inherited: str = "") -> dict[str, str]:
    parts = [str(code or ""), spec.variables.get("PYTHONPATH", inherited)]
    path = os.pathsep.join(filter(None, parts))
    return dict(spec.variables) | ({"PYTHONPATH": path} if path else {})


# --- making one ---


def _plan(spec: Spec) -> _Plan:
    requirements = choose(spec.wanted)
    key = _hash(
        {
            **_here(),
            "packages": sorted(exactly(one.name, one.version) for one in spec.packages),
            "wheels": {one.name: _sha256(Path(one.path)) for one in spec.wheels},
            "commits": {one.name: [one.commit, one.subfolder] for one in spec.checkouts},
            "asked": requirements.asked,
            "constraints": requirements.constraints,
            "installer": _for_installer(spec) | ({"indexes": spec.indexes} if spec.indexes else {}),
        }
    )
    return _Plan(spec=spec, key=key, requirements=requirements)


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UsageError(f"can't read {path}: {error.strerror or error}") from error


def _for_installer(spec: Spec) -> dict[str, str]:
    """The settings of a SPEC that tell the installer something, such as an index."""
    return {name: value for name, value in spec.variables.items() if name.startswith(("PIP_", "UV_"))}


def _make(plan: _Plan, cache: Path, run: Run) -> MadeEnvironment:
    """Make the environment in a new folder. Only the last step, which is atomic, makes it known."""
    folder, began_s = cache / plan.key, time.time()
    venv = folder / f"venv-{uuid.uuid4().hex[:8]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(cache, plan.key)
        log = folder / "install.log"
        terminal.say(f"torchzoo: making the environment {plan.spec.text}; its log: {log}")
        builder = _Builder(plan=plan, venv=venv, log=log, run=run)
        made = builder.build(began_s)
        write_whole(folder / "environment.json", msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    except OSError as error:
        reason = f"{error.filename or folder}: {error.strerror or error}"
        raise NotMadeNow(f"can't make the environment {plan.spec.text}: {reason}") from error
    finally:
        if read_made(cache, plan.key) is None and venv.exists():
            delete(venv)  # a failed environment keeps no space
    return made


def _check_unchanged(made: MadeEnvironment) -> None:
    """Raises `EnvironmentNotMade` where somebody installed something in an environment after it was made."""
    facts = _inspect(made.python)
    packages = made.packages if isinstance(facts, str) else _normal(facts.packages)
    changed = [name for name in {**made.packages, **packages} if made.packages.get(name) != packages.get(name)]
    if isinstance(facts, str) or changed:
        why = facts if isinstance(facts, str) else f"{first_few(sorted(changed))} changed"
        advice = f"`torchzoo env prune {made.key}` deletes it, and the next call makes it again"
        raise EnvironmentNotMade(f"the environment {made.spec} is not as it was made: {why}; {advice}")


class _Builder(msgspec.Struct, frozen=True, kw_only=True):
    """The steps of making one environment."""

    plan: _Plan
    venv: Path
    log: Path
    run: Run

    def build(self, began_s: float) -> MadeEnvironment:
        """Make it, and look whether it is what was asked for."""
        self.log.write_bytes(b"")
        variables = installer_variables(_for_installer(self.plan.spec))
        self._step([uv(), "venv", "--python", sys.executable, str(self.venv)], variables)
        sources = self.venv.with_name(f"{self.venv.name}-sources")  # `remove_leftovers` knows this name, too
        try:
            asked = self._asked(sources)
            requirements = self._install(asked, variables)
        finally:
            shutil.rmtree(sources, ignore_errors=True)
        python = str(self.venv / "bin" / "python")
        facts = _inspect(python)
        if isinstance(facts, str):
            raise self._error(f"its Python does not work: {facts}")
        packages = _normal(facts.packages)
        self._check(packages)
        return MadeEnvironment(
            key=self.plan.key,
            spec=self.plan.spec.text,
            python=python,
            python_version=facts.version,
            platform=sysconfig.get_platform(),
            made_s=began_s,
            took_s=time.time() - began_s,
            asked=(*asked, *requirements.asked),
            constraints=requirements.constraints,
            free=requirements.free,
            is_relaxed=requirements != self.plan.requirements,
            packages=packages,
        )

    def _asked(self, sources: Path) -> list[str]:
        """The requirements that the SPEC itself names. Commits are written to `sources`."""
        spec = self.plan.spec
        asked = [exactly(one.name, one.version) for one in spec.packages]
        asked += [f"{one.name} @ {Path(one.path).as_uri()}" for one in spec.wheels]
        for one in spec.checkouts:
            folder = sources / one.name
            variables = clean_variables()
            # A clone that shares the objects leaves the repository as it is, and has the tags from which some libraries
            # make their version.
            clone = ["git", "clone", "--quiet", "--shared", "--no-checkout", "--template=", one.repository, str(folder)]
            self._step(clone, variables)
            self._step(["git", "-C", str(folder), "checkout", "--quiet", "--detach", one.commit], variables)
            asked.append(f"{one.name} @ {(folder / one.subfolder).as_uri()}")
        return asked

    def _install(self, asked: Sequence[str], variables: Mapping[str, str]) -> Requirements:
        """Install. If versions don't fit together, try again with all free that the changed packages need."""
        requirements = self.plan.requirements
        relaxed = choose(self.plan.spec.wanted, is_relaxed=True)
        try:
            self._install_with(asked, requirements, variables)
        except EnvironmentNotMade as error:
            if relaxed == requirements or not is_conflict(self._printed()):
                raise
            also = ", ".join(sorted(set(relaxed.free) - set(requirements.free)))
            terminal.say(f"torchzoo: these versions don't fit together; now with other versions of {also}, too")
            try:
                self._install_with(asked, relaxed, variables)
            except EnvironmentNotMade:
                raise error from None  # what is wrong with the first choice is easier to understand
            return relaxed
        return requirements

    def _install_with(self, asked: Sequence[str], requirements: Requirements, variables: Mapping[str, str]) -> None:
        from packaging.version import Version

        asked_file, constraints_file = self.venv / "requirements.txt", self.venv / "constraints.txt"
        asked_file.write_text("\n".join([*asked, *requirements.asked, ""]), encoding="utf-8")
        constraints_file.write_text("\n".join([*requirements.constraints, ""]), encoding="utf-8")
        python = str(self.venv / "bin" / "python")
        # Without bytecode, a measurement would pay for compiling what it is the first to import.
        command = [uv(), "pip", "install", "--python", python, "--compile-bytecode"]
        command += ["-r", str(asked_file), "-c", str(constraints_file)]
        if any(Version(one.version).is_prerelease for one in self.plan.spec.packages):
            command += ["--prerelease", "allow"]
        for url in self.plan.spec.indexes:
            command += ["--extra-index-url", url]
        self._step(command, variables)

    def _step(self, command: Sequence[str], variables: Mapping[str, str]) -> None:
        before = self.log.stat().st_size
        status = self.run(command, variables, self.log)
        if status:
            raise self._error(essential_line(self._printed(before), status))

    def _printed(self, since: int = 0) -> str:
        return read_file(self.log)[since:].decode(errors="replace")

    def _check(self, packages: Mapping[str, str]) -> None:
        """Raises `EnvironmentNotMade` if the environment lacks what the SPEC names, or has another version of it."""
        wanted = [exactly(one.name, one.version) for one in self.plan.spec.packages]
        wanted += [f"{one.name}=={one.version}" for one in self.plan.spec.wheels]
        wanted += [one.name for one in self.plan.spec.checkouts]
        for requirement in map(parse_requirement, wanted):
            found = packages.get(requirement.name)
            if found is None:
                raise self._error(f"uv did not install {requirement.name}")
            if not requirement.specifier.contains(found, prereleases=True):
                raise self._error(f"uv installed {requirement.name} {found} instead of {requirement}")

    def _error(self, reason: str) -> EnvironmentNotMade:
        kind = NotMadeNow if is_passing(self._printed()) else EnvironmentNotMade
        return kind(f"can't make the environment {self.plan.spec.text}: {reason}; the whole log: {self.log}")
