"""The operators of a run with shapes, dtypes, calls and shares of time, as JSON Lines: for those who write kernels.

A line is one operator with operands of the same shapes and dtypes, in one variant of one case. Lines of a variant stand
together, the longest time first.
- `model`, the axes (`mode`, `device`, `backend`, `precision` ...) and `repeat` are the case; `device_name` is where it
  ran.
- `variant` is `eager` or `candidate` (what the backend made of it).
- `operator` is a name such as `aten::addmm`; of a kernel that no operator started, the kernel's. `null` stands for all
  that a record does not list.
- `shapes` and `dtypes` are those of the tensors that it takes, in order. A list of tensors is `list`, with its length.
- `calls_per_step` and `time_per_step_s` are means over the profiled steps; `share` is the part of the time of all
  operators of that variant. On a device, time is that of kernels, otherwise the operator's own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from torchzoo.record import Measured, OperatorCalls, OperatorShapes
from torchzoo.store import Run


def op_shapes(run: Run) -> str:
    """The run as JSON Lines; empty if no case was profiled with `--op-shapes`."""
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in _lines(run))


def _lines(run: Run) -> Iterator[dict[str, Any]]:
    for record in run.records:
        if not isinstance(record.outcome, Measured):
            continue
        case = msgspec.to_builtins(record.case) | {"backend": str(record.case.backend)}
        for variant, result in record.outcome.variants.items():
            found = result.operator_shapes
            if found is None or not found.steps:
                continue
            about = {**case, "device_name": record.outcome.device_name, "variant": variant}
            yield from ({**about, **line} for line in _operators(found))


def _operators(found: OperatorShapes) -> Iterator[dict[str, Any]]:
    yield from (_line(found, one.name, one) for one in found.operators)
    if found.others:
        rest = OperatorCalls("", (), found.others_calls, found.others_s)
        yield _line(found, None, rest) | {"shapes": None, "dtypes": None}


def _line(found: OperatorShapes, operator: str | None, one: OperatorCalls) -> dict[str, Any]:
    return {
        "operator": operator,
        "shapes": [list(operand.shape) for operand in one.operands],
        "dtypes": [operand.dtype for operand in one.operands],
        "calls_per_step": one.calls / found.steps,
        "time_per_step_s": one.total_s / found.steps,
        "share": one.total_s / found.total_s if found.total_s else 0.0,
    }
