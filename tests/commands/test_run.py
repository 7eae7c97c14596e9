"""`torchzoo run` for real: good cases, and every way a case can fail."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil
import pytest

from examples import ROOT
from in_this_process import torchzoo
from torchzoo.analysis.cases import read_report_data
from torchzoo.cli import main
from torchzoo.record import Compilation, Failed, FailureKind, Measured, Record, Skipped
from torchzoo.settings import Stage
from torchzoo.store import read_run
from user_models import TINY, make_broken, make_folder, make_waiting
from waiting import until

pytestmark = pytest.mark.xdist_group("run")  # side by side they would wait for each other


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return torchzoo("run", *arguments)


def run_alone(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The same in a process of its own."""
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


def records(path: Path) -> dict[str, Record]:
    return {record.case.model: record for record in read_run(path).records}


BACKENDS = ["eager", "inductor", "torchscript", "aot_eager"]


@pytest.fixture(scope="session")  # other modules' tests come between those that take it
def measured_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One run of a small model with several backends in both modes, and what it printed."""
    base = tmp_path_factory.mktemp("measured")
    make_folder(base / "zoo", "tiny")
    arguments = ["tiny", "--models-dir", str(base / "zoo"), "-d", "cpu", "-t", "train,eval", "--time-limit", "0.2"]
    done = run(*arguments, "--backend", ",".join(BACKENDS), "--threads", "1", "-o", str(base / "run"))
    assert done.returncode == 0, done.stderr
    return base / "run", done.stdout


def test_backends_in_both_modes(measured_run: tuple[Path, str]) -> None:
    path, shown = measured_run
    kept = read_run(path)
    assert [str(record.case.backend) for record in kept.records] == BACKENDS[1:] * 2  # each with eager beside it
    for record in kept.records:
        outcome = record.outcome
        assert isinstance(outcome, Measured)
        assert outcome.parameters == 74
        assert outcome.threads == 1
        assert outcome.operator_dtypes.keys() == {"float32"}
        assert outcome.samples_per_step == record.case.batch_size == 4
        if record.case.backend.name == "inductor":
            turns = "".join(block.variant[0] for block in outcome.blocks)
            assert {turns[at : at + 4] for at in range(0, len(turns), 4)} <= {"ecce", "ceec"}
            assert outcome.variants["candidate"].first_step_s > 10 * outcome.variants["eager"].warmup_s[-1]
        for variant in outcome.variants.values():
            assert variant.memory.host_peak_rss_bytes >= variant.memory.host_uss_bytes > 2**20
            assert variant.result_is_finite
    assert "tiny" in shown
    assert main(["report", str(path), "--format", "md", "-o", str(path / "report.md")]) == 0
    table = (path / "report.md").read_text().partition("## ")[0]
    assert table.count("| tiny |") == len(BACKENDS[1:]) * 2


def compilation(record: Record) -> Compilation | None:
    assert isinstance(record.outcome, Measured)
    return record.outcome.variants["candidate"].compilation


def test_only_what_is_behind_dynamo_has_counts_of_its_compilation(measured_run: tuple[Path, str]) -> None:
    compiled = [record for record in read_run(measured_run[0]).records if record.case.backend.name != "eager"]
    for record in compiled:
        counts = compilation(record)
        if record.case.backend.name == "torchscript":
            assert counts is None
        else:
            assert counts is not None
            assert counts.graphs == 1


@pytest.mark.slow
def test_cold_warm_and_shared_caches_are_what_they_say(tmp_path: Path, measured_run: tuple[Path, str]) -> None:
    """Two models of the same code compile the same graph: a shared cache gives the second what the first left there."""
    for name in ("tiny", "twin"):
        make_folder(tmp_path / "zoo", name)
    arguments = ["--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "--backend", "inductor", "--threads", "1"]

    def seen(found: Iterable[Record]) -> list[tuple[str | None, int, int]]:
        counted = [counts for counts in map(compilation, found) if counts is not None]
        return [(counts.cache, counts.cache_hits, counts.cache_misses) for counts in counted]

    def seen_with(cache: str, *models: str) -> list[tuple[str | None, int, int]]:
        done = run(*models, *arguments, "--time-limit", "0.2", "-j", "1", "--cache", cache, "--json")
        assert done.returncode == 0, done.stderr
        return seen(msgspec.json.decode(line, type=Record) for line in done.stdout.splitlines())

    inductor = [record for record in read_run(measured_run[0]).records if record.case.backend.name == "inductor"]
    assert seen(inductor) == [("cold", 0, 2), ("cold", 0, 1)]  # in training a graph forward and one backward
    assert seen_with("warm", "tiny") == [("warm", 1, 0)]
    assert seen_with(str(tmp_path / "cache"), "tiny", "twin") == [("shared", 0, 1), ("shared", 1, 0)]


@pytest.mark.slow
def test_a_candidate_alone_fills_the_warm_caches_so_that_nothing_compiles_a_third_time(tmp_path: Path) -> None:
    built = tmp_path / "built"
    code = TINY.replace(
        "def build_network(self):",
        f"def build_network(self):\n        import os\n        print(os.getpid(), file=open({str(built)!r}, 'a'))",
    )
    make_folder(tmp_path / "zoo", "tiny", code)
    arguments = ["--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "--backend", "inductor", "--threads", "1"]
    done = run("tiny", *arguments, "--time-limit", "0.2", "--cache", "warm", "--memory-alone", "--json")
    assert done.returncode == 0, done.stderr
    record = msgspec.json.decode(done.stdout, type=Record)
    counts = compilation(record)
    assert counts is not None
    assert (counts.cache, counts.cache_hits, counts.cache_misses) == ("warm", 1, 0)
    assert len(set(built.read_text().split())) == 2  # the process that is alone, and the measured one
    assert isinstance(record.outcome, Measured)
    candidate = record.outcome.variants["candidate"]
    assert candidate.alone is not None
    assert candidate.alone.first_step_cpu_s > candidate.first_step_cpu_s  # it compiled


@pytest.mark.slow
def test_a_candidate_that_fails_alone_costs_the_case_no_other_figure(tmp_path: Path) -> None:
    fails = """
    def forward(self):
        if self.network._compiled_call_impl is not None and not hasattr(self, "had_eager_step"):
            raise ValueError("not without eager")
        self.had_eager_step = True
        return super().forward()
"""
    make_folder(tmp_path / "zoo", "tiny", TINY + fails)
    arguments = ["--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "--backend", "aot_eager", "--threads", "1"]
    done = run("tiny", *arguments, "--time-limit", "0.2", "--memory-alone", "--json")
    assert done.returncode == 0, done.stderr
    record = msgspec.json.decode(done.stdout, type=Record)
    assert isinstance(record.outcome, Measured)
    candidate = record.outcome.variants["candidate"]
    assert candidate.alone is None
    assert isinstance(candidate.why_not_alone, Failed)
    assert (candidate.why_not_alone.stage, candidate.why_not_alone.kind) == (Stage.ALONE, FailureKind.ERROR)
    assert candidate.why_not_alone.message == "ValueError: not without eager"


@pytest.mark.slow
def test_parts_of_a_run_are_read_as_one(tmp_path: Path) -> None:
    for name in ("one", "two", "three"):
        make_folder(tmp_path / "zoo", name)
    words = ["one,two", "three", "--models-dir", str(tmp_path / "zoo"), "-t", "eval", "-d", "cpu"]
    words += ["--time-limit", "0.1", "-q"]
    for number in (1, 2):
        done = run(*words, "--part", f"{number}/2", "-o", str(tmp_path / str(number)))
        assert done.returncode == 0, done.stderr
    parts = [{record.case.model for record in read_run(tmp_path / str(number)).records} for number in (1, 2)]
    assert parts[0] & parts[1] == set()
    assert parts[0] | parts[1] == {"one", "two", "three"}
    assert len(read_report_data([tmp_path / "1", tmp_path / "2"]).cases) == 3
    refused = run(*words, "--part", "1/4")
    assert refused.returncode == 2
    assert "--part 1/4: the plan has only 3 models" in refused.stderr


def test_json_prints_the_record_and_leaves_nothing_behind(tmp_path: Path, temporary: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    done = run_alone("tiny", "--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "--time-limit", "0.2", "--json")
    record = json.loads(done.stdout)
    assert record["case"]["model"] == "tiny"
    assert record["outcome"]["type"] == "measured"
    assert record["outcome"]["blocks"]
    assert list(temporary.glob("torchzoo-*")) == []
    assert done.stderr.splitlines()[-1].startswith("not kept: with -o DIR, ")


@pytest.fixture(scope="module")
def broken_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One run over every kind of broken folder, with a good one among them."""
    base = tmp_path_factory.mktemp("broken")
    zoo = base / "zoo"
    for name in ("raises", "killed", "segfaults", "hangs", "eats_memory", "exits"):
        make_broken(zoo, name)
    make_folder(zoo, "bad_yaml", metadata="domain: [unclosed")
    make_folder(zoo, "bad_field", metadata="domain: cooking")
    make_folder(zoo, "no_model", code='"""Nothing here (2026)."""\n')
    make_folder(zoo, "bad_constructor", TINY + "\n    def build_batch(self):\n        return 1 / 0\n")
    make_folder(zoo, "bad_syntax", code="def")
    make_folder(zoo, "lacks_library", metadata=_metadata_with_requirement("no-such-library-7"))
    make_folder(zoo, "tiny")
    names = [folder.name for folder in sorted(zoo.iterdir())]
    limits = ["--timeout", "10", "--host-memory-limit", "6GiB", "--time-limit", "0.2", "--threads", "1", "-j", "2"]
    done = run(*names, "--models-dir", str(zoo), "-d", "cpu", *limits, "-o", str(base / "run"))
    return base / "run", done


def _metadata_with_requirement(requirement: str) -> str:
    from user_models import METADATA

    return METADATA.replace("requirements: []", f"requirements: [{requirement}]")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "stage", "words"),
    [
        ("raises", FailureKind.ERROR, Stage.WARM_UP, "ValueError: no <such> thing"),
        ("killed", FailureKind.CRASHED, Stage.WARM_UP, "SIGKILL"),
        ("segfaults", FailureKind.CRASHED, Stage.WARM_UP, "SIGSEGV"),
        ("hangs", FailureKind.TIMEOUT, Stage.WARM_UP, "longer than 10 s"),
        ("eats_memory", FailureKind.OOM_HOST, Stage.WARM_UP, "memory"),
        ("exits", FailureKind.CRASHED, Stage.WARM_UP, "status 7"),
        ("bad_yaml", FailureKind.ERROR, Stage.PLAN, "not valid YAML"),
        ("bad_field", FailureKind.ERROR, Stage.PLAN, "cooking"),
        ("no_model", FailureKind.ERROR, Stage.IMPORT, "has no class Model"),
        ("bad_constructor", FailureKind.ERROR, Stage.BUILD, "ZeroDivisionError"),
        ("bad_syntax", FailureKind.ERROR, Stage.IMPORT, "SyntaxError"),
    ],
)
def test_a_broken_case_is_a_row_that_says_how(
    broken_run: tuple[Path, subprocess.CompletedProcess[str]], name: str, kind: FailureKind, stage: Stage, words: str
) -> None:
    outcome = records(broken_run[0])[name].outcome
    assert isinstance(outcome, Failed)
    assert (outcome.kind, outcome.stage) == (kind, stage), outcome.message
    assert words in outcome.message
    assert "\n" not in outcome.message
    if stage is not Stage.PLAN:
        assert Path(outcome.log).exists()


@pytest.mark.slow
def test_the_other_rows_are_unharmed_and_the_status_says_that_some_failed(
    broken_run: tuple[Path, subprocess.CompletedProcess[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    path, done = broken_run
    assert done.returncode == 1
    good = records(path)["tiny"].outcome
    assert isinstance(good, Measured), good
    assert len(records(path)) == 13
    skipped = records(path)["lacks_library"].outcome
    assert isinstance(skipped, Skipped)
    assert "python install.py lacks_library" in skipped.reason
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert f"run kept in {path}" in lines
    assert f"what failed, again: torchzoo run --resume {path} --retry-failed" in lines
    case, page = (next(line for line in lines if line.startswith(words)) for words in ("one case", "all in"))
    assert main(shlex.split(case.removeprefix("one case in full: torchzoo "))) == 0  # of a case that failed
    assert "FAILED: " in capsys.readouterr().out
    assert page == f"all in a browser: torchzoo report {path} --format html -o report.html"


@pytest.mark.slow
def test_a_segfault_leaves_its_python_stack_in_the_log(
    broken_run: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    outcome = records(broken_run[0])["segfaults"].outcome
    assert isinstance(outcome, Failed)
    assert "eval_step" in outcome.traceback


def start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "run.py"), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_interrupt_ends_the_worker_and_keeps_what_was_measured(tmp_path: Path) -> None:
    make_broken(tmp_path / "zoo", "hangs")
    make_folder(tmp_path / "zoo", "a_tiny")
    arguments = ["a_tiny", "hangs", "--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "-o", str(tmp_path / "run")]
    parent = start(*arguments, "--time-limit", "0.2")
    until(lambda: list((tmp_path / "run" / "logs").glob("*hangs*")))
    time.sleep(1)
    children = psutil.Process(parent.pid).children(recursive=True)
    assert children
    parent.send_signal(signal.SIGINT)
    _, stderr = parent.communicate(timeout=180)
    assert parent.returncode == 130
    assert "interrupted" in stderr
    assert f"measure the rest with: torchzoo run --resume {tmp_path / 'run'}\n" in stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    assert list(records(tmp_path / "run")) == ["a_tiny"]


@pytest.mark.slow
def test_kill_9_of_the_runner_leaves_no_process_and_a_run_to_go_on_with(tmp_path: Path, temporary: Path) -> None:
    """Killed while one worker is measured, hanging, and another is stopped: that one can't see its runner go."""
    zoo, path = tmp_path / "zoo", tmp_path / "run"
    make_broken(zoo, "hangs_later", path / "records.jsonl")  # a window that hangs before the first row would keep it
    make_waiting(zoo, "b_waits", tmp_path / "flag")
    make_folder(zoo, "a_tiny")
    arguments = ["a_tiny", "b_waits", "hangs_later", "--models-dir", str(zoo), "-d", "cpu", "--threads", "1"]
    parent = start(*arguments, "--time-limit", "1", "-j", "3", "-o", str(path))
    children: list[psutil.Process] = []

    def one_is_stopped() -> bool:
        children[:] = psutil.Process(parent.pid).children(recursive=True)
        has_row = (path / "records.jsonl").exists()
        return has_row and any(child.status() == psutil.STATUS_STOPPED for child in children)

    until(one_is_stopped)
    refused = run("--resume", str(path))
    assert refused.returncode == 2
    assert "another torchzoo is at work" in refused.stderr
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=20)
    assert alive == []
    until(lambda: not list(temporary.glob("torchzoo-scratch-*")), limit_s=10)
    assert list(records(path)) == ["a_tiny"]

    (tmp_path / "flag").touch()
    (zoo / "hangs_later" / "__init__.py").write_text(TINY + "\n    def eval_step(self):\n        raise ValueError\n")
    resumed = run("--resume", str(path), "--json")
    assert resumed.returncode == 1, resumed.stderr
    found = records(path)
    assert [type(found[name].outcome) for name in ("a_tiny", "b_waits", "hangs_later")] == [Measured, Measured, Failed]
    assert len(resumed.stdout.splitlines()) == 3
    first = found["a_tiny"]

    (zoo / "hangs_later" / "__init__.py").write_text(TINY)
    again = run("--resume", str(path), "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert [type(record.outcome) for record in records(path).values()] == [Measured] * 3
    assert records(path)["a_tiny"] == first  # not run again
    assert "3 cases: 3 measured, 0 skipped" in again.stdout


@pytest.mark.slow
def test_a_worker_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    """One ends its building only once the other's window is open, when it is stopped itself."""
    zoo, flag = tmp_path / "zoo", tmp_path / "flag"
    make_folder(
        zoo,
        "a_sets",
        f"""{TINY}
    def eval_step(self):
        self.steps = getattr(self, "steps", 0) + 1
        if self.steps == 30:
            open({str(flag)!r}, "w").close()
        return super().eval_step()
""",
    )
    make_waiting(zoo, "b_waits", flag)
    arguments = ["a_sets", "b_waits", "--models-dir", str(zoo), "-d", "cpu", "--threads", "1", "--time-limit", "1"]
    done = run(*arguments, "-j", "2", "-o", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    _, waits = records(tmp_path / "run").values()
    assert waits.paused_s > 0.5  # a window takes as long at least
    assert isinstance(waits.outcome, Measured)


def test_a_run_of_another_machine_is_not_gone_on_with(tmp_path: Path, measured_run: tuple[Path, str]) -> None:
    path = shutil.copytree(measured_run[0], tmp_path / "run")
    manifest = path / "run.json"
    manifest.write_text(re.sub(r'"torch": "[^"]*"', '"torch": "1.0"', manifest.read_text()))
    resumed = run("--resume", str(path))
    assert resumed.returncode == 2
    assert "torch was 1.0, is " in resumed.stderr
    assert len(resumed.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_library_that_ends_its_process_costs_only_its_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "deadly.py").write_text("import os\nos.abort()\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    make_folder(tmp_path / "zoo", "bad", code="import deadly\n" + TINY)
    make_folder(tmp_path / "zoo", "tiny")
    arguments = ["bad", "tiny", "--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "--threads", "1"]
    done = run_alone(*arguments, "--time-limit", "0.2", "-o", str(tmp_path / "run"))
    assert done.returncode == 1
    found = records(tmp_path / "run")
    assert isinstance(found["tiny"].outcome, Measured)
    assert isinstance(found["bad"].outcome, Failed)
    assert "SIGABRT in import" in found["bad"].outcome.message
