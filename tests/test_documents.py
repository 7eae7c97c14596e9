"""The commands in documents and workflows are commands of this torchzoo: the parser takes them as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

import torchzoo
from examples import ROOT
from torchzoo.cli import build_parser
from torchzoo.install import _parser as install_parser

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
WORKFLOWS = [".github/workflows/ci.yml", "docs/workflows/nightly.yml"]


def blocks(path: Path) -> list[str]:
    """What a document shows as shell code, or what a workflow runs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return re.findall(r"```(?:sh|bash)\n(.*?)```", text, re.DOTALL)
    jobs = yaml.safe_load(text)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def commands(path: Path) -> list[list[str]]:
    """The commands of torchzoo in it, without the program's name."""
    found = []
    for block in blocks(path):
        for line in re.split(r"\n|\s&&\s|\s\|\s", block.replace("\\\n", " ")):
            words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "x", line), comments=True)
            if words[:1] == ["torchzoo"]:
                found.append(words[1:])
            elif words[:2] == ["python", "run.py"]:
                found.append(["run", *words[2:]])
            elif words[:2] == ["python", "install.py"]:
                found.append(["install", *words[2:]])
    return found


def parsed_with(words: list[str]) -> object:
    """The exit status of the parser: 0 where it takes the words (and where they ask for help)."""
    try:
        if words[0] == "install":
            install_parser("install").parse_args(words[1:])
        else:
            build_parser().parse_args(words)
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.mark.parametrize("name", [*DOCUMENTS, *WORKFLOWS])
def test_every_command_is_understood(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = [shlex.join(words) for words in commands(ROOT / name) if parsed_with(words)]
    assert refused == [], capsys.readouterr().err


def test_there_are_commands_in_them() -> None:
    assert len(commands(ROOT / "README.md")) > 15
    assert any(words[0] == "watch" for words in commands(ROOT / "docs/workflows/nightly.yml"))


def test_a_command_that_is_wrong_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("```sh\ntorchzoo compare a b --trheshold 3  # no such option\n```\n")
    ((*words,),) = commands(tmp_path / "a.md")
    assert words == ["compare", "a", "b", "--trheshold", "3"]
    assert parsed_with(words) == 2


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == torchzoo.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{torchzoo.__version__}] - {citation['date-released']}\n" in changes
    assert f"torchzoo-{torchzoo.__version__}-py3-none-any.whl" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_no_document_or_message_installs_the_project_that_has_our_name_on_pypi() -> None:
    files = [ROOT / name for name in (*DOCUMENTS, "SECURITY.md")] + sorted((ROOT / "torchzoo").rglob("*.py"))
    asked = re.compile(r"pip install [^`\n]*(?<![\w/.-])torchzoo\b(?!-)(?!/)")
    found = {str(path.relative_to(ROOT)) for path in files if asked.search(path.read_text(encoding="utf-8"))}
    assert found == {"CONTRIBUTING.md"}  # which says not to
