"""The status of a check and its reason say the same."""

from __future__ import annotations

import itertools

import msgspec
import pytest

from examples import CASE
from torchzoo.case import Backend, Mode, ResultKind
from torchzoo.measure.check import verdicts
from torchzoo.record import CheckStatus, ResultComparison


def comparison(what: ResultKind, *, is_close: bool | None, not_judged: int) -> ResultComparison:
    return ResultComparison(
        what=what,
        worst="w",
        error=0.1,
        eager_error=0.1,
        tolerance=0.01,
        is_close=is_close,
        allowed=0.5,
        tensors=113,
        tensors_not_judged=not_judged,
        tensors_wrong=int(is_close is False),
    )


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_correct_says_nothing_against_itself_and_all_else_says_why(mode: Mode) -> None:
    case = msgspec.structs.replace(CASE, mode=mode, backend=Backend("inductor"))
    kinds = (ResultKind.LOSS, ResultKind.GRADIENTS) if mode is Mode.TRAIN else (ResultKind.OUTPUTS, ResultKind.STATE)
    judged = [(True, 0), (True, 11), (True, 22), (None, 80), (False, 0), (False, 22)]
    for pair in itertools.product(judged, repeat=2):
        comparisons = tuple(
            comparison(kind, is_close=close, not_judged=open_) for kind, (close, open_) in zip(kinds, pair, strict=True)
        )
        found = verdicts._verdict(case, comparisons, is_native_eager=False)
        is_wrong = any(one.is_close is False for one in comparisons)
        is_open = any(one.tensors_not_judged > 11 for one in comparisons)
        assert (found.status is CheckStatus.INCORRECT) == is_wrong
        assert (found.status is CheckStatus.CORRECT) == (not is_wrong and not is_open)
        assert (found.reason == "") == (found.status is CheckStatus.CORRECT)
        assert ("nothing to judge by" in found.reason) == (is_open and not is_wrong)
        if found.status is CheckStatus.PARTLY_CORRECT:
            assert all(one.is_close for one in comparisons)
        if pair == ((True, 0), (True, 22)):
            assert found.status is CheckStatus.PARTLY_CORRECT
            assert "for 22 of 113 tensors" in found.reason
