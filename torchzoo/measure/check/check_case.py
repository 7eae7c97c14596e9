"""Check a case: whether its backend and precision compute what eager computes.

Where the runs of the case leave a question open, or an error can't be told from rounding, the same program is judged
again: with a smaller scale of the loss, with weights that amplify rounding less, or at fp32. The result of the second
judgement counts only if it is a finding: correct, at least in part, or incorrect.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import torch
import torch._dynamo

from torchzoo.case import EAGER, Case, Mode, Precision, ResultKind
from torchzoo.measure.check.milder import RAISED_BY
from torchzoo.measure.check.results import CanNotCompare
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
            runs = Runs(
                case=case,
                spec=spec,
                model_class=model_class,
                device=device,
                timed=timed,
                was_timed=timed is not None,
            )
            found = judge_runs(runs)
            if _may_overflow_by_scaling(runs, found):
                return _check_with_smaller_scale(runs, found)
            return _check_what_is_hidden(runs, found)
        except CanNotCompare as reason:
            return Check(status=CheckStatus.REFERENCE_FAILED, reason=f"the results can't be compared: {reason}")
        finally:
            torch._dynamo.reset()


def _check_what_is_hidden(runs: Runs, found: Check) -> Check:
    """Check the same program under other conditions, where the finding leaves something open."""
    if _is_hidden_by_its_weights(runs, found):
        found = _check_with_milder_weights(runs, found)
    return _check_at_fp32(runs, found) if _is_hidden_by_tf32(runs, found) else found


def _otherwise(runs: Runs, **changes: Any) -> Runs:
    """Return runs of the same program under other conditions, for which results of the measured model do not count."""
    return dataclasses.replace(runs, timed=None, **changes)


def _judged_again(runs: Runs) -> Check | None:
    """Judge a program again with these runs. Return None without a finding, or if results can't be compared."""
    try:
        found = judge_runs(runs)
    except CanNotCompare:  # the host is short of memory now; the earlier finding holds
        return None
    return found if found.status in _FINDINGS else None


def _may_overflow_by_scaling(runs: Runs, found: Check) -> bool:
    """Whether gradients overflow that were scaled to be near the largest number of float16."""
    overflows = any(
        one.what is ResultKind.GRADIENTS and one.is_close is False and one.error is None for one in found.comparisons
    )
    return found.status is CheckStatus.INCORRECT and runs.scales_loss and overflows


def _check_with_smaller_scale(runs: Runs, found: Check) -> Check:
    """Check the same program with a smaller scale of the loss, where gradients overflow and eager's do not.

    A GradScaler begins with a scale so large that steps are skipped, and finds its own. Near the limit, rounding
    decides whether a gradient overflows. A gradient that is not finite for another reason is not finite here, either.
    """
    smaller = _otherwise(runs, loss_scale=runs.loss_scale / SMALLER_SCALE)
    try:
        again = _check_what_is_hidden(smaller, judge_runs(smaller))
    except CanNotCompare:
        return found
    words = f"judged with a loss scale of {smaller.loss_scale:g}, since with {runs.loss_scale:g} {found.reason}"
    return said_before(words, again) if again.status in _FINDINGS else found


def _is_hidden_by_its_weights(runs: Runs, found: Check) -> bool:
    """Whether rounding leaves many results without a judgement, in a training step that may amplify rounding."""
    loss_is_close = any(one.what is ResultKind.LOSS and one.is_close is True for one in found.comparisons)
    may_amplify = runs.case.mode is Mode.TRAIN and runs.has_raisable_biases
    return found.status not in _VERDICTS and loss_is_close and may_amplify and runs.case.backend != EAGER


def _check_with_milder_weights(runs: Runs, found: Check) -> Check:
    """Check the same program with weights that amplify rounding less, where the model's own weights leave much open.

    The loss was compared with the model's own weights before. A wrong result at TF32 is left to fp32 to decide, and
    elsewhere it does not count where rounding is still amplified.
    """
    with_raised = _otherwise(runs, raises_biases=True)
    milder = _judged_again(with_raised)
    if milder is None:
        return found
    raised = f"with the biases of its normalizations raised by {RAISED_BY:g}"
    if milder.status is CheckStatus.INCORRECT and runs.arithmetic is Precision.TF32:
        reason = f"{found.reason}; {raised}, {milder.reason}"
        return msgspec.structs.replace(found, status=CheckStatus.REFERENCE_FAILED, reason=reason)
    is_wrong = milder.status is CheckStatus.INCORRECT and not with_raised.amplifies_rounding
    if milder.status is not CheckStatus.CORRECT and not is_wrong:
        return found
    return said_before(f"judged {raised}, since with its own {found.reason}", milder)


def _is_hidden_by_tf32(runs: Runs, found: Check) -> bool:
    """Whether there are results but few or none that can be judged, in a backend's case that may use TF32."""
    has_no_verdict = found.status not in _VERDICTS and bool(found.comparisons)
    return has_no_verdict and runs.arithmetic is Precision.TF32 and runs.case.backend != EAGER


def _check_at_fp32(runs: Runs, found: Check) -> Check:
    """Check the same program at fp32, where the rounding of TF32 alone leaves nothing that can be judged.

    TF32 is too coarse for the gradients of a randomly initialised network with batch normalisation. Two runs of eager
    can also differ by more than is allowed there, because a GPU may add in another order each time. TF32 changes how
    products are rounded and nothing else. So a backend is right if it is right at fp32 and uses TF32 no more than
    eager does. Autocast and casts change the program itself: for such a case the first finding stands.

    The code that was compiled at TF32 is run, as far as possible. If it is wrong, TF32 may be built into a kernel: then
    code that is compiled at fp32 decides.
    """
    at_fp32 = _otherwise(runs, case=msgspec.structs.replace(runs.case, precision=Precision.FP32), skips_guards=True)
    finer = _judged_again(at_fp32) if at_fp32.can_reuse_code else None
    if finer is None or finer.status is CheckStatus.INCORRECT:
        finer = _judged_again(_otherwise(at_fp32, was_timed=False, was_checked=False))
    if finer is None:
        return found
    finer = said_before(f"judged at fp32, since at TF32 {found.reason}", finer)
    return msgspec.structs.replace(finer, judged_at=Precision.FP32)
