"""The passes of a case beside time and memory, each with steps of its own.

A pass is a module here with a function `measure` (see `MeasurePass`), and a row of `PASSES`. A case runs the rows in
their order, each for all its variants: first the rows of the window, in which the case is measured alone, then the
others, while other cases run. The check comes last, on models of its own (`torchzoo.measure.check`).

To add a pass that a user asks for: its module and its row here, its name and help in `torchzoo.settings.Pass` (the
option of `torchzoo run` is made from it), and its field in `torchzoo/record.py`. Its figures are entries of `FIGURES`
in `torchzoo/analysis/frame.py`; lines of its own in the report of a case stand in `torchzoo/report/one_case.py`.

`measured_peaks` measures devices, not a case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from torchzoo import backends
from torchzoo.case import Case
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured, RankResult, VariantResult
from torchzoo.settings import Pass, Settings

if TYPE_CHECKING:
    from torchzoo.measure.case_ranks import CaseRanks
    from torchzoo.measure.clock import DeviceClock
    from torchzoo.measure.variant import Variant

#: Values of fields of the record, by name: of `VariantResult`, of `Measured`, or (in a list over the ranks) of
#: `RankResult`.
Fields = Mapping[str, Any]
FIELDS = frozenset(name for one in (VariantResult, Measured, RankResult) for name in one.__struct_fields__)


def only_of(struct: type[msgspec.Struct], fields: Fields) -> dict[str, Any]:
    """Return the values of the fields that this struct of the record has."""
    return {name: value for name, value in fields.items() if name in struct.__struct_fields__}


@dataclass(frozen=True, kw_only=True)
class PassContext:
    """A variant that is selected and warm, and what a pass needs to measure its steps."""

    ranks: CaseRanks
    variant: Variant
    step_s: float  # the time of a steady step
    clock: DeviceClock  # of the devices of all ranks
    settings: Settings


class MeasurePass(Protocol):
    """The function `measure` of a pass."""

    def __call__(self, context: PassContext, /) -> Fields | Callable[[], Fields]:
        """Measure one variant. A function that is returned is called when no other case waits for this one."""
        ...


@dataclass(frozen=True, kw_only=True)
class PassRow:
    """A pass, and when it is run. Its module is imported only then, so that it costs other cases nothing."""

    module: str
    when: Callable[[Case, Settings], bool]
    in_window: bool = False  # whether other cases are stopped meanwhile
    variants: tuple[str, ...] = (EAGER_VARIANT, CANDIDATE_VARIANT)

    def load(self) -> MeasurePass:
        """Import the module, and return its function `measure`."""
        measure: MeasurePass = import_module(f"{__name__}.{self.module}").measure
        return measure


def _asked(*passes: Pass) -> Callable[[Case, Settings], bool]:
    return lambda _, settings: not set(passes).isdisjoint(settings.passes)


#: Energy comes first, because the profiler of later rows leaves hooks in the process.
PASSES = (
    PassRow(module="energy", when=_asked(Pass.ENERGY), in_window=True),
    PassRow(module="breakdown", when=_asked(Pass.BREAKDOWN), in_window=True),
    PassRow(module="device_work", when=lambda case, _: case.device_type != "cpu", in_window=True),
    PassRow(module="op_shapes", when=_asked(Pass.OP_SHAPES), in_window=True),
    PassRow(module="communication", when=lambda case, _: case.world > 1, in_window=True),
    PassRow(module="counts", when=lambda *_: True),
    PassRow(module="leak", when=_asked(Pass.LEAK_CHECK)),
    PassRow(
        module="coverage",
        when=lambda case, _: backends.info(case.backend.name).uses_dynamo,
        variants=(CANDIDATE_VARIANT,),
    ),
    PassRow(module="flops", when=_asked(Pass.FLOPS, Pass.CHECK)),  # a report compares the variants' work with the check
    PassRow(module="api", when=_asked(Pass.API), variants=(EAGER_VARIANT,)),
)
