"""Where TF32 leaves nothing to judge by, the same program is judged at fp32."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from classifier import AlwaysDropping, Classifier, Compilers, adds_a_half, check, timed_and_checked
from torch import Tensor, nn

from torchzoo.case import Mode, Precision
from torchzoo.record import CheckStatus


class Steep(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(1000 * x)


class Chaotic(Classifier):
    """Rounding to TF32 decides its results; rounding to fp32 hardly changes them."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 3), Steep())


def rounds_where_tf32_is_allowed(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """Changes results as a device with TF32 would, but not at fp32."""
    return lambda *args: tuple(out + 0.5 * torch.backends.cudnn.allow_tf32 for out in graph(*args))


@pytest.mark.usefixtures("_a_device_with_tf32")
@pytest.mark.parametrize(
    ("compiler", "status"),
    [(rounds_where_tf32_is_allowed, CheckStatus.CORRECT), (adds_a_half, CheckStatus.INCORRECT)],
)
def test_where_tf32_leaves_nothing_to_judge_by_the_same_program_is_judged_at_fp32(
    backend: Callable[..., str],
    compiler: Callable[..., Any],
    status: CheckStatus,
) -> None:
    found = check(Chaotic, Mode.EVAL, backend(compiler))
    assert (found.status, found.judged_at) == (status, Precision.FP32)
    assert found.reason.startswith("judged at fp32, since at TF32 nothing to judge by: outputs")
    assert ("; outputs: output is off by" in found.reason) == (status is CheckStatus.INCORRECT)


class Restless(Classifier):
    """Where TF32 is allowed, no two of its steps give the same result; elsewhere they do."""

    steps = itertools.count()

    def eval_step(self) -> Tensor:
        logits: Tensor = super().eval_step()
        has_tf32 = torch.backends.cudnn.allow_tf32 and logits.dtype is torch.float32
        return logits + next(self.steps) if has_tf32 else logits


@pytest.mark.usefixtures("_a_device_with_tf32")
@pytest.mark.parametrize(("compiler", "status"), [(None, CheckStatus.CORRECT), (adds_a_half, CheckStatus.INCORRECT)])
def test_where_two_runs_of_eager_agree_at_fp32_alone_the_backend_is_judged_there(
    backend: Callable[..., str],
    compiler: Callable[..., Any] | None,
    status: CheckStatus,
) -> None:
    found = check(Restless, Mode.EVAL, "aot_eager" if compiler is None else backend(compiler))
    assert (found.status, found.judged_at) == (status, Precision.FP32)
    assert found.reason.startswith("judged at fp32, since at TF32 two runs of eager from the same seed differ")
    alone = check(Restless, Mode.EVAL)
    assert (alone.status, alone.judged_at) == (CheckStatus.NONDETERMINISTIC, None)


def test_other_precisions_than_tf32_are_not_judged_by_fp32(backend: Callable[..., str]) -> None:
    found = check(Chaotic, Mode.EVAL, backend(adds_a_half), precision=Precision.BF16)
    assert (found.status, found.judged_at) == (CheckStatus.REFERENCE_FAILED, None)


def rounds_where_tf32_was_allowed(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """As a kernel does that has TF32 built in."""
    rounded = 0.5 * torch.backends.cudnn.allow_tf32
    return lambda *args: tuple(out + rounded for out in graph(*args))


@pytest.mark.usefixtures("_a_device_with_tf32")
@pytest.mark.parametrize(
    ("compiler", "graphs"), [(rounds_where_tf32_is_allowed, 1), (rounds_where_tf32_was_allowed, 2)]
)
def test_the_code_that_was_timed_at_tf32_runs_at_fp32_and_is_compiled_anew_where_it_looks_wrong(
    backend: Callable[..., str], compiler: Callable[..., Any], graphs: int
) -> None:
    compilers = Compilers(backend, compiler)
    found = timed_and_checked(Chaotic, Mode.EVAL, compilers.name)
    assert (found.status, found.judged_at) == (CheckStatus.CORRECT, Precision.FP32), found
    assert compilers.graphs == graphs


class ChaoticWithDropout(Chaotic):
    def build_network(self) -> nn.Module:
        return nn.Sequential(super().build_network(), AlwaysDropping())


@pytest.mark.usefixtures("_a_device_with_tf32")
def test_what_the_check_compiled_at_tf32_runs_at_fp32(backend: Callable[..., str]) -> None:
    compilers = Compilers(backend, rounds_where_tf32_is_allowed)
    found = timed_and_checked(ChaoticWithDropout, Mode.EVAL, compilers.name)
    assert (found.status, found.judged_at) == (CheckStatus.CORRECT, Precision.FP32), found
    assert compilers.graphs == 2  # the one that was timed drops out
