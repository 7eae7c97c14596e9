"""What the check of a case's results found. A part of a record."""

from __future__ import annotations

import enum

import msgspec

from torchzoo.bounds import Count, PositiveCount
from torchzoo.case import Precision, ResultKind


class CheckStatus(enum.StrEnum):
    CORRECT = "correct"
    PARTLY_CORRECT = "partly_correct"  # what can be judged is, and much of a kind of result can't be
    INCORRECT = "incorrect"
    NONDETERMINISTIC = "nondeterministic"  # two runs of eager do not agree with each other
    REFERENCE_FAILED = "reference_failed"  # there is nothing to judge by
    NOT_REACHED = "not_reached"  # the check did not come to its end; the record says why


class ResultComparison(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of result compared with the reference. Its errors are those of the tensor that does worst.

    An error is relative to the tensor's norm; for `integers` and `detections` it is the share of elements, or boxes,
    that differ. It is None for a tensor that is not finite or has another shape. `is_close` is None where nothing can
    be said because eager itself is too far from the reference.
    """

    what: ResultKind
    worst: str  # the name of the tensor
    error: float | None  # of the case against the reference
    eager_error: float | None  # of eager against the reference: at the same precision, or for eager at the model's own
    tolerance: float  # of the precision, or of an exception in metadata.yaml
    is_close: bool | None
    allowed: float | None = None  # how large the error may be: the tolerance, or a multiple of eager's own error
    tensors: Count = 1
    tensors_not_judged: Count = 0
    step: PositiveCount = 1  # of those in a row that are compared: the first, unless a later one alone is wrong
    tensors_wrong: Count = 0  # of those that were judged; not counted in records of before 2026-11-26


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a case's results are what eager computes, judged by an fp64 reference."""

    status: CheckStatus
    reason: str = ""  # one line
    comparisons: tuple[ResultComparison, ...] = ()  # of eager's second run with its first, if `nondeterministic`
    steps: PositiveCount = 1  # so many in a row, from the same start, were compared and could be judged
    compiled_anew: str = ""  # why what is checked is not the code that was timed; empty: it is, or nothing is compiled
    judged_at: Precision | None = None  # if not the case's own precision, since there was nothing to judge by at that
