"""Install torchzoo and the libraries of the models asked for, by pip, and say what is ready.

A fresh checkout starts here: nothing but the standard library is imported before pip has run. Libraries are ready when
they are installed in the versions wanted and, in a process of their own, import.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import importlib
import importlib.metadata
import importlib.util
import os
import re
import site
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchzoo.zoo.requirements import distribution_name, is_installed, parse_requirement, unsatisfied

ROOT = Path(__file__).resolve().parent.parent  # a checkout; site-packages, where torchzoo came as a wheel
TO_READ_METADATA = ("msgspec", "pyyaml")
TIED_TO_TORCH = ("torchvision", "torchaudio")  # a release of theirs needs its own release of torch
NO_LIBRARY_MODULES = ("benchmarks", "docs", "example", "examples", "test", "tests")  # strays beside some libraries
CROSS = "\N{MULTIPLICATION SIGN}"  # how pip's longer messages begin
READY, NOT_READY, USAGE, INTERRUPTED = 0, 1, 2, 130

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


class UsageError(ValueError):
    """Arguments that can't be followed; the message is for the user."""


class UnusablePip(RuntimeError):
    """pip can't install into this Python; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the table: why a model, or torchzoo itself, is not ready; None if it is."""

    name: str
    problem: str | None


def main(argv: Sequence[str], prog: str = "python install.py", run: Run | None = None) -> int:
    """Install (unless `--check`), then print what is ready and what is not.

    Args:
        argv: what follows the program's name on the command line.
        prog: that name.
        run: starts a process and returns its exit status and standard error; a test's stand-in.

    Returns:
        The exit status: 0 all is ready, 1 something is not, 2 wrong usage, 130 interrupted.
    """
    options = _parser(prog).parse_args(argv)
    run = run or _run
    try:
        folders = select(options.models, model_folders(options.models_dir))
        constraints_file = None if options.no_constraints else _if_file(ROOT / "constraints.txt")
        errors = {} if options.check else install(folders.values(), Pip(run=run, constraints_file=constraints_file))
        checker = Checker(run=run, constraints=read_constraints(constraints_file), fast=options.fast)
        rows = checker.rows(folders, errors)
    except UsageError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return USAGE
    except UnusablePip as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return NOT_READY
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
    print(table(rows))
    return READY if all(row.problem is None for row in rows) else NOT_READY


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Install torchzoo and the libraries that models need, by pip, and say what is ready.",
        epilog="Exit status: 0 all is ready, 1 something is not, 2 wrong usage.",
    )
    parser.add_argument(
        "models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*') or a domain (nlp); default: all models"
    )
    parser.add_argument("--check", action="store_true", help="install nothing, only say what is ready")
    parser.add_argument("--fast", action="store_true", help="look at versions only, do not try to import the libraries")
    parser.add_argument(
        "--no-constraints",
        action="store_true",
        help="leave the versions to pip instead of taking those of constraints.txt",
    )
    parser.add_argument(
        "--models-dir", type=Path, action="append", default=[], metavar="DIR", help="a folder of your own models"
    )
    return parser


# Which models. `torchzoo.catalog` does the same for every other command, but needs msgspec to be installed.


def model_folders(extra: Iterable[Path]) -> dict[str, Path]:
    """All model folders by name: the zoo's, those under TORCHZOO_PATH, those under `extra`; of equal names the last.

    Raises:
        UsageError: a folder of models that does not exist.
    """
    zoo = ROOT / "models" if _in_a_checkout() else ROOT / "torchzoo" / "_bundled" / "models"
    from_environment = [Path(part) for part in os.environ.get("TORCHZOO_PATH", "").split(os.pathsep) if part]
    folders: dict[str, Path] = {}
    for root in [zoo, *from_environment, *extra]:
        if not root.is_dir():
            raise UsageError(f"no such models folder: {root}")
        entries = [entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith((".", "_"))]
        folders.update({entry.name: entry for entry in entries})
    return dict(sorted(folders.items(), key=lambda item: item[0].lower()))


def select(patterns: Sequence[str], folders: Mapping[str, Path]) -> dict[str, Path]:
    """The folders that the patterns name: by name, glob or domain; all of them for no pattern, or for `all`.

    Raises:
        UsageError: a pattern that names none; the message suggests the nearest names.
    """
    chosen: dict[str, Path] = {}
    for pattern in patterns or ["all"]:
        names = list(folders) if pattern == "all" else fnmatch.filter(folders, pattern)
        names = names or [name for name, folder in folders.items() if _domain(folder) == pattern]
        if not names:
            by_lower = {name.lower(): name for name in folders}
            near = [by_lower[name] for name in difflib.get_close_matches(pattern.lower(), by_lower, n=3, cutoff=0.5)]
            hint = f"did you mean {' or '.join(near)}?" if near else "a model is called as its folder in models/"
            raise UsageError(f"no model, domain or glob '{pattern}': {hint}")
        chosen |= {name: folders[name] for name in names}
    return chosen


def _in_a_checkout() -> bool:
    return not (ROOT / "torchzoo" / "_bundled").is_dir()


def _domain(folder: Path) -> str | None:
    metadata = _if_file(folder / "metadata.yaml")
    match = re.search(rb"^domain: *(\w+)", metadata.read_bytes(), re.MULTILINE) if metadata else None
    return match[1].decode() if match else None


# What they need.


def model_requirements(folder: Path) -> tuple[str, ...]:
    """The pip requirements of one model folder.

    Raises:
        ValueError: its metadata can't be used, or has a requirement that is none; the message is one line.
    """
    from torchzoo.zoo.spec import read_spec

    requirements = read_spec(folder).requirements
    for requirement in requirements:
        parse_requirement(requirement)
    return requirements


def own_requirements() -> list[str]:
    """What torchzoo itself depends on."""
    if _in_a_checkout():
        with (ROOT / "pyproject.toml").open("rb") as file:
            dependencies: list[str] = tomllib.load(file)["project"]["dependencies"]
        return dependencies
    return [text for text in importlib.metadata.requires("torchzoo") or [] if "extra ==" not in text]


def read_constraints(file: Path | None) -> dict[str, Any]:
    """The version specifiers of a constraints file by normalised name."""
    lines = file.read_text(encoding="utf-8").splitlines() if file else []
    wanted = [parse_requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    return {distribution_name(requirement.name): requirement.specifier for requirement in wanted}


# Installing.


@dataclass(frozen=True, kw_only=True)
class Pip:
    """pip for the Python that runs this."""

    run: Run
    constraints_file: Path | None

    def install(self, arguments: Sequence[str]) -> str | None:
        """One `pip install`; its standard error is passed on. Returns what went wrong in one line, None if nothing."""
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        if self.constraints_file is not None:
            command += ["-c", str(self.constraints_file)]
        done = self.run([*command, *arguments])
        print(done.stderr, end="", file=sys.stderr, flush=True)
        _notice_new_packages()
        return None if done.returncode == 0 else pip_error(done.stderr, done.returncode)


def install(folders: Iterable[Path], pip: Pip) -> dict[str, str]:
    """Install torchzoo, where this is a checkout, and what the models in `folders` need.

    Returns:
        pip's errors by requirement ("torchzoo" for itself).

    Raises:
        UnusablePip: there is no pip, or it must not install here.
    """
    _require_usable_pip()
    if any(importlib.util.find_spec(module) is None for module in ("msgspec", "yaml")):
        error = pip.install([text for text in own_requirements() if distribution_name(text) in TO_READ_METADATA])
        if error is not None:
            return {"torchzoo": error}
    parts: dict[str, list[str]] = {}
    if _in_a_checkout():
        parts["torchzoo"] = ["-e", str(ROOT)]
    for folder in folders:
        try:
            parts |= {requirement: [requirement] for requirement in model_requirements(folder)}
        except ValueError:
            continue  # a broken folder has its own line in the table and takes no other model along
    return _install_together(parts, pip) if parts else {}


def _install_together(parts: Mapping[str, list[str]], pip: Pip) -> dict[str, str]:
    """All parts in one call, so that pip finds versions that fit each other; if that fails, in smaller ones."""
    error = pip.install([argument for arguments in parts.values() for argument in arguments])
    if error is None:
        return {}
    if len(parts) == 1:
        return dict.fromkeys(parts, error)
    print(f"pip can't install {', '.join(parts)} together; now apart", file=sys.stderr, flush=True)
    errors: dict[str, str] = {}
    for smaller in _apart(parts):
        errors |= _install_together(smaller, pip)
    return errors


def _apart(parts: Mapping[str, list[str]]) -> list[Mapping[str, list[str]]]:
    """Smaller calls: torchzoo with what must fit its torch, and each other part by itself; at last every part so."""
    tied = {name: parts[name] for name in parts if distribution_name(name) in ("torchzoo", *TIED_TO_TORCH)}
    if 0 < len(tied) < len(parts):
        return [tied, *({name: parts[name]} for name in parts if name not in tied)]
    return [{name: arguments} for name, arguments in parts.items()]


def pip_error(stderr: str, returncode: int) -> str:
    """The last line of pip's messages that says what went wrong."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in stderr.splitlines()]
    says_little = ("subprocess-exited-with-error", "for help visit", "See above for")
    errors = [
        line
        for line in lines
        if line.startswith(("ERROR:", "error:", CROSS)) and not any(words in line for words in says_little)
    ]
    told = errors or [line for line in lines if line]
    return re.sub(rf"^(ERROR:|error:|{CROSS})\s*", "", told[-1]) if told else f"pip ended with status {returncode}"


def _require_usable_pip() -> None:
    if not is_installed("pip"):  # by its metadata: looking for the module changes setuptools' hold on distutils
        raise UnusablePip(_no_pip())
    in_virtual_environment = sys.prefix != sys.base_prefix
    marker = Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED"  # PEP 668
    if marker.is_file() and not in_virtual_environment and not os.environ.get("PIP_BREAK_SYSTEM_PACKAGES"):
        raise UnusablePip(
            f"{sys.executable} belongs to the operating system, which lets pip install nothing there; "
            "use a virtual environment: python3 -m venv .venv && . .venv/bin/activate"
        )


def _no_pip() -> str:
    return (
        f"{sys.executable} has no pip; use a virtual environment that has: "
        "python3 -m venv .venv && . .venv/bin/activate"
    )


def _notice_new_packages() -> None:
    importlib.invalidate_caches()
    user_site = site.getusersitepackages()
    if site.ENABLE_USER_SITE and user_site not in sys.path and Path(user_site).is_dir():
        site.addsitedir(user_site)  # it came into being with what pip installed


# Looking.


@dataclass(frozen=True, kw_only=True)
class Checker:
    """Finds out what is ready.

    Args:
        run: starts the processes that import the libraries.
        constraints: wanted versions by distribution.
        fast: look at versions only.
    """

    run: Run
    constraints: Mapping[str, Any]
    fast: bool

    def rows(self, folders: Mapping[str, Path], errors: Mapping[str, str]) -> list[Row]:
        """One row for torchzoo, one for each model; `errors` are pip's, by requirement."""
        own = self._problem(("torchzoo", *own_requirements()), errors)
        found: dict[tuple[str, ...], str | None] = {}  # many models need the same
        rows = [Row(name="torchzoo", problem=own)]
        for name, folder in folders.items():
            try:
                requirements = model_requirements(folder)
                if requirements not in found:
                    found[requirements] = self._problem(requirements, errors)
                problem = found[requirements]
            except ModuleNotFoundError:  # no msgspec or no yaml: torchzoo's row says so
                problem = None
            except ValueError as error:
                problem = str(error)
            rows.append(Row(name=name, problem=problem or (None if own is None else "torchzoo itself is not ready")))
        return rows

    def _problem(self, requirements: Sequence[str], errors: Mapping[str, str]) -> str | None:
        needed = [
            text for text in requirements if (marker := parse_requirement(text).marker) is None or marker.evaluate()
        ]
        missing = [distribution_name(requirement) for requirement in needed if not is_installed(requirement)]
        problems = [f"{', '.join(missing)} not installed"] if missing else []
        problems += [
            problem
            for requirement in needed
            if is_installed(requirement) and (problem := self._version_problem(requirement))
        ]
        if problems:
            return ": ".join([", ".join(problems), *{errors[text]: None for text in needed if text in errors}])
        return self._import_problem([top_module(distribution_name(requirement)) for requirement in needed])

    def _version_problem(self, requirement: str) -> str | None:
        problem = unsatisfied(requirement)
        if problem is not None:
            return problem
        name = distribution_name(requirement)
        version = importlib.metadata.version(name)
        constraint = self.constraints.get(name)
        if constraint is not None and not constraint.contains(version, prereleases=True):
            return f"{name} {version} is installed, not {constraint} as in constraints.txt (see --no-constraints)"
        return None

    def _import_problem(self, modules: Sequence[str]) -> str | None:
        absent = [module for module in modules if importlib.util.find_spec(module) is None]
        if absent:
            return f"installed, but without a module {' or '.join(absent)}"
        if self.fast or not modules:
            return None
        statement = f"import {', '.join(modules)}"
        done = self.run([sys.executable, "-P", "-c", statement])
        if done.returncode == 0:
            return None
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit): ", line)]
        told = raised or lines or [f"the process ended with status {done.returncode}"]
        return f"{statement}: {told[-1].strip()}"


def top_module(distribution: str) -> str:
    """The module that an installed distribution is imported by: `pyyaml` -> `yaml`."""
    same_name = distribution.replace("-", "_")
    modules = sorted(
        module
        for module, distributions in importlib.metadata.packages_distributions().items()
        if distribution in map(distribution_name, distributions)
        and not module.startswith("_")
        and module not in NO_LIBRARY_MODULES
    )
    return same_name if same_name in modules or not modules else modules[0]


def table(rows: Sequence[Row]) -> str:
    """The rows as text, torchzoo's first, and a last line that counts the models."""
    width = max(len(row.name) for row in rows)
    lines = [
        f"{row.name:{width}}  {'ready' if row.problem is None else f'not ready  {row.problem}'}".rstrip()
        for row in rows
    ]
    models = rows[1:]
    ready = sum(row.problem is None for row in models)
    return "\n".join([*lines, f"{ready} of {len(models)} models ready"])


def _if_file(path: Path) -> Path | None:
    return path if path.is_file() else None


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run `command`: its standard output goes on to the terminal, its standard error is kept."""
    sys.stdout.flush()
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, errors="replace")  # noqa: S603  Python
