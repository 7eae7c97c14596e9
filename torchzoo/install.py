"""Install torchzoo and the libraries that models need, by pip, and show what is ready.

A fresh checkout starts here, so only the standard library is imported until pip has installed `BOOTSTRAP`, which
reading the catalog and printing the table need.
"""

from __future__ import annotations

import argparse
import functools
import importlib.metadata
import importlib.util
import os
import re
import site
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchzoo.errors import TorchzooError
from torchzoo.report import terminal
from torchzoo.zoo.folders import checkout
from torchzoo.zoo.requirements import (
    applies,
    distribution_name,
    is_installed,
    read_constraints,
    top_module,
    unsatisfied,
)

READY, NOT_READY, USAGE, INTERRUPTED = 0, 1, 2, 130
BOOTSTRAP = {"msgspec": "msgspec", "packaging": "packaging", "pyyaml": "yaml", "rich": "rich"}  # distribution: module
TIED_TO_TORCH = ("torchzoo", "torchvision", "torchaudio")  # each release of these needs one release of torch
VENV = "use a virtual environment: python3 -m venv .venv && . .venv/bin/activate"

#: Runs a command. Its standard error is returned, its standard output goes to the terminal.
Run = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]
#: The requirements of each model, or the error of a model whose folder is faulty.
Needs = dict[str, tuple[str, ...] | TorchzooError]


class NotReady(TorchzooError):
    """Torchzoo itself is not ready, so models can't be checked."""


def main(argv: Sequence[str], prog: str = "python install.py", run: Run | None = None) -> int:
    """Install (unless `--check`), then print the state of torchzoo and each model.

    Args:
        argv: the arguments of the command line.
        prog: the program's name.
        run: runs pip and the imports; tests pass their own.

    Returns:
        The exit status: 0 all is ready, 1 something is not, 2 wrong usage, 130 interrupted.
    """
    options = _parser(prog).parse_args(argv)
    installer = Installer(run=run or _run, constraints=None if options.no_constraints else _constraints_file())
    try:
        installer.bootstrap(is_check=options.check)
        needs = _needs(options)
        errors = {} if options.check else installer.install(needs)
        problems = installer.problems(needs, errors, is_fast=options.fast)
    except TorchzooError as error:
        terminal.say(f"{prog}: error: {error}")
        return NOT_READY if isinstance(error, NotReady) else USAGE
    except KeyboardInterrupt:
        terminal.say(f"{prog}: interrupted")
        return INTERRUPTED
    _print_table(problems)
    return NOT_READY if any(problems.values()) else READY


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Install torchzoo and the libraries that models need, by pip, and show what is\nready. "
        "Exit status: 0 all is ready, 1 something is not, 2 wrong usage.",
        epilog=f"examples:\n  {prog} resnet18 hf_Bert\n  {prog} --suite torchbench\n  {prog} nlp --check",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    return parser


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of `torchzoo install`."""
    add = parser.add_argument
    add("models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*') or a domain (nlp); default: all models")
    add("--suite", default="", metavar="S[,S]", help="the models of suites")
    add("--check", action="store_true", help="install nothing, only show what is ready")
    add("--fast", action="store_true", help="look at versions only, do not try to import the libraries")
    add("--no-constraints", action="store_true", help="let pip choose the versions, without constraints.txt")
    add("--models-dir", type=Path, action="append", default=[], metavar="DIR", help="a folder of your own models")


def _needs(options: argparse.Namespace) -> Needs:
    from torchzoo.zoo.catalog import find_models

    catalog, needs = find_models(options.models_dir), Needs()
    suites = list(filter(None, options.suite.split(",")))
    for name in catalog.select(options.models or ([] if suites else ["all"]), suites):
        try:
            needs[name] = tuple(filter(applies, catalog.spec(name).requirements))
        except TorchzooError as error:
            needs[name] = error
    return needs


def _constraints_file() -> Path | None:
    path = (checkout() or Path("/nowhere")) / "constraints.txt"
    return path if path.is_file() else None


def _own_requirements() -> list[str]:
    root = checkout()
    if root is None:
        return importlib.metadata.requires("torchzoo") or []
    dependencies: list[str] = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    return dependencies


@dataclass(frozen=True, kw_only=True)
class Installer:
    """An installer that calls pip for this Python, and checks what is installed."""

    run: Run
    constraints: Path | None

    def bootstrap(self, *, is_check: bool) -> None:
        """Install this program's own requirements. Raise `NotReady` if that fails, or if `is_check` forbids it."""
        if not is_check:
            _require_usable_pip()
        missing = [name for name, module in BOOTSTRAP.items() if importlib.util.find_spec(module) is None]
        if missing:
            error = "`python install.py`, without --check, installs it" if is_check else self.pip(missing)
            if error is not None:
                raise NotReady(f"torchzoo itself is not ready: {', '.join(missing)} not installed: {error}")

    def install(self, needs: Needs) -> dict[str, str]:
        """Install torchzoo, in a checkout, and the models' requirements. Return pip's errors by requirement."""
        parts = {"torchzoo": ["-e", str(checkout())]} if checkout() else {}
        for requirements in needs.values():
            if not isinstance(requirements, TorchzooError):
                parts |= {requirement: [requirement] for requirement in requirements}
        return self._install_together(parts) if parts else {}

    def _install_together(self, parts: Mapping[str, Sequence[str]]) -> dict[str, str]:
        """Install all parts in one call, so that pip finds compatible versions, or in smaller calls if that fails."""
        error = self.pip([argument for arguments in parts.values() for argument in arguments])
        if error is None or len(parts) == 1:
            return dict.fromkeys(parts, error) if error else {}
        print(f"pip can't install {', '.join(parts)} together; now apart", file=sys.stderr, flush=True)
        tied = [name for name in parts if distribution_name(name) in TIED_TO_TORCH]
        apart = [[name] for name in parts if name not in tied]
        errors: dict[str, str] = {}
        for group in [tied, *apart] if tied and apart else [[name] for name in parts]:
            errors |= self._install_together({name: parts[name] for name in group})
        return errors

    def pip(self, arguments: Sequence[str]) -> str | None:
        """Call `pip install` and pass on its messages. Return the error in one line, or None."""
        command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        done = self.run([*command, *(() if self.constraints is None else ("-c", str(self.constraints))), *arguments])
        print(done.stderr, end="", file=sys.stderr, flush=True)
        importlib.invalidate_caches()
        user_site = site.getusersitepackages()
        if site.ENABLE_USER_SITE and user_site not in sys.path and Path(user_site).is_dir():
            site.addsitedir(user_site)  # pip has just made it
        return None if done.returncode == 0 else pip_error(done.stderr, done.returncode)

    def problems(self, needs: Needs, errors: Mapping[str, str], *, is_fast: bool) -> dict[str, str | None]:
        """The reason why torchzoo or a model is not ready, or None, by name. `errors` are pip's, by requirement."""
        wanted = {} if self.constraints is None else read_constraints(self.constraints)

        @functools.cache  # many models share requirements
        def problem(requirements: tuple[str, ...]) -> str | None:
            lacking = {text: reason for text in requirements if (reason := unsatisfied(text, wanted))}
            if lacking:
                pip_errors = dict.fromkeys(errors[text] for text in lacking if text in errors)
                return ": ".join([", ".join(lacking.values()), *pip_errors])
            return self._import_problem(requirements) if requirements and not is_fast else None

        own = problem(("torchzoo", *filter(applies, _own_requirements())))
        found = {"torchzoo": own}
        for name, requirements in needs.items():
            reason = str(requirements) if isinstance(requirements, TorchzooError) else problem(requirements)
            found[name] = reason or (own and "torchzoo itself is not ready")
        return found

    def _import_problem(self, requirements: Sequence[str]) -> str | None:
        """Import the libraries in a new process. Return the last line of the error, or None."""
        statement = f"import {', '.join(map(top_module, requirements))}"
        done = self.run([sys.executable, "-P", "-c", statement])
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raised = [line for line in lines if re.match(r"[A-Za-z_][\w.]*(Error|Exception|Exit): ", line)]
        last = (raised or lines or [f"the process ended with status {done.returncode}"])[-1]
        return None if done.returncode == 0 else f"{statement}: {last}"


def _require_usable_pip() -> None:
    if not is_installed("pip"):  # by metadata: finding the module would change setuptools' patch of distutils
        raise NotReady(f"{sys.executable} has no pip; {VENV}")
    is_managed = (Path(sysconfig.get_path("stdlib")) / "EXTERNALLY-MANAGED").is_file()  # PEP 668
    if is_managed and sys.prefix == sys.base_prefix and not os.environ.get("PIP_BREAK_SYSTEM_PACKAGES"):
        raise NotReady(f"{sys.executable} belongs to the operating system, where pip must not install; {VENV}")


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    sys.stdout.flush()
    return subprocess.run(command, check=False, stderr=subprocess.PIPE, text=True, errors="replace")  # noqa: S603  Python


def pip_error(stderr: str, returncode: int) -> str:
    """The last line of pip's messages that describes the error."""
    begin = re.compile("(ERROR:|error:|\N{MULTIPLICATION SIGN})\\s*")  # marks of pip's errors
    says_little = ("subprocess-exited-with-error", "for help visit", "See above for")
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in stderr.splitlines()]
    errors = [line for line in lines if begin.match(line) and not any(words in line for words in says_little)]
    last = (errors or list(filter(None, lines)) or [f"pip ended with status {returncode}"])[-1]
    return begin.sub("", last, count=1) if errors else last


def _print_table(problems: Mapping[str, str | None]) -> None:
    """Print a line for torchzoo and for each model, and the count of models that are ready."""
    from torchzoo.report import terminal

    rows = [(name, "not ready" if problem else "ready", problem or "") for name, problem in problems.items()]
    table = terminal.table(("name", "state", "problem"), rows, has_headings=False)
    width = None if sys.stdout.isatty() else terminal.ANY_WIDTH  # in a file, a problem is one line
    print(*terminal.lines(table, width=width), sep="\n")
    models = list(problems.values())[1:]
    print(f"{models.count(None)} of {len(models)} models ready")
