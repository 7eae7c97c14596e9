"""Userbenchmarks are found and listed, their plans resolve without torch, and kept runs are reported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmark_runs import NAMES, STUDIES

from examples import INDUCTOR, compared
from examples import record as example
from in_this_process import refused, torchzoo
from kept_runs import keep
from torchzoo import cli
from torchzoo.case import Mode, Precision
from torchzoo.commands.options import applied
from torchzoo.studies import study, userbenchmark
from torchzoo.studies.userbenchmark import Choice
from torchzoo.zoo.catalog import CatalogError

# --- finding and listing ---


@pytest.mark.parametrize(("command", "names"), [("userbenchmark", NAMES), ("study", STUDIES)])
def test_all_are_listed_with_a_line_each(command: str, names: tuple[str, ...]) -> None:
    lines = torchzoo(command).stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(names)
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("optim resnet18", "10 cases to run; 2 s of timing a case at most; passes: none"),
        ("warm_start resnet18", "1 case to run, in 27 fresh processes"),
        ("warm_start", "20 cases to run, in 540 fresh processes"),
        ("dynamic_shapes", "6 cases to run, in 36 fresh processes"),
        ("dynamic_shapes --devices 0,1 -j 2", "6 cases to run, in 36 fresh processes"),
    ],
)
def test_a_dry_run_shows_the_plan(words: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = torchzoo("userbenchmark", *words.split(), "--dry-run")
    assert (done.returncode, line in done.stdout.splitlines()) == (0, True)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Makes a userbenchmark of the user's, of that name with that code."""

    def make(name: str, code: str) -> None:
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "__init__.py").write_text(code)
        monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path / "mine"))

    return make


def test_a_user_has_userbenchmarks_of_their_own(
    mine: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine("mine", '"""My question."""\n\n\ndef plan(choice): ...\n')
    assert userbenchmark.summaries()["mine"] == "My question."
    with pytest.raises(CatalogError, match="mine is no userbenchmark: it has no function report"):
        userbenchmark.load("mine")
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", "/no/such")
    with pytest.raises(CatalogError, match="no such userbenchmark folder"):
        userbenchmark.summaries()


REPORT = "def report(run): return []"
#: Bodies of a user's userbenchmark, and what the command line says.
HARMFUL = {
    "raises": ("raise RuntimeError('no\\nway')", "raises is no userbenchmark: RuntimeError: no way ("),
    "exits": ("import sys; sys.exit(0)", "exits is no userbenchmark: SystemExit: 0 ("),
    "syntax": ("def (", "syntax is no userbenchmark: SyntaxError: "),
    "lacks": ("import no_such_library_7", "lacks is no userbenchmark: ModuleNotFoundError: No module named"),
    "nul": ("\0", "nul is no userbenchmark: "),
    "deep": ("x = " + "-" * 100_000 + "1", "deep is no userbenchmark: ImportError: "),
    "number": ("plan = report = 3", "number is no userbenchmark: it has no function plan"),
    "plan_raises": (f"def plan(choice): raise RuntimeError('no')\n{REPORT}", "__init__.py, line 1)"),
    "plan_exits": (f"def plan(choice): raise SystemExit\n{REPORT}", "plan_exits: SystemExit: SystemExit ("),
    "plan_none": (f"def plan(choice): return None\n{REPORT}", "plan_none: it must return a RunRequest, and returned a"),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_a_users_own_code_does_is_one_clear_line(
    name: str, tmp_path: Path, mine: Callable[[str, str], None]
) -> None:
    body, words = HARMFUL[name]
    mine(name, body)
    assert words in refused("userbenchmark", name, "resnet18", "-d", "cpu", "-o", tmp_path / "run")
    assert name in [line.split()[0] for line in torchzoo("userbenchmark").stdout.splitlines()]


# --- plans ---


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


def test_a_report_from_a_run_with_no_records_is_one_clear_line(tmp_path: Path) -> None:
    assert "holds no records yet" in refused("userbenchmark", "optim", "--from", keep(tmp_path / "run", []))


def test_from_prints_the_report_or_writes_it(tmp_path: Path, mine: Callable[[str, str], None]) -> None:
    mine("counts", '"""How many?"""\ndef plan(choice): ...\ndef report(run): return [f"{len(run.records)} record"]')
    run = keep(tmp_path / "run", [example(compared(), backend=INDUCTOR)])
    printed = torchzoo("userbenchmark", "counts", "--from", run).stdout
    assert printed.startswith("# counts: How many?")
    assert "1 record" in printed.splitlines()
    assert torchzoo("userbenchmark", "counts", "--from", run, "-o", tmp_path / "out").returncode == 0
    assert (tmp_path / "out" / "report.md").read_text() == printed
    other = keep(tmp_path / "other", [example(compared(), model="two", backend=INDUCTOR)], command=("torchzoo", "two"))
    both = torchzoo("userbenchmark", "counts", "--from", run, other).stdout.splitlines()
    assert {"2 record", "- command: `torchzoo two`"} <= set(both)
