"""`torchzoo show`: the words that mean one case, and all that is shown of it."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

import pytest

from examples import INDUCTOR, ROOT, measured, record, results_of
from kept_runs import MESSAGE, against_eager, incorrect, keep
from torchzoo.analysis.cases import find_case
from torchzoo.case import Mode, Precision
from torchzoo.cli import main
from torchzoo.errors import UsageError
from torchzoo.record import Failed, FailureKind, Record, Skipped, StopReason
from torchzoo.report import bars
from torchzoo.settings import Stage
from torchzoo.store import read_run

BIG = ROOT / "docs/results/2026-11-21-h200-zoo-inductor"


def records() -> list[Record]:
    return [
        record(against_eager(2.0), model="resnet18", mode=Mode.TRAIN, backend=INDUCTOR),
        record(against_eager(3.0), model="resnet18", mode=Mode.TRAIN, backend=INDUCTOR, precision=Precision.AMP),
        record(measured(), model="resnet18"),
        record(measured(), model="resnet50"),
        record(measured(stop_reason=StopReason.TIME_LIMIT, host_syncs="NMS"), model="[red]x"),
        record(Skipped(reason="no way"), model="skips"),
        record(Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=MESSAGE, traceback="a\nb\n"), model="fails"),
        record(incorrect(2.0), model="wrong", backend=INDUCTOR),
    ]


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (["resnet50"], "resnet50 eval cpu eager bs4"),
        (["resnet18", "eval"], "resnet18 eval cpu eager bs4"),
        (["resnet18 train cpu inductor bs4"], "resnet18 train cpu inductor bs4"),  # and not that at amp
        (["resnet18", "amp"], "resnet18 train cpu inductor amp bs4"),
        (["*50", "bs*"], "resnet50 eval cpu eager bs4"),
    ],
)
def test_words_of_a_label_mean_its_case(words: list[str], label: str) -> None:
    assert find_case(results_of(records()), words).case.label() == label


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet81"], "no case of the run matches 'resnet81': did you mean resnet18"),
        (["resnet50", "train"], "no case of the run matches 'resnet50 train': `torchzoo report RUN` lists its cases"),
        (["resnet18", "train"], "2 cases match 'resnet18 train', add words of one: resnet18 train cpu inductor bs4; "),
        (["*"], "bs4 and 3 more"),
    ],
)
def test_other_words_are_refused_with_what_comes_next(words: list[str], message: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_case(results_of(records()), words)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keep(tmp_path_factory.mktemp("show") / "run", records())


def show(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["show", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_no_line_but_the_command_is_wider_than_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = show(capsys, BIG, "detectron2_fasterrcnn_r_101_c4", "train").splitlines()
    assert [line for line in lines if len(line) > 80 and not line.startswith(("again: ", "run: "))] == []
    assert sum("graph break" in line for line in lines) > 8  # all of them: a report shows a few


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("skips", "\nskipped: no way\n"),
        ("fails", "\nFAILED: error in build: "),
        ("fails", "\na\nb\n"),  # its traceback
        ("wrong", "\nmeasured, and INCORRECT: its results are not eager's: loss is off by 40%"),
    ],
)
def test_what_became_of_a_case_is_said(kept: Path, capsys: pytest.CaptureFixture[str], model: str, words: str) -> None:
    assert words in show(capsys, kept, model)


def test_samples_are_all_steps_as_they_were_timed(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(show(capsys, BIG, "resnet18", "train", "--samples"))))
    (one,) = [r for r in read_run(BIG).records if r.case.label() == "resnet18 train cuda inductor bs16"]
    expected = [(block.variant, sample_s) for block in one.outcome.blocks for sample_s in block.samples_s]  # type: ignore[union-attr]
    assert [(row["variant"], float(row["step_s"])) for row in rows] == expected


def test_samples_of_a_case_that_has_none_are_refused(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", str(kept), "skips", "--samples"]) == 2
    assert "skips eval cpu eager bs4 has no samples: no way" in capsys.readouterr().err


def test_bars_show_order_and_distribution() -> None:
    assert bars.in_time([1, 2, 3, 4, 5, 6, 7, 8]) == bars.BARS
    assert bars.in_time([3.0] * 5) == "▁" * 5
    assert bars.in_time([1.0, math.nan, 2.0]) == "▁ █"
    assert bars.in_time([math.nan]) == " "
    assert len(bars.in_time(list(range(1000)))) == bars.WIDTH
    assert bars.histogram([1.0, 1.0, 1.0, 1.0, 3.0], width=4) == "█  ▂"
    assert bars.histogram([2.0, 2.0]) == "█"
    assert bars.known_bars("ascii") == bars.ASCII_BARS
    assert bars.known_bars("utf-8") == bars.BARS
