"""The check says so before results would fill the host's memory, and counts what they really take."""

from __future__ import annotations

import pytest
from classifier import Classifier, check
from torch import nn

from torchzoo.case import Mode
from torchzoo.record import CheckStatus

FROZEN = 2**21  # elements of a frozen weight


class Adapter(Classifier):
    """Most of its weights are frozen, as those below a LoRA are: what a step adds to them is zero."""

    def build_network(self) -> nn.Module:
        frozen = nn.Linear(16, FROZEN // 16, bias=False)
        frozen.requires_grad_(requires_grad=False)
        return nn.Sequential(nn.Linear(6, 16), frozen, nn.AdaptiveAvgPool1d(3))


def test_results_that_would_fill_the_hosts_memory_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchzoo.measure.check.verdicts.available_bytes", lambda: 1000)
    found = check(Classifier, Mode.TRAIN, "aot_eager")
    assert found.status is CheckStatus.REFERENCE_FAILED
    assert found.reason.startswith("the results can't be compared: they take 0.0 GiB of the host's memory, and 0.0 GiB")


def test_zeros_that_a_step_adds_to_frozen_weights_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def checked(available: int) -> CheckStatus:
        monkeypatch.setattr("torchzoo.measure.check.verdicts.available_bytes", lambda: available)
        return check(Adapter, Mode.TRAIN, "aot_eager").status

    assert checked(12 * FROZEN) is CheckStatus.CORRECT
    assert checked(7 * FROZEN) is CheckStatus.REFERENCE_FAILED  # at fp64 the frozen weight is kept while a step runs
