"""Judge whether results are close enough to the reference, tensor by tensor.

A tensor is close if its error is within the precision's tolerance, or within a small multiple of eager's own error:
some computations amplify rounding (such as the batch normalisation of two images), in eager as elsewhere. Where that
multiple would allow nearly anything, only closeness to eager's result is evidence. All other tensors are not judged,
unless their error is many times as large.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

import msgspec

from torchzoo.case import Case, Precision, ResultKind
from torchzoo.measure.check.reference import Reference
from torchzoo.measure.check.results import Results
from torchzoo.measure.check.tolerances import EAGER_ERROR_MULTIPLE, LARGEST_ALLOWED, MOST_TIMES, tolerance_of
from torchzoo.record import ResultComparison
from torchzoo.zoo.rules import ToleranceRule

#: Errors by tensor, or the limits of errors.
Errors = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class ResultJudge:
    """Judge results against one reference, by the tolerances of one case.

    `precision` is the coarsest precision of the case's arithmetic; `rules` are the exceptions in the model's
    metadata.yaml; `step` is the number of the step, counted from 1.
    """

    case: Case
    precision: Precision
    rules: tuple[ToleranceRule, ...]
    reference: Reference
    step: int = 1

    def judge(
        self,
        found: Results,
        *,
        baseline: Results | None = None,
        eager: Results | None = None,
        perturbed: Sequence[Mapping[ResultKind, Errors]] = (),
        noise: Mapping[ResultKind, Errors] | None = None,
    ) -> tuple[JudgedResult, ...]:
        """Judge each kind of result; `judge_results` explains the arguments.

        The limit of an update is never below twice that of its gradient, from which it is computed (see `Reference`).
        The state of an optimizer, which may be the gradient's square, has the same limit.
        """
        found_of_kinds: list[JudgedResult] = []
        twice_gradients: dict[str, float] = {}
        for kind in self.reference.results.values:
            judged = judge_results(
                kind,
                self.reference,
                found,
                tolerance=self._tolerance(kind),
                baseline=baseline,
                eager=eager,
                perturbed=[errors[kind] for errors in perturbed if kind in errors],
                noise=(noise or {}).get(kind, {}),
                always_allowed=_by_gradient(kind, self.reference.results.values[kind], twice_gradients),
                step=self.step,
            )
            if kind is ResultKind.GRADIENTS:
                twice_gradients = {name: 2 * allowed for name, allowed in judged.allowed.items()}
            found_of_kinds.append(judged)
        return tuple(found_of_kinds)

    def distances(self, run: Results, expected: Results) -> dict[ResultKind, Errors]:
        """Return the distances of a run from another run, by kind and tensor, in the reference's units."""
        return {kind: self.reference.errors(kind, run, expected) for kind in self.reference.results.values}

    def _tolerance(self, kind: ResultKind) -> float:
        cases = [self.case]
        if self.case.precision.is_quantized:  # all that is not quantized computes in bf16
            cases.append(msgspec.structs.replace(self.case, precision=Precision.BF16))
        own = [r.tolerance for r in self.rules if any(map(r.matches, cases)) and (not r.what or kind in r.what)]
        return own[0] if own else tolerance_of(kind, self.precision)


def _by_gradient(kind: ResultKind, names: Iterable[str], limits: Errors) -> Errors:
    """Return the limits of the gradients that results of a kind are computed from, by the names of the results."""
    if kind is ResultKind.PARAMETERS:
        return limits
    if kind is not ResultKind.OPTIMIZER:
        return {}
    return {name: limits.get(name.rpartition(".")[0], 0.0) for name in names}


class JudgedResult(NamedTuple):
    """A comparison, with the error of each tensor and its limit."""

    comparison: ResultComparison
    errors: dict[str, float]
    allowed: dict[str, float]

    @property
    def not_close(self) -> int:
        """The number of tensors that are wrong, or can't be judged."""
        return (self.comparison.tensors_wrong or 0) + self.comparison.tensors_not_judged


def judge_results(
    kind: ResultKind,
    reference: Reference,
    found: Results,
    *,
    tolerance: float,
    baseline: Results | None = None,
    eager: Results | None = None,
    perturbed: Sequence[Errors] = (),
    noise: Errors | None = None,
    always_allowed: Errors | None = None,
    step: int = 1,
) -> JudgedResult:
    """Judge one kind of result, tensor by tensor. The comparison names the worst tensor.

    Args:
        kind: the kind to compare.
        reference: the results from which errors are measured.
        found: the results to judge.
        tolerance: an error up to this is always allowed.
        baseline: an error up to EAGER_ERROR_MULTIPLE times that of these results is allowed, too.
        eager: results that `found` should equal but for rounding. A tensor close to them is as good as eager's, if
            eager's own is finite where it should be.
        perturbed: the distances of runs of eager whose weights were changed as by rounding, from `eager` (from `found`
            where there is no `eager`). They count as eager's own error, too. Rounding may matter seldom, but then much:
            it decides on which side of zero one input of a ReLU lies. Then each run is off in other tensors. So if
            a tensor still looks wrong, and one of these runs looks wrong by the others, all limits are raised
            (`_Limits.slack`).
        noise: the distance of two equal runs of eager, by tensor, which counts as eager's own error, too.
        always_allowed: another error that is always allowed, by tensor.
        step: the number of the step that has the results.
    """
    errors = reference.errors(kind, found)
    own = reference.errors(kind, baseline) if baseline is not None else dict.fromkeys(errors, 0.0)
    from_eager = reference.errors(kind, found, eager) if eager is not None else dict.fromkeys(errors, math.inf)
    limits = _Limits(
        tolerance=tolerance,
        own=own,
        noise=noise or {},
        always_allowed=always_allowed or {},
        resolution=reference.resolution(kind, found),
    )

    is_like_eager = {name: from_eager[name] <= tolerance and math.isfinite(own[name]) for name in errors}

    def verdicts_by(allowed: Errors) -> dict[str, tuple[int, float]]:
        return {
            name: _verdict(error, allowed[name], tolerance, is_like_eager=is_like_eager[name])
            for name, error in errors.items()
        }

    allowed = limits.beside(perturbed)
    verdicts = verdicts_by(allowed)
    if wrong := sum(severity == _OFF for severity, _ in verdicts.values()):
        slack = limits.slack(perturbed, wrong)
        allowed = {name: slack * limit for name, limit in allowed.items()}
        verdicts = verdicts_by(allowed)
    worst = max(verdicts, key=lambda name: verdicts[name])
    found_so = Counter(severity for severity, _ in verdicts.values())
    not_judged = found_so[_NOT_JUDGED]
    comparison = ResultComparison(
        what=kind,
        worst=worst,
        error=_finite(errors[worst]),
        eager_error=_finite(own[worst]) if baseline is not None else None,
        tolerance=tolerance,
        allowed=_finite(allowed[worst]),
        is_close=False if verdicts[worst][0] == _OFF else None if 2 * not_judged > len(errors) else True,
        tensors=len(errors),
        tensors_not_judged=not_judged,
        tensors_wrong=found_so[_OFF],
        step=step,
    )
    return JudgedResult(comparison, errors, allowed)


@dataclass(frozen=True, kw_only=True)
class _Limits:
    """The limit of each tensor's error. `own` are eager's errors; other fields are arguments of `judge_results`."""

    tolerance: float
    own: Errors
    noise: Errors
    always_allowed: Errors
    resolution: Errors

    def beside(self, runs: Sequence[Errors]) -> dict[str, float]:
        """Return the limits, with these runs as examples of what rounding does."""
        usual = median(self.own.values())  # a tensor's own error may be small by chance
        allowed = {}
        for name, own in self.own.items():
            rounding = max([own, usual, self.noise.get(name, 0.0), *(run[name] for run in runs)])
            limit = max(self.tolerance, EAGER_ERROR_MULTIPLE * rounding, self.always_allowed.get(name, 0.0))
            allowed[name] = limit + self.resolution.get(name, 0.0)
        return allowed

    def slack(self, runs: Sequence[Errors], wrong: int) -> float:
        """Return the factor by which all limits are raised if so many tensors look wrong; at least 1.

        The factor is the worst error of a run as a multiple of its limit by the other runs. If more tensors look wrong
        than in that run (and more than a few), the factor is MOST_TIMES at most: one tensor that rounding decides does
        not excuse all others. Infinite errors are left out.
        """
        found = 1.0
        few = max(1, len(self.own) // 10)
        for number, run in enumerate(runs):
            allowed = self.beside([*runs[:number], *runs[number + 1 :]])
            times = [error / allowed[name] for name, error in run.items() if allowed[name] and math.isfinite(error)]
            above = [one for one in times if one > 1]
            worst = max(above, default=1.0)
            found = max(found, worst if wrong <= max(few, len(above)) else min(worst, MOST_TIMES))
        return found


_CLOSE, _NOT_JUDGED, _OFF = range(3)


def _verdict(error: float, allowed: float, tolerance: float, *, is_like_eager: bool) -> tuple[int, float]:
    """Return a severity, and the error relative to its limit. The worst tensor has the largest pair."""
    is_within = error <= min(allowed, max(LARGEST_ALLOWED, tolerance))
    if is_like_eager or is_within:
        return _CLOSE, error / allowed if allowed and math.isfinite(error) else 0.0
    allows_nearly_anything = allowed > LARGEST_ALLOWED
    if allows_nearly_anything and error <= MOST_TIMES * allowed:
        return _NOT_JUDGED, error
    return _OFF, error / allowed if allowed and math.isfinite(allowed) else math.inf


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
