"""`--debug`: scripts that reproduce a failure, and a run of two cases in workers that leaves them and the traces."""

from __future__ import annotations

import ast
import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from examples import INDUCTOR, ROOT, compared, manifest, record
from in_this_process import torchzoo
from torchzoo.case import Mode, Parallel
from torchzoo.commands.from_python import parsed, words_of
from torchzoo.record import Check, CheckStatus, Failed, FailureKind, Manifest, Skipped
from torchzoo.run.debugging import SCRIPT, STEPS_UNTIL_NOT_FINITE, keep_reproduction
from torchzoo.settings import Settings, Stage
from user_models import TINY, make_folder

FAILED = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message='ValueError: """ \\" oops\x1b')
WRONG = Check(status=CheckStatus.INCORRECT, reason="outputs: output is off by 1")


def asked(folder: Path, **changes: object) -> Manifest:
    settings = Settings(debug_dir=str(folder / "debug"), threads=1)
    return msgspec.structs.replace(manifest(), settings=settings, **changes)


def scripts(folder: Path) -> list[Path]:
    return list((folder / "debug").glob(f"*/{SCRIPT}"))


def keywords(script: Path) -> dict[str, object]:
    """The arguments of the call in it that are literals."""
    call = next(one for one in ast.walk(ast.parse(script.read_text())) if isinstance(one, ast.Call) and one.keywords)
    return {one.arg: ast.literal_eval(one.value) for one in call.keywords if one.arg and one.arg != "minify_to"}


def test_a_script_has_the_whole_case(tmp_path: Path) -> None:
    failed = record(FAILED, mode=Mode.TRAIN, backend=INDUCTOR, batch_size=7, seed=3)
    keep_reproduction(failed, asked(tmp_path, models_dirs=("/my models",)))
    [script] = scripts(tmp_path)
    assert keywords(script) == {
        "model": "tiny",
        "mode": "train",
        "device": "cpu",
        "batch_size": "7",
        "backend": "inductor",
        "precision": "default",
        "memory_format": "contiguous",
        "compile_scope": "network",
        "check": False,
        "seed": "3",
        "threads": 1,
        "models_dir": ["/my models"],
    }
    about = ast.get_docstring(ast.parse(script.read_text()))
    assert about is not None
    assert "failed (error in compile): ValueError:" in about
    assert about.isascii()


def test_only_what_went_wrong_has_a_script_and_only_where_it_is_asked_for(tmp_path: Path) -> None:
    wrong = record(msgspec.structs.replace(compared(), check=WRONG), backend=INDUCTOR)
    for fine in (record(compared(), backend=INDUCTOR), record(Skipped(reason="no"))):
        keep_reproduction(fine, asked(tmp_path))
    keep_reproduction(wrong, manifest())
    keep_reproduction(record(FAILED, batch_size=None), asked(tmp_path))  # it never had a step
    assert not scripts(tmp_path)
    keep_reproduction(wrong, asked(tmp_path))
    [script] = scripts(tmp_path)
    assert keywords(script)["check"] is True


def test_what_was_not_finite_late_is_searched_for_long(tmp_path: Path) -> None:
    late = msgspec.structs.replace(FAILED, kind=FailureKind.NOT_FINITE)
    keep_reproduction(record(late, mode=Mode.TRAIN), asked(tmp_path))
    assert keywords(scripts(tmp_path)[0])["steps"] == STEPS_UNTIL_NOT_FINITE


def test_several_ranks_are_run_again_as_a_run(tmp_path: Path) -> None:
    keep_reproduction(record(FAILED, world=2, parallel=Parallel.FSDP2), asked(tmp_path))
    [script] = scripts(tmp_path)
    given = keywords(script)
    assert (given.pop("models"), given["world"], given["parallel"]) == ("tiny", "2", "fsdp2")
    assert parsed(words_of("tiny", given)).batch_size == (4,)


@pytest.mark.parametrize(
    ("code", "error", "words"),
    [
        ("    def eval_step(self):\n        raise ValueError('no such thing')\n", ValueError, "no such thing"),
        ("    def networks(self):\n        return {}\n", Exception, "calls none of its networks"),
    ],
)
def test_the_script_stops_with_the_same_error(tmp_path: Path, code: str, error: type[Exception], words: str) -> None:
    make_folder(tmp_path / "zoo", "tiny", f"{TINY}\n{code}")
    failed = record(FAILED, backend=msgspec.structs.replace(INDUCTOR, name="aot_eager"), batch_size=2)
    keep_reproduction(failed, asked(tmp_path, models_dirs=(str(tmp_path / "zoo"),)))
    with pytest.raises(error, match=words):
        runpy.run_path(str(scripts(tmp_path)[0]), run_name="__main__")


def test_the_script_says_where_it_found_no_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_folder(tmp_path / "zoo", "tiny", TINY)
    wrong = record(msgspec.structs.replace(compared(), check=WRONG), mode=Mode.TRAIN, batch_size=2)
    keep_reproduction(wrong, asked(tmp_path, models_dirs=(str(tmp_path / "zoo"),)))
    runpy.run_path(str(scripts(tmp_path)[0]), run_name="__main__")
    assert capsys.readouterr().out == "no error this time\n"


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_a_run_leaves_traces_of_what_it_compiled_and_scripts_of_what_failed(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny", TINY)
    make_folder(tmp_path / "zoo", "bad", f"{TINY}\n    def eval_step(self):\n        raise ValueError('oops')\n")
    words = ["run", "tiny", "bad", "-d", "cpu", "--backend", "aot_eager", "--models-dir", tmp_path / "zoo", "-q"]
    done = torchzoo(*words, "--json", "--time-limit", 0.1, "--debug", tmp_path / "debug")
    by_model = {one["case"]["model"]: one["outcome"] for one in map(json.loads, done.stdout.splitlines())}
    assert by_model["tiny"]["variants"]["candidate"]["compilation"]["traced"]
    assert by_model["bad"]["type"] == "failed"
    left = {path.parent.name.split("-")[0]: path.name for path in (tmp_path / "debug").glob("*/*")}
    assert left == {"tiny": "dedicated_log_torch_trace_rank_0.log", "bad": SCRIPT}


#: PyTorch's own planted bug of relu.
WRONG_RELU = TINY.replace("import torch\n", "import torch\nimport torch._inductor.config\n", 1).replace(
    "class Model(", 'torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = "accuracy"\n\n\nclass Model(', 1
)


@pytest.mark.slow
def test_wrong_results_can_be_minimised(tmp_path: Path) -> None:
    """The script that Dynamo writes then takes another minute to find the one operator."""
    make_folder(tmp_path / "zoo", "tiny", WRONG_RELU)
    wrong = record(msgspec.structs.replace(compared(), check=WRONG), backend=INDUCTOR, batch_size=2)
    keep_reproduction(wrong, asked(tmp_path, models_dirs=(str(tmp_path / "zoo"),)))
    [script] = scripts(tmp_path)
    words = [sys.executable, str(script), "--minify"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )  # Dynamo leaves a copy of what it finds in the current folder
    assert "Bad accuracy detected" in done.stderr
    (launcher,) = script.parent.rglob("minifier_launcher.py")
    assert "aten.relu" in launcher.read_text()
