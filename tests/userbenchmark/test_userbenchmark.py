"""Userbenchmarks are found and listed, their plans resolve without torch, and kept runs are reported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_runs import NAMES, run_of

from examples import INDUCTOR, compared, manifest
from examples import record as example
from kept_runs import keep
from torchzoo import cli
from torchzoo.case import Mode, Precision
from torchzoo.commands.options import applied
from torchzoo.store import RunStore
from torchzoo.studies import study, userbenchmark
from torchzoo.studies.userbenchmark import Choice, UserBenchmark, by_domain
from torchzoo.zoo.catalog import CatalogError

# --- finding and listing ---


def test_all_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["userbenchmark"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["optm", "-o", "/tmp/x"], "did you mean optim?"),
        (["nothing_like_it"], "known: dynamic_shapes, optim, power_values, warm_start"),
        (["paper_breakdown"], "paper_breakdown is no userbenchmark: `torchzoo study paper_breakdown`"),
        (["optim"], "-o DIR"),
        (["optim", "--from", "/no/such"], "no run in /no/such"),
        (["optim", "resnet18", "--from", "/no/such", "--bs", "2"], "leave out MODEL, --batch-size"),
        (["optim", "--resume", "/no/such", "-t", "eval"], "leave out --mode"),
        (["optim", "--retry-failed", "-o", "/tmp/x"], "goes with --resume"),
        (["-o", "/tmp/x"], "leave out --output"),
        (["warm_start"], "-o DIR"),
        (["warm_start", "--from", "/no/such"], "/no/such holds no trials.json"),
        (["warm_start", "--resume", "/no/such"], "/no/such holds no trials.json"),
        (["warm_start", "resnet18", "--from", "/no/such", "--bs", "2"], "leave out MODEL, --batch-size"),
        (["dynamic_shapes", "-j", "2", "-o", "/tmp/x"], "a device has one process at a time"),
        (["warm_start", "--from", "/no/such", "--dry-run"], "leave out --dry-run"),
        (["warm_start", "--retry-failed", "-o", "/tmp/x"], "--retry-failed goes with --resume RUN"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["userbenchmark", *arguments]) == cli.USAGE
    shown = capsys.readouterr()
    assert words in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["optim", "resnet18"], "10 cases to run; 2 s of timing a case at most; passes: none"),
        (["warm_start", "resnet18"], "1 case to run, in 27 fresh processes"),
        (["warm_start"], "20 cases to run, in 540 fresh processes"),
        (["dynamic_shapes"], "6 cases to run, in 36 fresh processes"),
        (["dynamic_shapes", "--devices", "0,1", "-j", "2"], "6 cases to run, in 36 fresh processes"),
    ],
)
def test_a_dry_run_shows_the_plan(
    words: list[str],
    line: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["userbenchmark", *words, "--dry-run"]) == 0
    assert line in capsys.readouterr().out.splitlines()
    assert list(tmp_path.iterdir()) == []


def test_a_user_has_userbenchmarks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text('"""My question."""\n\n\ndef plan(choice): ...\n')
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path))
    assert userbenchmark.summaries()["mine"] == "My question."
    with pytest.raises(CatalogError, match="mine is no userbenchmark: it has no function report"):
        userbenchmark.load("mine")
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", "/no/such")
    with pytest.raises(CatalogError, match="no such userbenchmark folder"):
        userbenchmark.summaries()


#: Bodies of a user's userbenchmark, and what the command line says.
HARMFUL = {
    "raises": ("raise RuntimeError('no\\nway')", "raises is no userbenchmark: RuntimeError: no way ("),
    "exits": ("import sys; sys.exit(0)", "exits is no userbenchmark: SystemExit: 0 ("),
    "syntax": ("def (", "syntax is no userbenchmark: SyntaxError: "),
    "lacks": ("import no_such_library_7", "lacks is no userbenchmark: ModuleNotFoundError: No module named"),
    "nul": ("\0", "nul is no userbenchmark: "),
    "deep": ("x = " + "-" * 100_000 + "1", "deep is no userbenchmark: ImportError: "),
    "number": ("plan = report = 3", "number is no userbenchmark: it has no function plan"),
    "plan_raises": (
        "def plan(choice): raise RuntimeError('no')\ndef report(run): return []",
        "__init__.py, line 1)",
    ),
    "plan_exits": (
        "def plan(choice): raise SystemExit\ndef report(run): return []",
        "plan_exits: SystemExit: SystemExit (",
    ),
    "plan_none": (
        "def plan(choice): return None\ndef report(run): return []",
        "plan_none: it must return a RunRequest, and returned a NoneType",
    ),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_a_users_own_code_does_is_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body, words = HARMFUL[name]
    (tmp_path / "mine" / name).mkdir(parents=True)
    (tmp_path / "mine" / name / "__init__.py").write_text(body)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path / "mine"))
    assert cli.main(["userbenchmark", name, "resnet18", "-d", "cpu", "-o", str(tmp_path / "run")]) == cli.USAGE
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.splitlines()) == 1
    assert cli.main(["userbenchmark"]) == 0
    assert name in [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_a_report_that_raises_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine" / "divides").mkdir(parents=True)
    code = "def plan(choice): ...\ndef report(run): return [1 / 0]"
    (tmp_path / "mine" / "divides" / "__init__.py").write_text(code)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path / "mine"))
    run = keep(tmp_path / "run", [example()])
    assert cli.main(["userbenchmark", "divides", "--from", str(run)]) == cli.USAGE
    assert "divides: ZeroDivisionError: division by zero (" in capsys.readouterr().err


def test_a_loaded_userbenchmark_is_what_the_command_uses() -> None:
    assert isinstance(userbenchmark.load("optim"), UserBenchmark)


# --- plans ---


def test_the_plan_resolves_and_the_report_is_loaded_without_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from torchzoo.studies import userbenchmark
from torchzoo.zoo.catalog import find_models
for name in {NAMES}:
    request = userbenchmark.load(name).plan(userbenchmark.Choice(folder=Path({str(tmp_path)!r})))
    assert find_models(map(Path, request.models_dirs)).select(request.patterns, request.suites), name
assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_asked_of_each_case(tmp_path: Path) -> None:
    assert userbenchmark.load("optim").plan(Choice(folder=tmp_path)).axes.modes == (Mode.TRAIN,)


def test_the_command_line_overrides_the_plan(tmp_path: Path) -> None:
    request = study.load("gpt2_modes").plan(Choice(folder=tmp_path))

    def given(*words: str) -> Any:
        return applied(request, cli.build_parser().parse_args(["study", "gpt2_modes", *words]))

    assert given() == request
    words = ["-d", "cpu", "-t", "eval", "--precision", "bf16", "--bs", "smoke", "--time-limit", "3", "-j", "2"]
    changed = given(*words, "--threads", "1", "--backend", "inductor", "--repeats", "3")
    assert changed.axes.devices == ("cpu",)
    assert changed.axes.modes == (Mode.EVAL,)
    assert changed.axes.precisions == (Precision.BF16,)
    assert changed.axes.batch_sizes == ("smoke",)
    assert changed.axes.backends == (INDUCTOR,)
    assert changed.axes.repeats == 3
    assert (changed.settings.time_limit_s, changed.settings.threads, changed.jobs) == (3.0, 1, 2)
    assert changed.settings.passes == request.settings.passes
    with pytest.raises(SystemExit):
        given("-t", "trian")


# --- reports of kept runs ---


def test_a_report_from_a_run_with_no_records_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
    assert cli.main(["userbenchmark", "optim", "--from", str(tmp_path)]) == cli.USAGE
    assert "holds no records yet" in capsys.readouterr().err


def test_from_prints_the_report_or_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "counts").mkdir(parents=True)
    code = '"""How many?"""\ndef plan(choice): ...\ndef report(run): return [f"{len(run.records)} record"]'
    (tmp_path / "mine" / "counts" / "__init__.py").write_text(code)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path / "mine"))
    run = keep(tmp_path / "run", [example(compared(), backend=INDUCTOR)])
    assert cli.main(["userbenchmark", "counts", "--from", str(run)]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# counts: How many?")
    assert "1 record" in printed.splitlines()
    assert cli.main(["userbenchmark", "counts", "--from", str(run), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "report.md").read_text() == printed
    other = keep(tmp_path / "other", [example(compared(), model="two", backend=INDUCTOR)], command=("torchzoo", "two"))
    assert cli.main(["userbenchmark", "counts", "--from", str(run), str(other)]) == 0
    printed = capsys.readouterr().out
    assert "2 record" in printed.splitlines()
    assert "- command: `torchzoo two`" in printed.splitlines()


def test_values_are_grouped_in_the_order_of_domains() -> None:
    assert by_domain(run_of([]), [("speech", 1), ("nlp_one", 2), ("unknown", 3)]) == {
        "nlp": [2],
        "speech": [1],
        "all": [1, 2, 3],
    }
