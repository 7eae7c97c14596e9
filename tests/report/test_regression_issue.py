"""The issue on a regression: its title, what it says of both versions, and text of others that can do no harm."""

from __future__ import annotations

from typing import Any

import msgspec
from syrupy.assertion import SnapshotAssertion

from examples import CASE, environment, record, run_of
from kept_nights import eager_s
from torchzoo.analysis.compare import compare_runs
from torchzoo.history import issues
from torchzoo.history.changes import Confirmed, Kind
from torchzoo.history.inductor_script import Inside
from torchzoo.history.issues import Issue
from torchzoo.history.nights import Blamed
from torchzoo.machine.differences import DifferenceKind
from torchzoo.stats import Estimate

CHANGE = Confirmed(
    case=CASE,
    kind=Kind.LATENCY,
    ratio=Estimate(value=1.1, low=1.09, high=1.11, confidence=0.95, count=5),
    words="20.0 ms -> 22.0 ms, 1.100x [1.090, 1.110]",
)
BLAMED = Blamed(
    before="timm@/src/timm:aaaa",
    specs=("timm@/src/timm:bbbb",),
    probability=0.97,
    about="Ada Lovelace, 2026-11-01: faster @torch layers | <b>",
    explains=(CHANGE,),
)


def issue(**changes: Any) -> Issue:
    sides = [run_of([record(eager_s(seconds), repeat=n) for n in range(5)]) for seconds in (0.02, 0.022)]
    made = Issue(
        night="20261122T020000Z",
        changes=(CHANGE,),
        base="timm@/src/timm:aaaa",
        candidate="timm@/src/timm:bbbb",
        blamed=BLAMED,
        comparison=compare_runs(*sides),
    )
    return msgspec.structs.replace(made, **changes)


def test_an_issue_says_what_since_when_and_how_to_see_it_again(snapshot: SnapshotAssertion) -> None:
    assert issues.as_markdown(issue()) == snapshot


def test_what_is_not_known_is_said(snapshot: SnapshotAssertion) -> None:
    assert issues.as_markdown(issue(blamed=None, remarks=("not bisected: no time",))) == snapshot
    others = issue(blamed=msgspec.structs.replace(BLAMED, specs=("timm@/src/timm:abab", *BLAMED.specs)))
    assert "could not be judged: `timm@/src/timm:abab`" in issues.as_markdown(others)


def test_this_environment_is_named_by_its_versions() -> None:
    sides = []
    for torch, effdet in (("2.14.0", "0.4.0"), ("2.15.0", "0.4.1")):
        installed = {"torch": torch, "timm": "1.0", "effdet": effdet, "tqdm": "4.1"}
        facts = environment(torch=torch, packages={"timm": "1.0"}, distributions=installed)
        sides.append(run_of([record(eager_s(0.02), repeat=n) for n in range(5)], environment=facts))
    comparison = compare_runs(*sides, across=frozenset(DifferenceKind))
    text = issues.as_markdown(issue(base="torch==2.14.0", candidate="this", blamed=None, comparison=comparison))
    was = "torchzoo 0.1.0 (no checkout), torch 2.15.0, CUDA None, Python 3.11.7"
    assert f"- `this ({was})`." in text
    assert f"| run | torch==2.14.0 | this ({was}) |" in text
    assert "| python | 3.11.7 | 3.11.7 |" in text
    assert "| other packages | effdet 0.4.0 | effdet 0.4.1 |" in text
    settings = issue(base="A=1,torch==2.14.0", candidate="A=1,B=x\\,y==z", comparison=comparison)
    text = issues.as_markdown(settings)
    assert f"`A=1,B=x\\,y==z ({was})`" in text
    assert "`A=1,torch==2.14.0`" in text


def test_a_long_title_is_cut() -> None:
    long = msgspec.structs.replace(CHANGE, case=msgspec.structs.replace(CASE, model="x" * 300))
    assert len(issues.title(issue(changes=(long,)))) == issues.LONGEST_TITLE


def test_the_part_of_inductor_is_named_with_what_leaves_it_out() -> None:
    inside = Inside(words="the lowering of an operator: relu", without_it="TORCH_BISECT_MAX=1")
    text = issues.as_markdown(issue(blamed=msgspec.structs.replace(BLAMED, inside=inside)))
    assert (
        "- in inductor: the lowering of an operator: relu\n- without that part of inductor: `TORCH_BISECT_MAX=1`"
        in text
    )
    assert "without that part" not in issues.as_markdown(
        issue(blamed=msgspec.structs.replace(BLAMED, inside=Inside(words="not looked into")))
    )
