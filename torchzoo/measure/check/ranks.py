"""The check of a case with several ranks: its results, and those of ranks that share work by the simplest means.

In the reference each rank has the whole model, in eager, as one device would run it. With tensor parallelism, where all
have the same batch, that is all. Otherwise the ranks average their gradients before each update, one tensor after the
other. That is data parallelism by its definition, and uses no code of what is checked.

Nothing is dropped out, and compiled code draws the random numbers that eager draws, as in the check of one device
(`torchzoo.measure.check.runs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch._inductor.config
from torch import Tensor, distributed, nn
from torch.utils._pytree import tree_leaves

from torchzoo.case import EAGER, Case, Mode, Parallel, Precision
from torchzoo.measure.check.randomness import seed_everything, without_dropout
from torchzoo.measure.gang import Gang
from torchzoo.measure.member import Member
from torchzoo.model import gradient_norm
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Check, CheckStatus

#: Losses of so many steps are compared. The first shows the forward pass, the others the gradients.
STEPS = 4
#: By how much a loss may differ, relative to the reference. TF32 may be in `default`.
TOLERANCES = {Precision.FP64: 1e-9, Precision.FP32: 1e-4}
TOLERANCE = 0.02


def check_ranks(gang: Gang, case: Case) -> Check:
    """Compare the losses of all ranks with the reference. The measured models are given up."""
    gang.everywhere("forget")
    reference = gang.everywhere("values", "reference", STEPS)
    kinds = [EAGER_VARIANT] if case.backend == EAGER else [EAGER_VARIANT, CANDIDATE_VARIANT]
    worst = {kind: _worst(gang.everywhere("values", kind, STEPS), reference) for kind in kinds}
    tolerance = TOLERANCES.get(case.precision, TOLERANCE)
    told = ", ".join(f"{kind} {difference:.2g}" for kind, difference in worst.items())
    is_correct = max(worst.values()) <= tolerance
    return Check(
        status=CheckStatus.CORRECT if is_correct else CheckStatus.INCORRECT,
        reason=f"losses and gradients of {STEPS} steps on {case.world} ranks differ from the reference by at most "
        f"{told} of it (allowed: {tolerance:g})",
    )


def _worst(found: Sequence[Sequence[float]], reference: Sequence[Sequence[float]]) -> float:
    """The largest relative difference; infinity if something is not finite."""
    pairs = [pair for ours, theirs in zip(found, reference, strict=True) for pair in zip(ours, theirs, strict=True)]
    differences = [abs(ours - theirs) / max(abs(theirs), 1e-12) for ours, theirs in pairs]
    return max((one if one == one else float("inf")) for one in differences)


def first_values(member: Member, kind: str, steps: int) -> list[float]:
    """What one rank finds in the first steps of a new model: the loss and the norm of the gradients, or the outputs'.

    (An optimizer such as Adam hides a factor that all gradients have, so losses alone say too little.)

    `kind` is `reference`, `eager` or `candidate`. All ranks call it at the same time.
    """
    case = member.case
    is_candidate = kind == CANDIDATE_VARIANT
    if is_candidate:
        _build(member)
        member.prepare()
        member.inspect()
        calls = member.inspection
    _build(member)
    mesh = member.mesh
    if kind == "reference":
        member.mesh = None
        if case.parallel is not Parallel.TP:
            member.model.before_update = average_gradients
    try:
        member.prepare()
    finally:
        member.mesh = mesh
    found = []
    with torch._inductor.config.patch(fallback_random=True):
        if is_candidate:
            member.inspection = calls
            member.add_candidate()
        variant = member.variants[CANDIDATE_VARIANT if is_candidate else EAGER_VARIANT]
        variant.select()
        for index in range(steps):
            seed_everything(case.seed + steps * member.model.shard + index)
            found.append(value_of(variant.step()))
            if case.mode is Mode.TRAIN:
                networks = member.model.networks().values()
                found.append(float(gradient_norm(p for network in networks for p in network.parameters())))
    member.forget()
    return found


def _build(member: Member) -> None:
    member.build()
    without_dropout(member.model)


def value_of(result: Any) -> float:
    """One number of a step's result: the loss, or the mean magnitude of the outputs."""
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    whole = [leaf.full_tensor() if hasattr(leaf, "full_tensor") else leaf for leaf in leaves]
    if len(whole) == 1 and whole[0].numel() == 1:
        return float(whole[0])
    return float(torch.stack([leaf.detach().double().abs().mean() for leaf in whole]).mean())


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace each gradient by its mean over all ranks."""
    for parameter in parameters:
        if parameter.grad is not None:
            distributed.all_reduce(parameter.grad)
            parameter.grad /= distributed.get_world_size()
