"""Check a case with several ranks against ranks that share the work by the simplest means.

In the reference each rank has the whole model, in eager, as one device would run it. With tensor parallelism, where all
ranks have the same batch, nothing more is needed. Otherwise the ranks average their gradients before each update, one
tensor after the other: data parallelism by its definition, without any code that is checked.

Dropout is off, and compiled code draws the random numbers that eager draws, as in the check of one device
(`torchzoo.measure.check.runs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed, nn

from torchzoo.case import EAGER, Case, Mode, Parallel, ResultKind
from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.case_ranks import CaseRanks
from torchzoo.measure.check.randomness import (
    compiled_draws_as_eager,
    generator_states,
    has_drawn,
    seed_everything,
    without_dropout,
)
from torchzoo.measure.check.tolerances import coarsest_precision, tolerance_of
from torchzoo.model import gradient_norm
from torchzoo.model.tensors import stored_numbers, tensors_in
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Check, CheckStatus

#: The number of steps that are compared.
STEPS = 4
#: The numbers by which an output is compared. Each depends on all elements, their signs and their order.
NUMBERS = 3
#: The scale of a GradScaler: gradients must not overflow, since then there is nothing to compare.
LOSS_SCALE = 2.0**10
#: The parts of results that are compared, in training or not: a name, a slice of the numbers from `first_values`, and
#: the kind of result whose tolerance applies. Losses after the first one depend on gradients.
PARTS = {
    True: (
        ("the first loss", slice(0, 1), ResultKind.LOSS),
        ("gradients and later losses", slice(1, None), ResultKind.GRADIENTS),
    ),
    False: (("outputs", slice(0, None), ResultKind.OUTPUTS),),
}


def check_ranks(ranks: CaseRanks, case: Case) -> Check:
    """Compare losses and norms of gradients of all ranks with the reference. The measured models are dropped."""
    own = ranks.own
    precision = coarsest_precision(case.precision, own.spec.native_dtype, own.device)
    ranks.everywhere(CaseRank.forget)
    reference = ranks.everywhere(first_values, "reference", STEPS)
    kinds = [EAGER_VARIANT] if case.backend == EAGER else [EAGER_VARIANT, CANDIDATE_VARIANT]
    is_correct = True
    told = []
    for kind in kinds:
        found = ranks.everywhere(first_values, kind, STEPS)
        for name, part, result in PARTS[case.mode is Mode.TRAIN]:
            ours, theirs = ([value for rank in ranks for value in rank[part]] for ranks in (found, reference))
            difference, allowed = largest_difference(ours, theirs), tolerance_of(result, precision)
            is_correct &= difference <= allowed
            told.append(f"{kind} {difference:.2g} in {name} (allowed {allowed:g})")
    return Check(
        status=CheckStatus.CORRECT if is_correct else CheckStatus.INCORRECT,
        steps=STEPS,
        compiled_anew="" if case.backend == EAGER else "what several ranks share is built anew for the check",
        reason=f"relative differences from the reference in {STEPS} steps on {case.world} ranks: {', '.join(told)}",
    )


def largest_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the largest difference relative to the reference; infinity if a number is not finite."""
    differences = [abs(our - their) / max(abs(their), 1e-12) for our, their in zip(ours, theirs, strict=True)]
    return max((one if one == one else float("inf")) for one in differences)


def first_values(own: CaseRank, kind: str, steps: int) -> list[float]:
    """Return one rank's numbers of the first steps of a new model: losses and norms of gradients, or those of outputs.

    (An optimizer such as Adam hides a factor that all gradients have, so losses alone are too little.)

    `kind` is `reference`, `eager` or `candidate`. All ranks call this function at the same time.
    """
    case = own.case
    is_candidate = kind == CANDIDATE_VARIANT
    draws_random = True
    if is_candidate:
        _build(own)
        own.prepare()
        before = generator_states(own.device)
        own.inspect()
        draws_random = has_drawn(before, own.device)
        calls = own.inspection
    _build(own)
    mesh = own.mesh
    if kind == "reference":
        own.mesh = None
        if case.parallel is not Parallel.TP:
            own.model.before_update = average_gradients
    try:
        own.prepare()
    finally:
        own.mesh = mesh
    found = []
    with compiled_draws_as_eager(if_draws=draws_random):
        if is_candidate:
            own.inspection = calls
            own.add_candidate()
        variant = own.variants[CANDIDATE_VARIANT if is_candidate else EAGER_VARIANT]
        variant.select()
        for index in range(steps):
            seed_everything(case.seed + steps * own.model.shard + index)
            found += numbers_of(variant.step())
            if case.mode is Mode.TRAIN:
                networks = own.model.networks().values()
                found.append(float(gradient_norm(p for network in networks for p in network.parameters())))
    own.forget()
    return found


def _build(own: CaseRank) -> None:
    own.build()
    without_dropout(own.model)
    if own.model.scaler is not None:
        own.model.scaler = torch.amp.GradScaler(own.device.type, init_scale=LOSS_SCALE)


def numbers_of(result: Any) -> list[float]:
    """Return numbers of a step's result: the loss, or some of each output.

    A number of an output is four times its norm, plus the sum of its elements with random signs, which is about as
    large as its norm. So it is not near zero, and another sign or another order of the elements changes it.
    """
    whole: list[Tensor] = [leaf.full_tensor() if hasattr(leaf, "full_tensor") else leaf for leaf in tensors_in(result)]
    outputs = [stored_numbers(leaf.detach()).double() for leaf in whole]
    if len(outputs) == 1 and outputs[0].numel() == 1:
        return [float(outputs[0])]
    generator = torch.Generator().manual_seed(0)
    numbers = []
    for output in outputs:
        flat = output.reshape(-1)
        for _ in range(NUMBERS):
            signs = torch.randint(0, 2, flat.shape, generator=generator, dtype=torch.int8, device="cpu")
            numbers.append(float(4 * flat.norm() + (flat * (2 * signs.to(flat.device) - 1)).sum()))
    return numbers


def average_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Replace each gradient by its mean over all ranks."""
    for parameter in parameters:
        if parameter.grad is not None:
            distributed.all_reduce(parameter.grad)
            parameter.grad /= distributed.get_world_size()
