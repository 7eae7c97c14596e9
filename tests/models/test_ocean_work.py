"""The pyhpc models do the work of the originals: as many operators, and as many bytes moved.

The originals' figures were counted in the same way, on the meta device: the functions in the PyTorch files of
https://github.com/dionhaefner/pyhpc-benchmarks at commit d438ef8b76ecb51a019b105a6e06150e5a35c177, called as
TorchBench's models call them (without TorchScript; turbulent kinetic energy with clones of what it overwrites), on
tensors of the default batch.
"""

from __future__ import annotations

import pytest

from counted_work import CountedWork
from torchzoo.zoo.catalog import find_models, load_model_class

TOLERANCE = 0.02


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
    with CountedWork() as work:
        model.eval_step()
    assert work.operators == pytest.approx(operators, rel=TOLERANCE)
    assert work.bytes_moved == pytest.approx(bytes_moved, rel=TOLERANCE)
