"""Operators by shapes: what belongs together, whose time a kernel's is, and a real step on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from measuring import measure
from torch._C._autograd import DeviceType

from torchzoo.case import Mode
from torchzoo.measure.passes import op_shapes
from torchzoo.measure.passes.op_shapes import calls_on_a_device, calls_on_the_cpu, operator_shapes
from torchzoo.record import Operand
from torchzoo.settings import Pass

FLOAT = Operand("float32", (4, 8))


class Event:
    """One of kineto's events: of an operator, or of a kernel that the operator `linked` started."""

    def __init__(self, name: str, begin_ns: int, duration_ns: int, **facts: Any) -> None:
        self._facts = {
            "name": name,
            "start_ns": begin_ns,
            "duration_ns": duration_ns,
            "device_type": DeviceType.CUDA if "linked" in facts else DeviceType.CPU,
            "correlation_id": facts.get("number", 0),
            "linked_correlation_id": facts.get("linked", 0),
            "shapes": [list(one.shape) for one in facts.get("operands", ())],
            "dtypes": ["float" for _ in facts.get("operands", ())],
            "start_thread_id": 1,
            "is_user_annotation": False,
        }

    def __getattr__(self, name: str) -> Any:
        if name in self._facts:
            return lambda: self._facts[name]
        raise AttributeError(name)


def test_kernels_count_for_the_operator_that_started_them() -> None:
    calls = calls_on_a_device(
        [
            Event("aten::linear", 0, 90, number=1, operands=(FLOAT,)),
            Event("aten::addmm", 10, 50, number=2, operands=(FLOAT, FLOAT)),
            Event("cudaDeviceSynchronize", 60, 5, number=2),  # the runtime counts for itself
            Event("gemm", 100, 30, number=7, linked=2),
            Event("splitk", 130, 12, number=8, linked=2),
            Event("triton_poi_fused_0", 70, 5, number=3, operands=(FLOAT,)),
            Event("triton_poi_fused_0", 150, 20, number=9, linked=3),
            Event("graph_node", 180, 8, linked=0),
        ]
    )
    found = operator_shapes(calls, [(0, 200)])
    assert [(one.name, one.operands, one.calls, round(one.total_s * 1e9)) for one in found.operators] == [
        ("aten::addmm", (FLOAT, FLOAT), 1, 42),
        ("triton_poi_fused_0", (FLOAT,), 1, 20),
        ("graph_node", (), 1, 8),
    ]


def test_on_the_cpu_an_operator_has_its_own_time() -> None:
    events = [
        Event("aten::linear", 0, 100, operands=(FLOAT,)),
        Event("aten::addmm", 10, 70, operands=(FLOAT, FLOAT)),
        Event("autograd::engine::evaluate_function: X", 200, 50),
    ]
    times = {call.name: call.time_ns for call in calls_on_the_cpu(events)}
    assert times == {"aten::linear": 30, "aten::addmm": 70}


def test_only_what_the_kept_steps_did_is_added_up_and_the_rest_is_summed() -> None:
    other = Operand("float32", (1,))
    calls = [op_shapes._Call("a", (FLOAT,), begin_ns, 7) for begin_ns in (5, 15, 99)]
    calls += [op_shapes._Call("a", (other,), 16, 9), op_shapes._Call("b", (), 17, 1)]
    found = operator_shapes(calls, [(10, 20), (20, 99)], most=1)
    assert found.steps == 2
    [longest] = found.operators
    assert (longest.operands, longest.calls, longest.total_s) == ((other,), 1, 9e-9)
    assert (found.others, found.others_calls, found.others_s) == (2, 2, 8e-9)
    assert found.total_s == pytest.approx(17e-9)


def test_nothing_seen_is_said() -> None:
    assert operator_shapes([], [(0, 1)]).problem == "torch.profiler saw nothing run"


def test_the_operators_of_a_training_step_on_the_cpu(tmp_path: Path) -> None:
    measured = measure(tmp_path, mode=Mode.TRAIN, ask=(Pass.OP_SHAPES,))
    found = measured.variants["eager"].operator_shapes
    assert found is not None
    assert found.steps >= 1
    assert not found.others
    by_operator = {(one.name, one.operands): one for one in found.operators}
    conv = by_operator["aten::conv2d", tuple(Operand("float32", shape) for shape in ((4, 3, 4, 4), (2, 3, 3, 3), (2,)))]
    assert conv.calls == found.steps
    loss = next(one for one in found.operators if one.name == "aten::nll_loss_forward")
    assert [operand.dtype for operand in loss.operands] == ["float32", "int64"]
    assert not any(one.name.startswith("autograd::") for one in found.operators)


def test_dtypes_have_torchs_names() -> None:
    names = {str(getattr(torch, name)).removeprefix("torch.") for name in op_shapes._DTYPES.values()}
    assert names == set(op_shapes._DTYPES.values())
    found = []
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int8, torch.uint8, torch.bool):
        x = torch.ones(3, dtype=dtype)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], record_shapes=True) as profiled:
            x.clone()
        events = profiled.profiler.kineto_results.events()
        found += [call.operands[0].dtype for call in calls_on_the_cpu(events) if call.name == "aten::clone"]
    assert found == ["float16", "bfloat16", "float64", "int32", "int8", "uint8", "bool"]
