"""The judge of a bisection: a version has the change if it is on the bad side of half of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import BREAK, CASE, INDUCTOR, record
from kept_nights import eager_s
from kept_runs import against_eager, checked, failed, incorrect, keep
from torchzoo.analysis.judge import REPEATS
from torchzoo.case import EAGER, Axes
from torchzoo.environments.make import EnvironmentNotMade, NotMadeNow, PythonEnvironment
from torchzoo.history import ab_evidence
from torchzoo.history.ab_evidence import AbJudge
from torchzoo.history.bisection import Ending, Standing
from torchzoo.history.changes import Kind
from torchzoo.history.culprits import Asked, BisectLog, GoodFails, Judgement, find_culprits
from torchzoo.record import Checked, CheckStatus, Compilation, Growth, Measured
from torchzoo.run import experiment
from torchzoo.run.experiment import Place
from torchzoo.run.pool import ServerError, TorchUnusable
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings

#: The step of each version in seconds; or a word: what is wrong with it; or what becomes of the case.
STEPS: dict[str, float | str | Measured | Checked] = {
    "lib==1": 0.0100,
    "lib==2": 0.0101,
    "lib==3": 0.0119,
    "lib==4": 0.0120,
    "lib==fails": "fails",
    "lib==broken": "broken",
    "lib==killed": "killed",
    "lib==nowhere": "nowhere",
}


class Measuring:
    """Stands for `experiment.measure`: writes runs of processes that differ by `noise`; if `drifts`, all alike."""

    def __init__(self, noise: float = 0.002) -> None:
        self.noise = noise
        self.drifts = False
        self.backend = EAGER  # of cases that fail, and of those whose outcome is given
        self.flukes: dict[str, list[float]] = {}  # by version: factors on its step in its first measurements
        self.asked: list[tuple[list[str], int]] = []

    def __call__(self, request: RunRequest, places: Mapping[str, Place], **_: Any) -> None:
        self.asked.append((sorted(place.software.name for place in places.values()), request.axes.repeats))
        for place in places.values():
            if STEPS[place.software.name] == "broken":
                raise TorchUnusable(place.software.name, "torch can't be used here")
            if STEPS[place.software.name] == "killed":
                raise ServerError(place.software.name, "its server can't be understood")
        for place in places.values():
            if not place.folder.exists():
                name = place.software.name
                factor = self.flukes[name].pop(0) if self.flukes.get(name) else 1.0
                keep(place.folder, [self._record(name, n, factor) for n in range(request.axes.repeats)])

    def _record(self, name: str, repeat: int, factor: float) -> Any:
        step_s = STEPS[name]
        if isinstance(step_s, str):
            return record(failed("no such operator"), repeat=repeat, backend=self.backend)
        if isinstance(step_s, Measured | Checked):
            return record(step_s, repeat=repeat, backend=self.backend)
        is_like_good = self.drifts or name == "lib==1"  # a process of another version has other noise
        place = repeat if is_like_good else 2 * repeat
        return record(eager_s(factor * step_s * (1 + self.noise * (place % 3 - 1))), repeat=repeat)


def prepare(spec: str) -> PythonEnvironment:
    if STEPS[spec] == "full":
        raise NotMadeNow(f"can't make the environment {spec}: No space left on device")
    if STEPS[spec] == "nowhere":
        raise EnvironmentNotMade(f"can't make the environment {spec}: no such version")
    return PythonEnvironment(name=spec, python="python", variables={}, key=spec)


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> Measuring:
    made = Measuring()
    monkeypatch.setattr(experiment, "measure", made)
    monkeypatch.setattr(ab_evidence, "prepare", prepare)
    return made


def judge(folder: Path, good: str = "lib==1", bad: str = "lib==4", kind: Kind = Kind.LATENCY) -> AbJudge:
    request = RunRequest(
        patterns=("tiny",), axes=Axes(modes=(CASE.mode,), devices=(), backends=()), settings=Settings()
    )
    asked = Asked(good=good, bad=bad, versions=(good, bad), request=request, words=(), kind=kind, lanes=1)
    return AbJudge(asked, folder)


def verdicts(found: list[Any]) -> list[Standing]:
    return [one.verdict for one in found]


def test_a_version_is_bad_where_more_than_half_of_the_change_is_there(tmp_path: Path, measuring: Measuring) -> None:
    asks = [Judgement(spec) for spec in ("lib==2", "lib==3", "lib==4")]
    found = judge(tmp_path).judge("lib==1", asks)
    assert verdicts(found) == [Standing.GOOD, Standing.BAD, Standing.BAD]
    assert [one.ratio.value for one in found if one.ratio] == pytest.approx([1.01, 1.19, 1.2], rel=0.001)
    assert measuring.asked == [(["lib==1", "lib==2", "lib==3", "lib==4"], REPEATS)]


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize(
    ("culprit_s", "left"),
    [(0.0116, Standing.GOOD), (0.0112, Standing.BAD)],  # of 20%, 3.4% and 7.1% are left
)
def test_a_small_rest_after_a_culprit_is_no_other_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, culprit_s: float, left: Standing
) -> None:
    monkeypatch.setitem(STEPS, "lib==3", culprit_s)
    under_test = judge(tmp_path)
    assert verdicts(under_test.judge("lib==1", [Judgement("lib==4"), Judgement("lib==3")])) == [
        Standing.BAD,
        Standing.BAD,
    ]
    (found,) = under_test.judge("lib==3", [Judgement("lib==4")])
    assert found.verdict is left
    assert ("less than 25% of the change is left" in found.reason) is (left is Standing.GOOD)


@pytest.mark.parametrize(("culprit_s", "left"), [(0.0199, Standing.GOOD), (0.0180, Standing.INCONCLUSIVE)])
def test_a_noisy_rest_that_is_surely_small_is_not_measured_again(
    tmp_path: Path, measuring: Measuring, monkeypatch: pytest.MonkeyPatch, culprit_s: float, left: Standing
) -> None:
    monkeypatch.setitem(STEPS, "lib==3", culprit_s)
    monkeypatch.setitem(STEPS, "lib==4", 0.0200)
    under_test = judge(tmp_path)
    under_test.judge("lib==1", [Judgement("lib==4")])
    measuring.noise = 0.05  # too much to call two versions the same
    (found,) = under_test.judge("lib==3", [Judgement("lib==4")])
    assert found.verdict is left
    assert ("less than 25% of the change is left" in found.reason) is (left is Standing.GOOD)


@pytest.mark.usefixtures("measuring")
def test_an_improvement_is_a_change_too(tmp_path: Path) -> None:
    under_test = judge(tmp_path, good="lib==4", bad="lib==1")
    asks = [Judgement("lib==1"), Judgement("lib==2"), Judgement("lib==3")]
    assert verdicts(under_test.judge("lib==4", asks)) == [Standing.BAD, Standing.BAD, Standing.GOOD]


def test_what_slows_all_versions_down_alike_is_no_noise_of_many_processes(tmp_path: Path, measuring: Measuring) -> None:
    under_test = judge(tmp_path)
    under_test.judge("lib==1", [Judgement("lib==4")])
    measuring.noise, measuring.drifts = 0.3, True
    assert verdicts(under_test.judge("lib==1", [Judgement("lib==2")])) == [Standing.INCONCLUSIVE]
    assert verdicts(under_test.judge("lib==1", [Judgement("lib==2", 2), Judgement("lib==3", 2)])) == [
        Standing.GOOD,
        Standing.BAD,
    ]


def test_what_can_not_be_measured_is_skipped_with_the_reason(tmp_path: Path, measuring: Measuring) -> None:
    asks = [Judgement(f"lib=={name}") for name in ("4", "fails", "broken", "nowhere")]
    found = judge(tmp_path).judge("lib==1", asks)
    assert verdicts(found) == [Standing.BAD, Standing.SKIPPED, Standing.SKIPPED, Standing.SKIPPED]
    assert "newly failing" in found[1].reason
    assert "torch can't be used here" in found[2].reason
    assert "no such version" in found[3].reason
    assert measuring.asked[-1][0] == ["lib==1", "lib==4", "lib==fails"]  # the others, once more


@pytest.mark.parametrize(("good", "other"), [("lib==1", "lib==full"), ("lib==full", "lib==4")])
def test_a_full_disk_is_no_verdict(
    tmp_path: Path, measuring: Measuring, monkeypatch: pytest.MonkeyPatch, good: str, other: str
) -> None:
    monkeypatch.setitem(STEPS, "lib==full", "full")
    with pytest.raises(NotMadeNow, match="No space left"):
        judge(tmp_path, good=good).judge(good, [Judgement(other)])
    assert measuring.asked == []


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize("good", ["lib==broken", "lib==nowhere"])
def test_without_the_good_version_nothing_can_be_judged(tmp_path: Path, good: str) -> None:
    with pytest.raises(GoodFails, match="the good version can't be measured: "):
        judge(tmp_path, good=good).judge(good, [Judgement("lib==4")])


def of_candidate(**changes: Any) -> Measured:
    """A case on a backend whose candidate has these results."""
    made = against_eager(1.1)
    candidate = msgspec.structs.replace(made.variants["candidate"], **changes)
    return msgspec.structs.replace(made, variants={**made.variants, "candidate": candidate})


def growing(each_step: int, steps: int = 20) -> Measured:
    return of_candidate(
        growth=Growth(device_bytes=tuple(100 + each_step * n for n in range(steps)), host_bytes=(9,) * steps)
    )


UNSTEADY = of_candidate(compilation=Compilation(graphs=2, late_graphs=3))


@pytest.mark.parametrize(
    ("kind", "good", "bad", "silent", "reason"),
    [
        (Kind.INCORRECT, checked(CheckStatus.CORRECT), checked(CheckStatus.INCORRECT), "fails", "failed: "),
        (
            Kind.INCORRECT,
            checked(CheckStatus.CORRECT),
            checked(CheckStatus.INCORRECT),
            checked(CheckStatus.NONDETERMINISTIC, "eager differs"),
            "no verdict on its results: nondeterministic, eager differs",
        ),
        (
            Kind.INCORRECT,
            against_eager(1.1),
            incorrect(1.1),
            against_eager(1.1, check=None),
            "no verdict on its results",
        ),
        (Kind.UNSTEADY, against_eager(1.1), UNSTEADY, "fails", "failed: "),
        (Kind.UNSTEADY, against_eager(1.1), UNSTEADY, incorrect(1.1), "incorrect: "),
        (Kind.LEAKING, growing(0), growing(2**20), "fails", "failed: "),
        (Kind.LEAKING, growing(0), growing(2**20), growing(2**20, steps=3), "no count of leaking"),
        (
            Kind.GRAPH_BREAKS,
            against_eager(1.1),
            of_candidate(compilation=Compilation(graphs=9, breaks=(BREAK,) * 8)),
            of_candidate(compilation=None),
            "no count of graph breaks",
        ),
    ],
)
def test_a_version_that_says_nothing_of_the_change_is_skipped(
    tmp_path: Path,
    measuring: Measuring,
    monkeypatch: pytest.MonkeyPatch,
    kind: Kind,
    good: Measured | Checked,
    bad: Measured | Checked,
    silent: str | Measured | Checked,
    reason: str,
) -> None:
    measuring.backend = INDUCTOR
    for number, outcome in enumerate((good, good, silent, bad), start=1):
        monkeypatch.setitem(STEPS, f"lib=={number}", outcome)
    under_test = AbJudge(msgspec.structs.replace(judge(tmp_path).asked, kind=kind), tmp_path)
    found = under_test.judge("lib==1", [Judgement(f"lib=={number}") for number in (2, 3, 4)])
    assert verdicts(found) == [Standing.GOOD, Standing.SKIPPED, Standing.BAD]
    assert reason in found[1].reason
    (beside_silent,) = under_test.judge("lib==3", [Judgement("lib==4")])
    assert beside_silent.verdict is Standing.SKIPPED
    assert beside_silent.reason.startswith("the good version: ")


@pytest.mark.usefixtures("measuring")
def test_a_metric_without_a_figure_is_skipped_with_that_reason(tmp_path: Path) -> None:
    (found,) = judge(tmp_path, kind=Kind.DEVICE_MEMORY).judge("lib==1", [Judgement("lib==2")])
    assert (found.verdict, found.reason) == (Standing.SKIPPED, "one of the two versions has no figure of device memory")


@pytest.mark.usefixtures("measuring")
@pytest.mark.parametrize(("kind", "verdict"), [(Kind.FAILING, Standing.BAD), (Kind.UNSTEADY, Standing.SKIPPED)])
def test_a_version_whose_torch_can_not_be_imported_fails(tmp_path: Path, kind: Kind, verdict: Standing) -> None:
    under_test = AbJudge(msgspec.structs.replace(judge(tmp_path).asked, kind=kind), tmp_path)
    found = under_test.judge("lib==1", [Judgement("lib==broken"), Judgement("lib==killed"), Judgement("lib==nowhere")])
    assert verdicts(found) == [verdict, Standing.SKIPPED, Standing.SKIPPED]
    assert found[0].reason == "lib==broken: torch can't be used here"


@pytest.mark.usefixtures("measuring")
def test_a_culprit_whose_torch_can_not_be_imported_ends_the_bisection(tmp_path: Path) -> None:
    versions = ("lib==1", "lib==2", "lib==broken", "lib==fails")
    asked = judge(tmp_path, bad=versions[-1]).asked
    asked = msgspec.structs.replace(asked, versions=versions, kind=Kind.FAILING)
    with BisectLog.opened(tmp_path) as log:
        log.begin(asked)
        under_test = AbJudge(asked, tmp_path / "records")
        result = find_culprits(asked, log, under_test.judge)
    assert [one.specs for one in result.culprits] == [("lib==broken",)]
    assert result.ended is Ending.UNMEASURABLE
    assert "the good version can't be measured: lib==broken: torch can't be used here" in result.reason


@pytest.mark.usefixtures("measuring")
def test_the_runs_of_a_version_are_those_of_the_most_effort(tmp_path: Path) -> None:
    under_test = judge(tmp_path)
    under_test.judge("lib==1", [Judgement("lib==3"), Judgement("lib==4")])
    under_test.judge("lib==1", [Judgement("lib==3", 2)])
    runs = under_test.runs("lib==1", "lib==3")
    assert runs is not None
    assert [len(one.records) for one in runs] == [2 * REPEATS] * 2
    assert under_test.runs("lib==1", "lib==2") is None


def test_a_wrong_verdict_is_contradicted_by_later_ones(
    tmp_path: Path, measuring: Measuring, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1, 8):
        monkeypatch.setitem(STEPS, f"lib=={number}", 0.0100 if number < 5 else 0.0120)
    measuring.flukes = {"lib==7": [1 / 1.2]}  # at first, the bad version looks like the good one
    asked = msgspec.structs.replace(
        judge(tmp_path, bad="lib==7").asked, versions=tuple(f"lib=={number}" for number in range(1, 8))
    )
    with BisectLog.opened(tmp_path) as log:
        log.begin(asked)
        under_test = AbJudge(asked, tmp_path / "records")
        result = find_culprits(asked, log, under_test.judge)
        entries, _ = log.entries()
    assert [one.specs for one in result.culprits] == [("lib==5",)]
    of_bad = [one for one in entries if one.good == "lib==1" and one.midpoint == "lib==7"]
    assert [(one.evidence.verdict, one.number) for one in of_bad[:2]] == [(Standing.GOOD, 1), (Standing.BAD, 2)]
    assert len({one.evidence.records for one in entries}) == len(entries)
