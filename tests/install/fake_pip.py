"""A made-up pip that installs made-up libraries, and models that need them."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from torchzoo import install

METADATA = """\
domain: {domain}
task: image_classification
paper: https://arxiv.org/abs/1512.03385
source: here
requirements: [{requirements}]
parameters: 1
batch_size: {{train: 1, eval: 1}}
smoke_batch_size: 1
"""


class FakePip:
    """Stands for the processes: pip calls install into `site`, all others (imports) succeed, unless told otherwise."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.commands: list[list[str]] = []
        self.versions: dict[str, str] = {}
        self.broken_imports: dict[str, str] = {}  # module: standard error
        self.refused: dict[str, str] = {}  # argument of pip: standard error

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        if command[1] == "-P":
            return self._import(command[3].removeprefix("import ").split(", "))
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        arguments = [argument for argument in command[5:] if argument not in ("-c", "-e")]
        for argument in arguments:
            if argument in self.refused:
                return subprocess.CompletedProcess(command, 1, stderr=self.refused[argument])
        for argument in arguments:
            if "/" not in argument:
                self.add(install.distribution_name(argument))
        return subprocess.CompletedProcess(command, 0, stderr="WARNING: as root\n")

    def _import(self, modules: list[str]) -> subprocess.CompletedProcess[str]:
        for module in modules:
            if module in self.broken_imports:
                return subprocess.CompletedProcess([], 1, stderr=self.broken_imports[module])
        return subprocess.CompletedProcess([], 0, stderr="")

    def add(self, name: str) -> None:
        version = self.versions.get(name, "1.0")
        folder = self.site / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "RECORD").write_text(f"{name}.py,,\n{name}-{version}.dist-info/METADATA,,\n")
        (self.site / f"{name}.py").write_text("")
        importlib.invalidate_caches()

    @property
    def pip_calls(self) -> list[list[str]]:
        """What follows `python -m pip install --disable-pip-version-check` in each call of pip."""
        return [command[5:] for command in self.commands if command[1] == "-m"]


def add_model(models: Path, name: str, requirements: str = "", domain: str = "nlp") -> None:
    (models / name).mkdir(parents=True)
    (models / name / "metadata.yaml").write_text(METADATA.format(requirements=requirements, domain=domain))


def rows(output: str) -> dict[str, str]:
    """The table's lines as `name: rest`, blanks made one."""
    return {line.split()[0]: " ".join(line.split()[1:]) for line in output.splitlines()[:-1]}
