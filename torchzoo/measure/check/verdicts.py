"""Judge the runs of a case: the results of its backend and precision against eager's and those at fp64.

If a model has no results at fp64 (too little memory, or operators without fp64), results at fp32 judge coarser
precisions.

In evaluation the outputs are compared, and what the step changed in buffers and caches. In training these are compared:
the loss, the gradients that the step leaves in `.grad` (if any), the changes of the parameters, the buffers, and, where
the backend makes the updates, the state of optimizers. Each must have the dtype that it has in eager.

Eager runs twice, since some kernels are not deterministic. Differences of its two runs count as rounding: a gradient
that is zero but for rounding differs each time. If the runs differ in the loss or the outputs, or in most gradients by
so much that these can't be judged, the case is not judged.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import torch
import torch._dynamo
from torch import Tensor

from torchzoo.case import EAGER, Case, Mode, Precision, ResultKind
from torchzoo.devices import device_of
from torchzoo.errors import attempt
from torchzoo.machine.limits import available_bytes
from torchzoo.measure.check.judging import Errors, JudgedResult, ResultJudge
from torchzoo.measure.check.norms import l2_norm
from torchzoo.measure.check.reference import Reference
from torchzoo.measure.check.results import CanNotCompare, Results, Run, run_bytes
from torchzoo.measure.check.runs import Runs, TimedRuns
from torchzoo.measure.check.tolerances import EAGER_ERROR_MULTIPLE, LARGEST_ALLOWED
from torchzoo.measure.memory import free_memory
from torchzoo.model.tensors import tensors_in
from torchzoo.record import Check, CheckStatus, ResultComparison

#: Host memory of the runs after eager's first run, as multiples of the memory of its results: another run, the
#: reference with the weights of its updates, and the parameters while a step runs. The reference is kept in fp64, or
#: (coarse cases) fp32. The earlier run of the timed code counts as one of them.
MEMORY_OF_RUNS = {torch.float64: 5.0, torch.float32: 3.0}

#: If a larger share of the tensors of a kind is not judged, the result says so: an error can hide in them.
MOST_NOT_JUDGED = 0.1

#: If other processes hold this much of the device's memory, the reference may succeed without them.
OTHERS_BYTES = 2 * 2**30

#: Runs of eager with weights changed as by rounding, made if the first comparison finds an error. Each is dropped
#: before the next. A run and its parameters during its steps take so many times the memory of eager's first run.
PERTURBED_RUNS, MEMORY_OF_PERTURBED = 3, 2.0


_Verdicts = tuple[JudgedResult, ...]


def judge_runs(runs: Runs) -> Check:
    """Make the runs of a case and judge them, step by step.

    Raises:
        CanNotCompare: the results are of a kind, or of a size, that can't be compared.
        torch.OutOfMemoryError: a run has too little device memory; the reference, where other cases hold some.
    """
    if not runs.can_reuse_code:
        torch._dynamo.reset()
    is_eager = runs.case.backend == EAGER
    eager = _with_host_memory(runs, runs.eager())
    finest, why_not_fp64 = _reference_run(runs)
    weights = finest[0].update_weights if finest else {}
    of_eager = (dataclasses.replace(eager[0], update_weights=weights), *eager[1:])
    by_eager = _judges(runs, of_eager)
    repeated, candidate = _second_run(runs, by_eager)
    noise: list[dict[ResultKind, Errors]] = [{} for _ in by_eager]
    for one in repeated:
        noise[one.comparison.step - 1][one.comparison.what] = one.errors
    steps = min((judged.comparison.step - 1 for judged in repeated if _is_random(judged)), default=len(eager))
    if not steps:
        differences = _comparisons(judged for judged in repeated if judged.comparison.step == 1)
        reason = _nondeterministic(differences)
        return Check(status=CheckStatus.NONDETERMINISTIC, reason=reason, comparisons=differences)

    if is_eager:
        found = eager
        baseline = runs.native() if runs.has_native else None
        reference = finest or baseline
    else:
        found = candidate()
        baseline = eager if finest else None
        reference = finest
    judges = (by_eager if reference is None else _judges(runs, reference))[:steps]
    unlike = {} if is_eager else _dtypes_unlike(by_eager, found)
    judge = partial(_judge_steps, judges, found, baseline=baseline, eager=None if is_eager else eager, noise=noise)
    judged = judge()
    if _looks_wrong(judged):
        _require_host_memory(eager, MEMORY_OF_PERTURBED)
        judged = _judge_beside_rounding(runs, judged, judges, eager, judge)
    runs.amplifies_rounding = any(map(_amplifies_rounding, judged))
    comparisons = _recorded(judged)
    if finest is None:
        verdict = _without_fp64(runs.case, why_not_fp64, comparisons, is_judged=not is_eager or runs.has_native)
    else:
        verdict = _verdict(runs.case, comparisons, is_native_eager=is_eager and not runs.is_cast)
        verdict = said_before(why_not_fp64, verdict)
    if verdict.status is CheckStatus.INCORRECT and runs.case.mode is not Mode.TRAIN and _is_frozen(eager, found):
        reason = f"{verdict.reason}; in eager the results change from step to step, and the candidate has frozen them"
        verdict = msgspec.structs.replace(verdict, reason=reason)
    if unlike:
        verdict = said_before(_say_unlike(unlike), msgspec.structs.replace(verdict, status=CheckStatus.INCORRECT))
    verdict = msgspec.structs.replace(verdict, steps=_steps_judged(judged), compiled_anew=runs.compiled_anew)
    noisy = [one for one in repeated if one.comparison.step == 1 and 2 * one.not_close > one.comparison.tensors]
    said = f"{_nondeterministic(_comparisons(noisy))}, which counts as rounding" if noisy else ""
    return said_before(said, verdict)


def _second_run(runs: Runs, by_eager: Sequence[ResultJudge]) -> tuple[_Verdicts, Callable[[], Run]]:
    """Return what a second run of eager differs by, and a function that returns the candidate's run.

    Both are of the measured model, if its run of eager is like that of a new model.
    """
    timed = runs.timed
    if timed is not None and timed.candidate:
        repeated = _judge_steps(by_eager, timed.eager)
        if not any(judged.not_close for judged in repeated):
            return repeated, lambda: timed.candidate
        why_not = "the measured model, put back to its start, does not compute in eager what a new one does"
        runs.timed = TimedRuns(why_not=why_not)
    eager_again, inspection = runs.eager_inspected()
    return _judge_steps(by_eager, eager_again), partial(runs.candidate, inspection)


def _judge_steps(
    judges: Sequence[ResultJudge],
    found: Run,
    *,
    baseline: Run | None = None,
    eager: Run | None = None,
    perturbed: Sequence[Sequence[Mapping[ResultKind, Errors]]] = (),
    noise: Sequence[Mapping[ResultKind, Errors]] | None = None,
) -> _Verdicts:
    """Judge each kind of result of each step for which there is a judge; see `judge_results`."""
    return tuple(
        judged
        for index, judge in enumerate(judges)
        for judged in judge.judge(
            found[index],
            baseline=baseline[index] if baseline else None,
            eager=eager[index] if eager else None,
            perturbed=[run[index] for run in perturbed],
            noise=noise[index] if noise else None,
        )
    )


class _Imitation(NamedTuple):
    """Runs of eager that imitate what rounding may do, one for each number."""

    run: Callable[[Runs, int], Run | None]  # None where the step allows no such change
    numbers: Iterable[int]
    when: Callable[[Runs, _Verdicts], bool] = lambda _, __: True
    kinds: Collection[ResultKind] = tuple(ResultKind)  # of results whose distances count


def _has_wrong_integers(judged: JudgedResult) -> bool:
    return judged.comparison.what is ResultKind.INTEGERS and judged.comparison.is_close is False


#: Made in this order, as long as something looks wrong.
IMITATIONS = (
    _Imitation(lambda runs, seed: runs.perturbed(seed), range(PERTURBED_RUNS)),
    _Imitation(
        lambda runs, seed: runs.perturbed_backward(seed),
        range(PERTURBED_RUNS),
        when=lambda runs, _: runs.keeps_coarse_activations,
    ),
    _Imitation(
        lambda runs, sign: runs.moved_decisions(sign),
        (1, -1),
        when=lambda _, judged: any(map(_has_wrong_integers, judged)),
        kinds=(ResultKind.INTEGERS,),
    ),
)


def _judge_beside_rounding(
    runs: Runs, judged: _Verdicts, judges: Sequence[ResultJudge], eager: Run, judge: Callable[..., _Verdicts]
) -> _Verdicts:
    def distances(one: _Imitation, number: int) -> list[Mapping[ResultKind, Errors]]:
        """Return the distances of a run from eager, by step; none where there is no such run, which is dropped here."""
        run = one.run(runs, number)
        by_step = [each.distances(*results) for each, *results in zip(judges, run or (), eager, strict=False)]
        return [{kind: errors for kind, errors in step.items() if kind in one.kinds} for step in by_step]

    by_rounding: list[list[Mapping[ResultKind, Errors]]] = []
    for one in IMITATIONS:
        if not _looks_wrong(judged):
            break
        if one.when(runs, judged):
            by_rounding += filter(None, (distances(one, number) for number in one.numbers))
            judged = judge(perturbed=by_rounding)
    return judged


def _recorded(judged: Iterable[JudgedResult]) -> tuple[ResultComparison, ...]:
    """Return a comparison of each kind of result: of the first step, or of the first step with an error.

    An error in a step changes the steps that follow.
    """
    comparisons = _comparisons(judged)
    wrong_step = min((one.step for one in comparisons if one.is_close is False), default=1)
    wrong = {one.what: one for one in comparisons if one.step == wrong_step and one.is_close is False}
    first = {one.what: one for one in reversed(comparisons)}
    return tuple(wrong.get(what, first[what]) for what in dict.fromkeys(one.what for one in comparisons))


def _is_frozen(eager: Run, found: Run) -> bool:
    """Whether an output changes in a later step of eager, and is the same in all steps of the run to judge."""

    def is_same(run: Run, kind: ResultKind, name: str) -> bool:
        values = [results.values.get(kind, {}).get(name) for results in run]
        return all(value is values[0] for value in values)  # equal tensors are one object: `sharing_equal`

    kinds = (ResultKind.OUTPUTS, ResultKind.INTEGERS)
    names = [(kind, name) for kind in kinds for name in eager[0].values.get(kind, {})]
    return any(is_same(found, *one) and not is_same(eager, *one) for one in names)


def _steps_judged(judged: Iterable[JudgedResult]) -> int:
    """Return how many steps, from the first on, have no kind of result that can't be judged; at least 1."""
    not_judged = [one.comparison.step for one in judged if one.comparison.is_close is None]
    last = max(one.comparison.step for one in judged)
    return max(1, min(not_judged, default=last + 1) - 1)


def _dtypes_unlike(by_eager: Iterable[ResultJudge], found: Run) -> dict[str, tuple[torch.dtype, torch.dtype]]:
    unlike: dict[str, tuple[torch.dtype, torch.dtype]] = {}
    for judge, results in zip(by_eager, found, strict=True):
        unlike |= judge.reference.dtypes_unlike(results)
    return unlike


def said_before(words: str, check: Check) -> Check:
    """Return the check with these words before its own reason."""
    return msgspec.structs.replace(check, reason="; ".join(filter(None, [words, check.reason])))


def is_open(comparison: ResultComparison) -> bool:
    """Whether many tensors of a kind can't be judged."""
    return comparison.tensors_not_judged > MOST_NOT_JUDGED * comparison.tensors


def _looks_wrong(judged: Iterable[JudgedResult]) -> bool:
    return any(one.comparison.is_close is False for one in judged)


def _amplifies_rounding(judged: JudgedResult) -> bool:
    """Whether rounding alone makes many gradients useless, so that others may look right or wrong by chance."""
    useless = sum(allowed > EAGER_ERROR_MULTIPLE * LARGEST_ALLOWED for allowed in judged.allowed.values())
    return judged.comparison.what is ResultKind.GRADIENTS and useless > MOST_NOT_JUDGED * judged.comparison.tensors


def _is_random(repeated: JudgedResult) -> bool:
    """Whether a kind of result differs in each run of eager: any loss or output, or most tensors of other kinds.

    Other kinds, such as gradients, may differ as far as a judgement is possible, which counts as eager's own error.
    """
    if repeated.comparison.what in (ResultKind.LOSS, ResultKind.OUTPUTS, ResultKind.INTEGERS, ResultKind.DETECTIONS):
        return repeated.not_close > 0
    useless = sum(EAGER_ERROR_MULTIPLE * error > LARGEST_ALLOWED for error in repeated.errors.values())
    return 2 * useless > repeated.comparison.tensors


def _comparisons(judged: Iterable[JudgedResult]) -> tuple[ResultComparison, ...]:
    return tuple(one.comparison for one in judged)


def _with_host_memory(runs: Runs, eager: Run) -> Run:
    """Return eager's first run; without all but the loss of the last step if the host lacks the memory for the runs.

    Raise `CanNotCompare` if it has too little memory for the first step, too.
    """
    times = MEMORY_OF_RUNS[runs.widest]
    try:
        _require_host_memory(eager, times)
    except CanNotCompare:
        if runs.case.mode is not Mode.TRAIN:
            raise
        runs.compares_last = False
        eager = (
            *eager[:-1],
            dataclasses.replace(eager[-1], values={ResultKind.LOSS: eager[-1].values[ResultKind.LOSS]}),
        )
        _require_host_memory(eager, times)
    return eager


def _require_host_memory(eager: Run, times: float) -> None:
    """Raise `CanNotCompare` if the host's memory is too small for so many times these results.

    While a step runs, each parameter is kept whole, even if its update is sparse, as in a frozen network.
    """
    updates = eager[0].values.get(ResultKind.PARAMETERS, {}).values()
    sparse = [update for update in updates if isinstance(update, Tensor) and update.is_sparse]
    whole = sum(torch.float64.itemsize * update.numel() for update in sparse)
    needed, available = times * run_bytes(eager) + whole, available_bytes()
    if needed > available:
        raise CanNotCompare(
            f"they take {needed / 2**30:.1f} GiB of the host's memory, and {available / 2**30:.1f} GiB are free"
        )


def _judges(runs: Runs, by: Run) -> list[ResultJudge]:
    """Return a judge for each step, which compares with the results of this run."""
    made = partial(ResultJudge, case=runs.case, precision=runs.arithmetic, rules=runs.spec.tolerances)
    return [made(reference=Reference(results, runs.device), step=step) for step, results in enumerate(by, 1)]


def _reference_run(runs: Runs) -> tuple[Run | None, str]:
    """Return the run at fp64, or else that at fp32 if the case is coarser, or None; and why fp64 is missing."""
    at_fp64 = _try(Precision.FP64, runs)
    if not isinstance(at_fp64, str):
        return at_fp64, ""
    at_fp32 = _try(Precision.FP32, runs) if runs.is_coarse else at_fp64
    return (None, at_fp64) if isinstance(at_fp32, str) else (at_fp32, f"judged by fp32, since {at_fp64}")


def _try(precision: Precision, runs: Runs) -> Run | str:
    """Return the run at a precision, or why there is none: a model may raise anything in a dtype it was not made for.

    Steps are left out from the first step with NaN on.

    Raises:
        CanNotCompare: the results are of a kind that can't be compared.
        torch.OutOfMemoryError: the device has too little memory, but other cases hold some of it. Then the case has
            failed, and the scheduler runs it again, alone.
    """
    results = _run_reference(precision, runs)
    if isinstance(results, CanNotCompare):
        raise results
    if isinstance(results, torch.OutOfMemoryError) and (device_of(runs.device).held_by_others() or 0) > OTHERS_BYTES:
        raise results
    if isinstance(results, Exception):
        text = " ".join(str(results).split())
        text = text if len(text) <= 250 else f"{text[:100]} ... {text[-150:]}"  # TorchScript puts the cause at the end
        reason = f"in {precision} it raises {type(results).__name__}: {text}"
        del results  # its frames hold the model
        free_memory(runs.device)
        return reason
    numbers = tuple(itertools.takewhile(lambda of_step: not _has_nan(of_step, runs.device), results))
    return numbers or f"in {precision} it gives NaN"


def _has_nan(results: Results, device: torch.device) -> bool:
    floating = [tensor for tensor in tensors_in(list(results.values.values())) if tensor.is_floating_point()]
    return any(math.isnan(l2_norm(leaf, device)) for leaf in floating)


def _run_reference(precision: Precision, runs: Runs) -> Run | Exception:
    """Return the run at a precision, or its exception.

    A training step for which the device has too little memory runs again with its activations in the host's memory.
    """
    results = attempt(lambda: runs.reference(precision))
    if not isinstance(results, torch.OutOfMemoryError) or runs.case.mode is not Mode.TRAIN:
        return results
    no_memory = results.with_traceback(None)  # the frames of a traceback hold the model
    del results
    free_memory(runs.device)
    again = attempt(lambda: runs.reference(precision, activations_go_to_host=True))
    return again if isinstance(again, tuple | CanNotCompare) else no_memory


def _verdict(case: Case, comparisons: tuple[ResultComparison, ...], *, is_native_eager: bool) -> Check:
    """Judge with results at fp64: correct if nine tenths of the tensors of each kind can be judged and none is wrong.

    If eager at the model's own precision differs from fp64 by more than rounding, nothing can be said.
    """
    wrong = [c for c in comparisons if c.is_close is False]
    if wrong:
        reason = _say_wrong(wrong)
        if all(c.step > 1 for c in wrong):
            reason += "; the first step is right"
        if is_native_eager:
            reason = f"eager and the fp64 reference differ by more than rounding: {reason}"
            return Check(status=CheckStatus.REFERENCE_FAILED, reason=reason, comparisons=comparisons)
        return Check(status=CheckStatus.INCORRECT, reason=reason, comparisons=comparisons)
    not_judged = [c for c in comparisons if c.is_close is None]
    if not any(map(is_open, comparisons)):
        return Check(status=CheckStatus.CORRECT, comparisons=comparisons)
    kinds = {c.what for c in comparisons}
    essential = kinds
    if case.mode is Mode.TRAIN:
        essential = {ResultKind.LOSS, ResultKind.GRADIENTS if ResultKind.GRADIENTS in kinds else ResultKind.PARAMETERS}
    is_judged = not essential & {c.what for c in not_judged}
    status = CheckStatus.PARTLY_CORRECT if is_judged else CheckStatus.REFERENCE_FAILED
    reason = f"nothing to judge by: {_say_not_judged(filter(is_open, comparisons))}"
    return Check(status=status, reason=reason, comparisons=comparisons)


def _without_fp64(case: Case, why: str, comparisons: tuple[ResultComparison, ...], *, is_judged: bool) -> Check:
    """Judge without results at fp64: against eager alone a backend may be found wrong, but never correct."""
    wrong = [c for c in comparisons if c.is_close is False]
    not_judged = [c for c in comparisons if c.is_close is None]
    beside = "eager" if case.backend != EAGER else "its native precision"
    if case.backend != EAGER and wrong:
        reason = f"against eager, without a reference ({why}): {_say_wrong(wrong)}"
        return Check(status=CheckStatus.INCORRECT, reason=reason, comparisons=comparisons)
    if wrong:
        said = f"beside {beside}: {_say_wrong(wrong)}"
    elif not_judged:
        said = f"nothing to judge by beside {beside}: {_say_not_judged(not_judged)}"
    else:
        said = f"it agrees with {beside}" if is_judged else "eager agrees with itself"
    return Check(status=CheckStatus.REFERENCE_FAILED, reason=f"{why}; {said}", comparisons=comparisons)


def _say_wrong(comparisons: Iterable[ResultComparison]) -> str:
    said = []
    for c in comparisons:
        unlike = "not finite where it should be, missing or of another shape"
        limits = [f"eager by {c.eager_error:.2g}"] if c.eager_error is not None else []
        limits += [f"allowed {c.allowed:.2g}"] if c.allowed is not None else []
        error = unlike if c.error is None else f"off by {c.error:.2g}"
        limits += [f"the worst of {c.tensors_wrong} of {c.tensors}"] if (c.tensors_wrong or 0) > 1 else []
        step = f"step {c.step}, " if c.step > 1 else ""
        said.append(f"{step}{c.what}: {c.worst} is {error}" + (f" ({', '.join(limits)})" if limits else ""))
    return "; ".join(said)


def _say_unlike(unlike: Mapping[str, tuple[torch.dtype, torch.dtype]]) -> str:
    name, (ours, theirs) = next(iter(unlike.items()))
    more = f" (one of {len(unlike)} with another dtype)" if len(unlike) > 1 else ""
    return f"{name} is {ours}, and {theirs} in eager{more}"


def _say_not_judged(comparisons: Iterable[ResultComparison]) -> str:
    return "; ".join(
        f"{c.what}: for {c.tensors_not_judged} of {c.tensors} tensors, {c.worst} for one, rounding alone would allow "
        + ("anything" if c.allowed is None else f"an error of {c.allowed:.2g}")
        for c in comparisons
    )


def _nondeterministic(comparisons: Iterable[ResultComparison]) -> str:
    worst = next(c for c in comparisons if c.is_close is not True)
    difference = "" if worst.error is None else f" by {worst.error:.2g} (allowed {worst.tolerance:.2g})"
    return f"two runs of eager from the same seed differ in {worst.what}, most in {worst.worst},{difference}"
