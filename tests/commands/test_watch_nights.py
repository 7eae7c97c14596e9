"""`torchzoo watch`: nights that are gone or damaged, two watches at once, and what is counted: leaks, graph breaks."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from watched_suite import Watching

from examples import BREAK
from fake_lab import Repository, eval_case, latency
from in_this_process import refused, torchzoo
from torchzoo.case import Case
from torchzoo.history import nights
from torchzoo.history.changes import Kind
from torchzoo.history.nights import finished_nights
from torchzoo.record import Compilation


def test_a_night_that_was_removed_is_no_base(watching: Watching) -> None:
    suite = watching("slower", quiet=5)
    shutil.rmtree(suite.folder)
    assert suite.night(15) == 1
    assert suite.last.proposed[0].base == finished_nights(suite.root)[3].stamp


def test_the_nights_of_a_watch_are_told_apart_by_their_stamps(
    watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    suite = watching("same", quiet=2)
    stamps = [one.stamp for one in finished_nights(suite.root)]
    shown = torchzoo("history", "show", "same", "--metric", "latency", "--runs", suite.root).stdout
    assert all(stamp in shown for stamp in stamps)
    sides = ["--from", stamps[0], "--to", stamps[1]]
    assert torchzoo("history", "regressions", *sides, "--runs", suite.root).returncode == 0


def test_two_at_once(tmp_path: Path) -> None:
    with nights.locked(tmp_path):
        assert "another torchzoo watch is at work on" in refused("watch", tmp_path, "resnet18")


def test_a_night_that_cannot_be_read_is_named(watching: Watching) -> None:
    suite = watching("same", quiet=1)
    (suite.folder / "night.json").write_text("{")
    assert suite.night(1) == 2
    assert "night.json can't be read" in suite.said


def test_leaks(watching: Watching, repository: Repository) -> None:
    suite = watching(
        "leaks", quiet=0, plan=lambda spec, _, noise: latency(0.02 * noise, leaks=repository.number(spec) >= 11)
    )
    for number in range(3):
        assert suite.night(number, "--leak-check") == 0
    assert suite.night(15, "--leak-check") == 1
    assert [(one.case, one.kind) for one in suite.last.confirmed] == [(eval_case("leaks"), Kind.LEAKING)]
    assert suite.last.blamed[0].specs == (repository.spec(11),)
    assert suite.night(15, "--leak-check") == 0


@pytest.mark.parametrize("flickers", [False, True])
def test_more_graph_breaks_are_confirmed_where_every_process_has_them(
    watching: Watching, repository: Repository, *, flickers: bool
) -> None:
    def broken(spec: str, case: Case, noise: float) -> Any:
        made = latency(0.02 * noise)
        is_broken = repository.number(spec) >= 11 and not (flickers and case.repeat == 2)
        compilation = Compilation(breaks=(BREAK,) * (3 if is_broken else 2))
        variants = {"eager": msgspec.structs.replace(made.variants["eager"], compilation=compilation)}
        return msgspec.structs.replace(made, variants=variants)

    suite = watching("broken", quiet=2, plan=broken)
    assert suite.night(15) == (0 if flickers else 1)
    assert [one.kind for one in suite.last.proposed] == [Kind.GRAPH_BREAKS]
    if not flickers:
        assert [one.words for one in suite.last.confirmed] == ["2 graph breaks -> 3 graph breaks"]
        assert suite.last.blamed[0].specs == (repository.spec(11),)
        issue = (suite.folder / "issue-1.md").read_text()
        assert issue.startswith("# broken eval cpu eager bs4: graph breaks since timm")
        assert suite.night(15) == 0


def test_an_earlier_night_that_cannot_be_read_costs_no_other(watching: Watching) -> None:
    suite = watching("same", quiet=2)
    (suite.folder / "run" / "run.json").write_text("{")
    assert suite.night(2) == 0
    assert suite.shown.count("not all of the history can be read") == 1
