"""What a night may have made worse: values, change points, statuses, leaks, and changes that are known. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from fake_lab import eval_case
from kept_nights import NOISE
from torchzoo.analysis.cases import Status
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.series import IndexedRun, Series, SeriesPoint
from torchzoo.history.changes import Kind, Proposal, Worse
from torchzoo.history.proposals import Counts, level_limit, propose

CASE = eval_case("tiny")


def night(number: int) -> str:
    return f"202611{number:02d}T020000Z"


def series(values: Sequence[float | Status], metric: Metric = Metric.LATENCY, machine: str = "a CPU") -> Series:
    """A value for each night from the first on; a status where there is none."""
    points = []
    for number, value in enumerate(values, start=1):
        run = IndexedRun(path=f"/w/nights/{night(number)}/run", created_at="", hardware=machine, software={})
        if isinstance(value, Status):
            points.append(SeriesPoint(run=run, status=value, reason="it broke"))
        else:
            figure = RunFigure(metric=metric, value=value, low=value, high=value, processes=(value,))
            points.append(SeriesPoint(run=run, status=Status.PASSED, figure=figure))
    return Series(case=CASE, machine=machine, metric=metric, basis="", points=tuple(points))


def proposed(values: Sequence[float | Status], known: Sequence[Worse] = ()) -> tuple[Proposal, ...]:
    return propose([series(values)], night(len(values)), known)


def noisy(count: int, level: float = 1.0) -> list[float]:
    return [level * (1 + NOISE[number % len(NOISE)]) for number in range(count)]


def test_quiet_nights_propose_nothing() -> None:
    for count in range(1, 30):
        assert proposed(noisy(count)) == ()


@pytest.mark.parametrize(
    ("before", "now", "is_proposed"),
    [
        (1, 1.049, False),  # few nights: more than 5%
        (3, 1.056, True),
        (6, 1.018, False),  # enough nights: more than 2%
        (6, 1.03, True),
        (6, 0.8, False),  # better
    ],
)
def test_a_value_that_is_worse_than_usual(before: int, now: float, is_proposed: bool) -> None:  # noqa: FBT001
    found = proposed([*noisy(before), now])
    assert bool(found) == is_proposed
    if found:
        (one,) = found
        assert (one.kind, one.base, one.value) == (Kind.LATENCY, night(before), now)
        assert one.usual == pytest.approx(1.0, abs=0.01)


def test_noisy_nights_need_more() -> None:
    wild = [1.0, 1.08, 0.93, 1.05, 0.96, 1.02]
    assert level_limit(wild) > 1.15
    assert proposed([*wild, 1.1]) == ()
    assert len(proposed([*wild, 1.4])) == 1


def test_the_base_is_the_last_night_before_the_change() -> None:
    (one,) = proposed([1.0, 1.0, 1.0, 1.0, 1.3, 1.3])  # the change was not confirmed in the night before
    assert one.base == night(4)
    (one,) = proposed([1.0, 1.0, 1.0, 1.0, 1.019, 1.031])  # nor was it proposed, but its value is nearer to tonight's
    assert one.base == night(4)
    (one,) = proposed([1.0, 1.0, 1.0, 1.0, Status.FAILED, 1.3])
    assert one.base == night(4)


def test_a_small_step_is_found_by_its_change_point() -> None:
    values = [*noisy(12), *(1.015 * value for value in noisy(3))]
    (one,) = proposed(values)
    assert (one.base, one.kind) == (night(12), Kind.LATENCY)
    assert "a change point" in one.why
    later = [*values, *(1.015 * value for value in noisy(1))]
    assert proposed(later) == ()  # its first night is not one of the last three


def test_a_change_that_is_known_is_not_proposed_again() -> None:
    values = [*noisy(6), 1.3, 1.3]
    known = [Worse(case=CASE, kind=Kind.LATENCY, base=night(6))]
    assert len(proposed(values)) == 1
    assert proposed(values, known) == ()
    assert len(proposed(values, [Worse(case=CASE, kind=Kind.HOST_MEMORY, base=night(6))])) == 1
    (one,) = proposed([*values, 1.5], known)  # another one, on top
    assert one.base == night(8)


@pytest.mark.parametrize(
    ("statuses", "kind", "base"),
    [
        ([Status.FAILED], Kind.FAILING, 4),
        ([Status.INCORRECT], Kind.INCORRECT, 4),
        ([Status.UNSTEADY], Kind.UNSTEADY, 4),
        ([Status.FAILED, Status.FAILED], Kind.FAILING, 4),  # undecided in the night before
        ([Status.FAILED] * 4, None, 0),  # too long ago
        ([Status.SKIPPED] * 5, None, 0),
        ([Status.SKIPPED] * 5 + [Status.FAILED], Kind.FAILING, 4),
        ([Status.INCORRECT] * 3 + [Status.FAILED], None, 0),  # it was no better before
    ],
)
def test_what_became_of_the_case(statuses: list[Status], kind: Kind | None, base: int) -> None:
    found = proposed([*noisy(4), *statuses])
    assert [(one.kind, one.base) for one in found] == ([] if kind is None else [(kind, night(base))])
    if kind is not None:
        assert proposed([*noisy(4), *statuses], [Worse(case=CASE, kind=kind, base=night(base))]) == ()


def test_a_case_that_always_failed_is_not_news() -> None:
    assert proposed([Status.FAILED]) == ()
    assert proposed([Status.FAILED] * 5) == ()


def test_only_series_of_tonights_machine_count() -> None:
    mine, other = series([1.0, 1.0, 1.0, 1.3]), series([1.0, 1.3], machine="another CPU")
    assert len(propose([mine, other], night(4))) == 1
    assert propose([other], night(4)) == ()
    assert math.isclose(propose([mine], night(4))[0].value or 0, 1.3)


def counted(kind: Kind, *counts: int | None) -> dict[str, Counts]:
    """A number for each night from the first on; None: nothing was counted."""
    return {
        night(number): {} if count is None else {(CASE, kind): count} for number, count in enumerate(counts, start=1)
    }


@pytest.mark.parametrize(
    ("kind", "counts", "base"),
    [
        (Kind.LEAKING, (0, 0, 1), 2),
        (Kind.LEAKING, (1, 1), None),
        (Kind.LEAKING, (None, 1), None),
        (Kind.GRAPH_BREAKS, (0, 2), 1),
        (Kind.GRAPH_BREAKS, (2, 2, 3), 2),
        (Kind.GRAPH_BREAKS, (2, 3, 3), 1),  # undecided in the night before
        (Kind.GRAPH_BREAKS, (3, 2), None),
        (Kind.GRAPH_BREAKS, (2, 3, 3, 3, 3), None),  # too long ago
        (Kind.GRAPH_BREAKS, (2, None, 3), 1),
    ],
)
def test_what_is_counted_and_was_less(kind: Kind, counts: tuple[int | None, ...], base: int | None) -> None:
    found = propose([], night(len(counts)), counts=counted(kind, *counts))
    assert [(one.kind, one.base) for one in found] == ([] if base is None else [(kind, night(base))])


def test_a_count_that_is_known_to_be_more_is_no_news() -> None:
    known = [Worse(case=CASE, kind=Kind.GRAPH_BREAKS, base=night(1))]
    assert propose([], night(3), known, counted(Kind.GRAPH_BREAKS, 2, 3, 3)) == ()
    (one,) = propose([], night(4), known, counted(Kind.GRAPH_BREAKS, 2, 3, 3, 4))
    assert one.why == f"3 graph breaks in the night {night(3)}, 4 graph breaks now"
