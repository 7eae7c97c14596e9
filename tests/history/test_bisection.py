"""The search for the first bad version: exact verdicts, wrong ones, skipped versions, several lanes."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence

import msgspec
import pytest

from torchzoo.history.bisection import Conclusion, Ending, Judged, Search, Standing

TENTH = 0.1  # of the verdicts are wrong


def with_verdicts(search: Search, judged: Sequence[Judged]) -> Search:
    return msgspec.structs.replace(search, judged=(*search.judged, *judged))


def searched(
    search: Search,
    culprit: int,
    *,
    wrong: float = 0.0,
    rng: random.Random | None = None,
    lanes: int = 1,
    skipped: Collection[int] = (),
) -> tuple[Conclusion, list[list[int]]]:
    """The end of a search, and its rounds of midpoints. A share `wrong` of the verdicts is wrong."""
    rounds = []
    while (end := search.conclusion()) is None:
        rounds.append(search.midpoints(lanes))
        assert rounds[-1]
        verdicts = []
        for version in rounds[-1]:
            is_bad = (version >= culprit) != (rng is not None and rng.random() < wrong)
            verdict = Standing.BAD if is_bad else Standing.GOOD
            verdicts.append(Judged(version, Standing.SKIPPED if version in skipped else verdict))
        search = with_verdicts(search, verdicts)
    return end, rounds


def found(version: int, end: Conclusion) -> bool:
    return (end.answer, end.first, end.last) == (Ending.FOUND, version, version)


def test_of_70_candidates_8_midpoints_are_enough() -> None:
    for culprit in range(1, 71):
        end, rounds = searched(Search(last=70), culprit)
        assert found(culprit, end)
        assert rounds[0] == [70]  # the bad version itself comes first
        assert len(rounds) <= 8


def test_one_candidate_needs_only_the_bad_version() -> None:
    end, rounds = searched(Search(last=1), 1)
    assert found(1, end)
    assert rounds == [[1]]


def test_with_one_wrong_verdict_in_ten_the_answer_is_right() -> None:
    rng = random.Random(20261122)
    trials = 150
    right = 0
    for _ in range(trials):
        culprit = rng.randint(1, 40)
        end, _ = searched(Search(last=40, error_rate=TENTH), culprit, wrong=0.1, rng=rng)
        right += found(culprit, end)
    assert right / trials >= 0.95


def test_without_a_change_the_answer_is_that_there_is_none() -> None:
    end, rounds = searched(Search(last=70), 71)
    assert end.answer is Ending.ABSENT
    assert rounds == [[70], [70]]  # it was called bad, so one verdict is not enough
    rng = random.Random(7)
    ends = [searched(Search(last=30, error_rate=TENTH), 31, wrong=0.1, rng=rng)[0].answer for _ in range(60)]
    assert ends.count(Ending.ABSENT) >= 57


def test_a_wrong_verdict_is_overruled() -> None:
    """The first midpoint is wrongly called good; what follows contradicts it."""
    search = Search(last=64, judged=(Judged(64, Standing.BAD), Judged(32, Standing.GOOD)))
    end, rounds = searched(search, 20)
    assert found(20, end)
    assert [32] in rounds  # it is judged again
    assert len(rounds) < 20


def test_skipped_versions_give_a_range() -> None:
    skipped = range(30, 40)
    for culprit in (29, 41, 60):
        assert found(culprit, searched(Search(last=70), culprit, skipped=skipped)[0])
    end, rounds = searched(Search(last=70), 35, skipped=skipped)
    assert (end.answer, end.first, end.last) == (Ending.RANGE, 30, 40)
    assert len({version for one in rounds for version in one}) == sum(map(len, rounds))  # none is tried twice


def test_many_skipped_versions_are_left_with_growing_steps() -> None:
    end, rounds = searched(Search(last=200), 160, skipped=range(80, 121))
    assert found(160, end)
    assert sum(80 <= version <= 120 for one in rounds for version in one) <= 10


def test_a_version_that_works_no_more_is_not_asked_for_ever() -> None:
    judged = (Judged(3, Standing.BAD), Judged(1, Standing.GOOD), Judged(2, Standing.BAD))
    skipped = (Judged(version, Standing.SKIPPED) for version in (1, 2, 3))
    search = Search(last=3, error_rate=TENTH, judged=(*judged, *skipped))
    end = search.conclusion()
    assert end is not None
    assert (end.answer, end.first, end.last) == (Ending.RANGE, 1, 3)


def test_the_best_is_none_where_a_change_is_less_likely_than_not() -> None:
    search = Search(last=70)
    assert search.best()[0] == 1  # each of the versions is less probable than none, but not all together
    assert with_verdicts(search, [Judged(70, Standing.GOOD)]).best() == (71, pytest.approx(0.839, abs=0.001))


def test_the_limit_on_verdicts_leaves_what_is_probable() -> None:
    end, rounds = searched(Search(last=70, most_verdicts=4), 20)
    assert end.answer is Ending.UNDECIDED
    assert len(rounds) == 4
    assert 1 < end.first <= 20 <= end.last < 35
    assert end.probability >= 0.95
