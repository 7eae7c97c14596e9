"""Check a case: whether its backend and precision compute what eager computes.

Where the runs of the case leave a question open, or an error can't be told from rounding, the same program is judged
again in the ways of `WAYS`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import msgspec
import torch
import torch._dynamo

from torchzoo.case import EAGER, Case, Mode, Precision, ResultKind
from torchzoo.measure.check.results import CanNotCompare
from torchzoo.measure.check.rounding import RAISED_BY
from torchzoo.measure.check.runs import Runs, TimedRuns, flags_kept
from torchzoo.measure.check.verdicts import judge_runs, said_before
from torchzoo.model import Model
from torchzoo.record import Check, CheckStatus
from torchzoo.zoo.spec import ModelSpec

_VERDICTS = (CheckStatus.CORRECT, CheckStatus.INCORRECT)
_FINDINGS = (*_VERDICTS, CheckStatus.PARTLY_CORRECT)

#: The loss is scaled by this much less where gradients overflow and eager's do not.
SMALLER_SCALE = 16


def check_case(
    case: Case,
    spec: ModelSpec,
    model_class: type[Model],
    device: torch.device,
    *,
    timed: TimedRuns | None = None,
) -> Check:
    """Check whether the case computes what eager computes, as far as its precision allows.

    `timed` holds the results of the code that was timed in this process, if the case was timed.
    An exception that the case itself raises is not caught: the case has failed.
    """
    with flags_kept():
        try:
            runs = Runs(case=case, spec=spec, model_class=model_class, device=device, timed=timed)
            return _judge_again(runs, judge_runs(runs), WAYS)
        except CanNotCompare as reason:
            return Check(status=CheckStatus.REFERENCE_FAILED, reason=f"the results can't be compared: {reason}")
        finally:
            torch._dynamo.reset()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Way:
    """A way to judge the same program again."""

    when: Callable[[Runs, Check], bool]  # by the finding so far
    changed: Callable[[Runs], Iterable[Runs]]  # runs under other conditions, tried until a finding of theirs counts
    now: Callable[[Runs], str]  # the conditions of changed runs, in words
    before: Callable[[Runs], str]  # those of the runs before
    counts: Callable[[Runs, Check], bool] = lambda _, __: True  # whether a finding of changed runs counts
    is_whole: bool = False  # whether later ways change these runs further, and none the runs before


def _judge_again(runs: Runs, found: Check, ways: Sequence[Way]) -> Check:
    """Return the finding, or that of a later judgement where it leaves something open.

    A wrong result at TF32 leaves the case open: fp32 decides.
    """
    for number, way in enumerate(ways, 1):
        if not way.when(runs, found):
            continue
        for changed in way.changed(runs):
            try:
                again = judge_runs(changed)
            except CanNotCompare:  # the host is short of memory now; the earlier finding holds
                continue
            if way.is_whole:
                again = _judge_again(changed, again, ways[number:])
            if again.status is CheckStatus.INCORRECT and changed.arithmetic is Precision.TF32:
                reason = f"{found.reason}; {way.now(changed)}, {again.reason}"
                found = msgspec.structs.replace(found, status=CheckStatus.REFERENCE_FAILED, reason=reason)
            elif again.status in _FINDINGS and way.counts(changed, again):
                words = f"judged {way.now(changed)}, since {way.before(runs)} {found.reason}"
                found = said_before(words, again)
                if changed.case.precision is not runs.case.precision:
                    found = msgspec.structs.replace(found, judged_at=changed.case.precision)
                break
        if way.is_whole:
            break
    return found


def _otherwise(runs: Runs, **changes: Any) -> Runs:
    """Return runs of the same program under other conditions, for which results of the measured model do not count."""
    return dataclasses.replace(runs, timed=None, **changes)


def _may_overflow_by_scaling(runs: Runs, found: Check) -> bool:
    """Whether gradients overflow that were scaled to be near the largest number of float16."""
    overflows = any(
        one.what is ResultKind.GRADIENTS and one.is_close is False and one.error is None for one in found.comparisons
    )
    return found.status is CheckStatus.INCORRECT and runs.scales_loss and overflows


def _is_hidden_by_its_weights(runs: Runs, found: Check) -> bool:
    """Whether rounding leaves many results without a judgement, in a training step that may amplify rounding."""
    loss_is_close = any(one.what is ResultKind.LOSS and one.is_close is True for one in found.comparisons)
    may_amplify = runs.case.mode is Mode.TRAIN and runs.can_damp_weights
    return found.status not in _VERDICTS and loss_is_close and may_amplify and runs.case.backend != EAGER


def _is_hidden_by_tf32(runs: Runs, found: Check) -> bool:
    """Whether there are results but few or none that can be judged, in a backend's case that may use TF32."""
    has_no_verdict = found.status not in _VERDICTS and bool(found.comparisons)
    return has_no_verdict and runs.arithmetic is Precision.TF32 and runs.case.backend != EAGER


def _at_fp32(runs: Runs) -> Iterator[Runs]:
    """Yield runs of the code that was compiled at TF32, where Dynamo holds it, then runs of code compiled at fp32."""
    case = msgspec.structs.replace(runs.case, precision=Precision.FP32)
    at_fp32 = _otherwise(runs, case=case, skips_guards=True)
    if at_fp32.can_reuse_code:
        yield at_fp32
    yield _otherwise(at_fp32, was_timed=False, was_checked=False, skips_guards=False)


WAYS = (
    # A GradScaler begins with a scale so large that steps are skipped, and finds its own. Near the limit, rounding
    # decides whether a gradient overflows. A gradient that is not finite for another reason is not finite here, either.
    Way(
        when=_may_overflow_by_scaling,
        changed=lambda runs: [_otherwise(runs, loss_scale=runs.loss_scale / SMALLER_SCALE)],
        now=lambda runs: f"with a loss scale of {runs.loss_scale:g}",
        before=lambda runs: f"with {runs.loss_scale:g}",
        is_whole=True,
    ),
    # Damped weights amplify rounding less. The loss was compared with the model's own weights before. A result that is
    # correct in part does not count, nor a wrong one where rounding is still amplified.
    Way(
        when=_is_hidden_by_its_weights,
        changed=lambda runs: [_otherwise(runs, damps_weights=True)],
        now=lambda _: f"with the biases of its normalizations raised by {RAISED_BY:g}",
        before=lambda _: "with its own",
        counts=lambda runs, found: (
            found.status is CheckStatus.CORRECT
            or (found.status is CheckStatus.INCORRECT and not runs.amplifies_rounding)
        ),
    ),
    # TF32 is too coarse for the gradients of a randomly initialised network with batch normalisation. Two runs of eager
    # can also differ by more than is allowed there, because a GPU may add in another order each time. TF32 changes how
    # products are rounded and nothing else. So a backend is right if it is right at fp32 and uses TF32 no more than
    # eager does. Autocast and casts change the program itself: for such a case the first finding stands. Held code that
    # is wrong does not count: TF32 may be built into a kernel.
    Way(
        when=_is_hidden_by_tf32,
        changed=_at_fp32,
        now=lambda _: "at fp32",
        before=lambda _: "at TF32",
        counts=lambda runs, found: found.status is not CheckStatus.INCORRECT or not runs.skips_guards,
    ),
)
