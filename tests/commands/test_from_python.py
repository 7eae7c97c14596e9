"""`torchzoo.run(...)`: what the command does, from Python; in a notebook, with a kernel."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import torchzoo
from examples import CASE, ROOT, record, rendered
from torchzoo.cli import build_parser
from torchzoo.commands import from_python
from torchzoo.commands.options import run_request
from torchzoo.errors import TorchzooError, UsageError
from torchzoo.record import Failed, FailureKind
from torchzoo.report.progress import NotebookDisplay, Progress
from torchzoo.run.lanes import Lane
from torchzoo.settings import Stage

NOTEBOOK = ROOT / "docs/notebooks/measure.ipynb"


@pytest.mark.parametrize(
    ("keywords", "words"),
    [
        ({"models": "resnet18"}, "resnet18"),
        ({"models": ["resnet18", "hf_*"], "mode": ["train", "eval"]}, "resnet18 hf_* -t train,eval"),
        ({"models": "nlp", "device": ["cpu", "cuda:1"], "repeats": 3}, "nlp -d cpu,cuda:1 --repeats 3"),
        ({"suite": "torchbench", "backend": ["eager", "inductor:reduce-overhead"]},
         "--suite torchbench --backend eager,inductor:reduce-overhead"),
        ({"models": "all", "precision": "tf32,amp", "batch_size": [1, "smoke"]},
         "all --precision tf32,amp --bs 1,smoke"),
        ({"models": "all", "memory_format": "channels_last", "compile_scope": "step", "world": [1, 2],
          "parallel": "fsdp2"},
         "all --memory-format channels_last --compile-scope step --world 1,2 --parallel fsdp2"),
        ({"models": "all", "seed": -5, "threads": 2, "time_limit": 0.5, "timeout": 60, "jobs": 3},
         "all --seed=-5 --threads 2 --time-limit 0.5 --timeout 60 -j 3"),
        ({"models": "all", "devices": [0, 1], "host_memory_limit": "8GiB", "cache": "warm"},
         "all --devices 0,1 --host-memory-limit 8GiB --cache warm"),
        ({"models": "all", "flops": True, "leak_check": True, "check": False, "models_dir": [Path("/a"), "/b,c"]},
         "all --flops --leak-check --models-dir /a --models-dir /b,c"),
        ({"models": "-odd"}, "-- -odd"),
    ],
)  # fmt: skip
def test_keywords_ask_for_what_the_options_ask_for(keywords: dict[str, Any], words: str) -> None:
    options = {name: value for name, value in keywords.items() if name != "models"}
    line = from_python.words_of(keywords.get("models", ()), options)
    assert run_request(from_python.parsed(line)) == run_request(build_parser().parse_args(["run", *words.split()]))


@pytest.mark.parametrize("keyword", ["batchsize", "dry_run", "help", "passes"])
def test_other_keywords_are_refused(keyword: str) -> None:
    with pytest.raises(TypeError, match=f"unknown option of torchzoo.run '{keyword}'"):
        torchzoo.run("resnet18", **{keyword: 3})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"models": "resnet81"}, "did you mean resnet18"),
        ({"models": ()}, "name at least one MODEL"),
        ({"models": ""}, "name at least one MODEL"),
        ({"models": "resnet18", "mode": "trian"}, "did you mean train?"),
        ({"models": "resnet18", "repeats": 0}, "argument --repeats: expected a whole number of at least 1"),
        ({"models": "resnet18", "batch_size": [4, -1]}, "at least 1"),
        ({"models": "resnet18", "precision": "flop"}, "unknown precision 'flop'"),
        ({"resume": "/no/such"}, "no run in /no/such"),
    ],
)
def test_errors_are_exceptions_with_the_line_of_the_command(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TorchzooError, match=message) as refused:
        torchzoo.run(**arguments)
    assert "\n" not in str(refused.value)


def test_another_thread_is_refused() -> None:
    """Signals reach the main thread alone, and they end the workers."""
    found: list[Exception] = []

    def call() -> None:
        try:
            torchzoo.run("resnet18")
        except UsageError as error:
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    assert "main thread only" in str(found[0])


def test_run_is_the_package_and_the_call_however_it_is_imported() -> None:
    code = """
import sys
import torchzoo
assert not {"torch", "pandas", "torchzoo.run"} & set(sys.modules)  # it stays light
call = torchzoo.run
import torchzoo.run.plan
from torchzoo import run
assert run is call is torchzoo.run and callable(run) and run.plan.Axes
assert not {"torch", "pandas"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


# --- notebooks ---


class Shown(NotebookDisplay):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def show(self, renderable: Any) -> None:
        self.texts.append(rendered(renderable).rstrip())


def test_a_notebook_has_one_text_that_changes_and_a_line_for_each_failure(capsys: pytest.CaptureFixture[str]) -> None:
    notebook, lane = Shown(), Lane(device="cpu")
    with Progress(total=2, lanes=[lane], quiet=False, is_terminal=False, notebook=notebook) as shown:
        shown.stage(CASE, lane, Stage.COMPILE)
        shown.done(record())
        shown.done(record(Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message="no"), model="b"))
    assert any("preparing 1: tiny eval cpu eager bs4 (compile)" in text for text in notebook.texts)
    assert notebook.texts[-1] == "2/2 cases: 1 measured, 0 skipped, 1 failed"
    assert capsys.readouterr().err == "[2/2] b eval cpu eager bs4: FAILED (error in build): no\n"


@pytest.mark.slow
def test_the_notebook_runs_in_a_kernel() -> None:
    """With a kernel's threads, its event loop and its standard streams; and each output is what the text says."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(notebook, timeout=200, kernel_name="python3").execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    texts = [
        "\n".join(str(output.get("text") or output.get("data", {}).get("text/plain")) for output in cell.outputs)
        for cell in cells
    ]
    measuring, table, columns, refused, loaded, shown = texts
    assert measuring.startswith("2/2 cases: 2 measured, 0 skipped, 0 failed\n")
    assert "run kept in " in measuring
    assert sum(output.output_type == "display_data" for output in cells[0].outputs) == 1
    assert table.count("measured") == loaded.count("lennard_jones") == 2
    assert "latency_s: candidate (else eager): seconds of a step" in columns
    assert "did you mean resnet18" in refused
    assert "again: python run.py lennard_jones -d cpu -t eval --bs 4" in shown
