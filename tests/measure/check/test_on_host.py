"""A step at fp64 that the device has too little memory for keeps its activations on the host, and computes the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from classifier import Classifier, check, has_a_wrong_gradient, with_network
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.measure.check import reference
from torchzoo.measure.check.reference import activations_on_host
from torchzoo.record import CheckStatus


def test_large_activations_go_and_gradients_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "SMALLEST_BYTES", 8 * 100)
    asked: list[int] = []  # once for each tensor that goes to the host

    def available_bytes() -> int:
        asked.append(len(asked))
        return 2**60

    monkeypatch.setattr(reference, "available_bytes", available_bytes)
    weight = torch.randn(10, 10, dtype=torch.double, requires_grad=True)
    x, small = torch.randn(20, 10, dtype=torch.double), torch.randn(3, 10, dtype=torch.double)

    def gradients() -> tuple[Tensor, ...]:
        y = torch.tanh(x @ weight)  # the result of tanh and x are kept
        first = torch.autograd.grad(y.sum() + torch.tanh(small @ weight).sum(), weight, create_graph=True)
        return *first, *torch.autograd.grad(first[0].square().sum(), weight)

    expected = gradients()
    assert asked == []
    with activations_on_host():
        found = gradients()
    assert len(asked) >= 2
    assert all(map(torch.equal, expected, found))


def test_a_host_that_would_be_full_ends_the_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "LEFT_FREE_BYTES", 2**60)
    x = torch.ones(2**18, requires_grad=True)
    with activations_on_host(), pytest.raises(MemoryError, match="too little memory"):
        torch.tanh(x * 2)


class _NeedsTheHost(nn.Module):
    """At fp64 it runs only where autograd gives what it keeps to somebody."""

    def __init__(self) -> None:
        super().__init__()
        self.network = Classifier.build_network(None)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)  # noqa: FBT003  it has no name
        if x.dtype is torch.float64 and hooks is None:
            raise torch.OutOfMemoryError("no GiB free")
        return self.network(x)  # type: ignore[no-any-return]


NeedsTheHost = with_network(_NeedsTheHost)


def test_a_reference_that_fits_with_the_hosts_help_judges(backend: Callable[..., str]) -> None:
    found = check(NeedsTheHost, Mode.TRAIN, "aot_eager")
    assert (found.status, found.reason) == (CheckStatus.CORRECT, "")
    assert check(NeedsTheHost, Mode.TRAIN, backend(has_a_wrong_gradient)).status is CheckStatus.INCORRECT


def test_a_reference_that_does_not_fit_either_way_says_what_the_device_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "LEFT_FREE_BYTES", 2**60)
    monkeypatch.setattr(reference, "SMALLEST_BYTES", 0)
    found = check(NeedsTheHost, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.REFERENCE_FAILED
    assert found.reason.startswith("in fp64 it raises OutOfMemoryError: no GiB free; it agrees with eager")
