"""What passes find of the operators of a step: which it uses, and what they take and how long. A part of a record."""

from __future__ import annotations

import msgspec

from torchzoo.bounds import Count, PositiveCount, Seconds


class ApiSurface(msgspec.Struct, frozen=True, kw_only=True):
    """What one eager step uses of PyTorch: functions (`torch.nn.functional.linear`) and operators (`aten::mm`)."""

    functions: tuple[str, ...]
    operators: tuple[str, ...]
    reason: str = ""  # why names are missing, where the step could not be watched


class Operand(msgspec.Struct, frozen=True, array_like=True):
    """A tensor that an operator takes. A list of tensors has the dtype `list`, and its length as its shape."""

    dtype: str  # as torch names it: `bfloat16`
    shape: tuple[Count, ...]


class OperatorCalls(msgspec.Struct, frozen=True, array_like=True):
    """All calls of one operator with operands of the same shapes and dtypes, over all profiled steps."""

    name: str  # of the operator; of a kernel that no operator started, the kernel's
    operands: tuple[Operand, ...]
    calls: PositiveCount
    total_s: Seconds  # of the kernels that it started; on the CPU its own time, without the operators inside it


class OperatorShapes(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of a variant that take time, the longest first."""

    steps: Count  # that were profiled; 0 where the profiler could not tell, and then `problem` says why
    operators: tuple[OperatorCalls, ...] = ()
    others: Count = 0  # how many more combinations of operator and operands there are
    others_calls: Count = 0
    others_s: Seconds = 0.0  # their time
    problem: str = ""

    @property
    def total_s(self) -> float:
        """The time of all operators over all profiled steps."""
        return sum(one.total_s for one in self.operators) + self.others_s
