"""Documents say what is true: their commands are commands of this torchzoo, their links lead somewhere."""

from __future__ import annotations

import argparse
import importlib.util
import re
import runpy
import shlex
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import yaml

import torchzoo
from examples import INDUCTOR, ROOT, record
from kept_runs import against_eager, keep
from torchzoo.cli import build_parser
from torchzoo.install import _parser as install_parser
from torchzoo.store import read_run
from torchzoo.studies import userbenchmark

PAGES = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
MANUALS = [page for page in PAGES if page.count("/") == 1]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *PAGES]
#: Code between fences, in any language: also what a workflow or a text shows.
FENCED = re.compile(r"^(```+)[^\n]*\n(.*?)^\1", re.MULTILINE | re.DOTALL)
#: A command with words behind its name in a sentence. (`torchzoo watch` alone is only a name.)
IN_A_SENTENCE = re.compile(r"(?<!`)`((?:torchzoo [^\s`]+|python run\.py|python install\.py)\s[^`]+)`")
PICTURES = runpy.run_path(str(ROOT / "tools" / "pictures.py"))["PICTURES"]
WORKFLOWS = [".github/workflows/ci.yml", "docs/workflows/nightly.yml"]


def blocks(path: Path) -> list[str]:
    """The code that a document shows, or what a workflow runs."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        shown = [block for _, block in FENCED.findall(text)]
        if path.name == "CHANGELOG.md" or "results" in path.parts:  # what they name in sentences is of another day
            return shown
        return shown + [" ".join(code.split()) for code in IN_A_SENTENCE.findall(FENCED.sub("", text))]
    jobs = yaml.safe_load(text)["jobs"].values()
    return [step["run"] for job in jobs for step in job["steps"] if "run" in step]


def commands(path: Path) -> list[list[str]]:
    """The commands of torchzoo in it, without the program's name."""
    found = []
    for block in blocks(path):
        for line in re.split(r"\n|\s&&\s|\s\|\s", block.replace("\\\n", " ")):
            command = re.sub(r"^\s*(?:\$ )?(?:[A-Z_]+=\S+ )*", "", re.sub(r"\$\{\{.*?\}\}", "x", line))
            if not re.match(r"(?:torchzoo|python run\.py|python install\.py)\s", command):
                continue
            words = shlex.split(command, comments=True)
            if words[0] == "torchzoo":
                found.append(words[1:])
            else:
                found.append([words[1].removesuffix(".py"), *words[2:]])
    return found


@cache
def parser_of(program: str) -> argparse.ArgumentParser:
    return install_parser("install") if program == "install" else build_parser()


def parsed_with(words: list[str]) -> object:
    """The exit status of the parser: 0 where it takes the words (and where they ask for help)."""
    try:
        if words[0] == "install":
            parser_of("install").parse_args(words[1:])
        else:
            parser_of("torchzoo").parse_args(words)
    except SystemExit as ended:
        return ended.code
    return 0


@pytest.mark.parametrize("name", [*DOCUMENTS, *WORKFLOWS])
def test_every_command_is_understood(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    refused = [shlex.join(words) for words in commands(ROOT / name) if parsed_with(words)]
    assert refused == [], capsys.readouterr().err


def test_the_userbenchmark_of_its_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/writing_a_userbenchmark.md").read_text(encoding="utf-8")
    (code,) = re.findall(
        r'^```python title="my_benchmarks/first_steps/__init__.py"\n(.*?)^```', page, re.MULTILINE | re.DOTALL
    )
    folder = tmp_path / "my_benchmarks" / "first_steps"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(code)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(folder.parent))
    benchmark = userbenchmark.load("first_steps")
    request = benchmark.plan(userbenchmark.Choice(folder=tmp_path))
    assert request.suites == ("smoke",)
    assert [str(backend) for backend in request.axes.backends] == ["inductor"]
    run = read_run(keep(tmp_path / "run", [record(against_eager(2.0), backend=INDUCTOR), record()]))
    document = userbenchmark.document(benchmark, run)
    # the first steps take 0.5 and 12 s, and a step 0.2 and 0.1 s
    assert re.search(r"\| tiny \| 500 ms \| 12\.0 s \| 100 ms \| 11\d steps \|", document), document


def test_the_code_of_the_faq_takes_a_model_out_and_does_its_own_step() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/faq.md").read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["model"].batch_size == 4
    for ours, its in zip(names["outputs"], names["same"], strict=True):
        torch.testing.assert_close(ours, its)


# --- links, paths and generated files ---


@cache
def ci_script(name: str = "site_hook") -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / f".ci/{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", *MANUALS])
def test_paths_in_documents_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:torchzoo|tests|docs|benchmarks|userbenchmark|models|collections)/[\w./-]*)`", text)
    ours = [path for path in paths if not path.startswith("benchmarks/dynamo/")]  # PyTorch's
    assert [path for path in ours if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PICTURES)
def test_a_committed_picture_is_what_its_script_draws(name: str) -> None:
    committed = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert committed == PICTURES[name]().svg(), "run tools/pictures.py"


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "SECURITY.md", *PAGES])
def test_links_between_files_of_the_checkout_lead_somewhere(name: str) -> None:
    """MkDocs looks at links within docs/, and at their anchors. This also sees the others."""
    text = FENCED.sub("", (ROOT / name).read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    places = [target.partition("#")[0] for target in targets if not re.match(r"[a-z]+:|#", target)]
    assert [place for place in places if not (ROOT / name).parent.joinpath(place).exists()] == []


def test_every_page_is_in_the_navigation() -> None:
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(re.findall(r"^ +- [^#\n]*: (\S+\.md)$", text, re.MULTILINE))
    pages = {page.removeprefix("docs/") for page in PAGES}
    assert named - pages == set()
    assert {page for page in pages - named if not page.startswith(("results/", "studies/"))} == set()


def test_the_list_of_results_has_each_document() -> None:
    result_list = ci_script("result_list")
    index = (ROOT / "docs" / result_list.INDEX).read_text(encoding="utf-8")
    assert index == result_list.with_list(index, ROOT / "docs"), "run `python .ci/result_list.py`, and commit the page"


def test_the_version_is_the_same_everywhere() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == torchzoo.__version__
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"\n## [{torchzoo.__version__}] - {citation['date-released']}\n" in changes
    wheel = f"torchzoo-{torchzoo.__version__}-py3-none-any.whl"
    assert wheel in (ROOT / "docs/getting_started.md").read_text(encoding="utf-8")


def test_no_document_or_message_installs_the_project_that_has_our_name_on_pypi() -> None:
    files = [ROOT / name for name in (*DOCUMENTS, "SECURITY.md")] + sorted((ROOT / "torchzoo").rglob("*.py"))
    asked = re.compile(r"pip install [^`\n]*(?<![\w/.-])torchzoo\b(?!-)(?!/)")
    found = {str(path.relative_to(ROOT)) for path in files if asked.search(path.read_text(encoding="utf-8"))}
    assert found == {"CONTRIBUTING.md"}  # which says not to
