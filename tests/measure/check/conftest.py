"""What the tests of the check share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from torchzoo.case import Precision
from torchzoo.measure.check.runs import Runs


@pytest.fixture
def backend() -> Any:
    """A function that registers `compiler(graph_module, inputs)` as a Dynamo backend and returns its name."""
    import torch._dynamo

    names: list[str] = []

    def register(compiler: Callable[..., Any]) -> str:
        name = f"torchzoo_test_{compiler.__name__}"
        torch._dynamo.register_backend(compiler, name=name)
        names.append(name)
        return name

    yield register
    for name in names:
        torch._dynamo.backends.registry._COMPILER_FNS.pop(name, None)
    torch._dynamo.reset()


@pytest.fixture
def _a_device_with_tf32(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case at the default precision may use TF32."""
    arithmetic = {Precision.DEFAULT: Precision.TF32, Precision.FP32: Precision.FP32}
    monkeypatch.setattr(Runs, "arithmetic", property(lambda runs: arithmetic[runs.case.precision]))
