"""The pyhpc models do the work of the originals: as many operators, and as many bytes moved.

The originals' figures were counted in the same way, on the meta device: the functions of pyhpc-benchmarks' PyTorch
files, called as TorchBench's models call them (without TorchScript; turbulent kinetic energy with clones of what it
overwrites), on tensors of the default batch.
"""

from __future__ import annotations

from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode

from torchzoo.measure.passes.flops import moved_bytes
from torchzoo.zoo.catalog import find_models, load_model_class

#: https://github.com/dionhaefner/pyhpc-benchmarks
COMMIT = "d438ef8b76ecb51a019b105a6e06150e5a35c177"
TOLERANCE = 0.02


class Work(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that move bytes (a view moves none), and the bytes that they read and write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.operators = 0
        self.bytes_moved = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self:
            taken_apart = func.decompose(*args, **kwargs)
        if taken_apart is not NotImplemented:
            return taken_apart
        result = func(*args, **kwargs)
        moved = moved_bytes(func, args, kwargs, result)
        self.operators += moved > 0
        self.bytes_moved += moved
        return result


@pytest.mark.parametrize(
    ("name", "operators", "bytes_moved"),
    [
        ("pyhpc_equation_of_state", 372, 8_231_980_640),
        ("pyhpc_turbulent_kinetic_energy", 592, 4_176_577_732),
        ("pyhpc_isoneutral_mixing", 487, 9_060_304_864),
    ],
)
def test_a_step_does_the_work_of_the_original(name: str, operators: int, bytes_moved: int) -> None:
    spec = find_models().spec(name)
    model = load_model_class(spec)("eval", "meta", spec.batch_size["eval"])
    with Work() as work:
        model.eval_step()
    assert work.operators == pytest.approx(operators, rel=TOLERANCE), COMMIT
    assert work.bytes_moved == pytest.approx(bytes_moved, rel=TOLERANCE), COMMIT
