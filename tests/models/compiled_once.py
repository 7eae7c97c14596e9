"""What the tests of caches assert of a compiled decode step."""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo
from torch._dynamo.testing import CompileCounterWithBackend


def assert_compiled_once(model: Any) -> None:
    """A compiled step gives what the one in eager gives, and is not compiled again."""
    torch._dynamo.reset()
    expected = model.decode_step()
    counter = CompileCounterWithBackend("eager")
    model.network.compile(backend=counter)
    for _ in range(3):
        torch.testing.assert_close(model.decode_step(), expected, rtol=1e-5, atol=1e-6)
    assert counter.frame_count == 1
