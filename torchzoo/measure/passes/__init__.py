"""The passes that a run may ask for in addition to time and memory, each with steps of its own.

In the window in which the case is measured alone, after the timing:
- energy, of each variant;
- the breakdown if it was asked for, and the device's work in one step, of each variant. They follow all energy passes,
  because the profiler leaves its hooks in the process;
- the operators with their shapes, of each variant;
- the communication of each rank, of cases with several ranks.

After the window, while other cases may run:
- growth of memory (the leak check), of each variant;
- the operators that the candidate left to eager, always where Dynamo is behind the backend;
- FLOPs, then the API surface, of eager's step; FLOPs of the graphs that Dynamo captured for the candidate;
- the check, last: first of the code that was timed, on the measured model, then on models of its own.

To add a pass, add a module and a function here, a member of `Pass` in `torchzoo/settings.py` (its option of `torchzoo
run` is made from it, with a help text in `torchzoo/commands/options.py`), a field in `torchzoo/record.py`, a call
in `torchzoo/measure/measure_case.py`, and its lines in `torchzoo/report/one_case.py`.

`measured_peaks` measures a device, not a case.

A function here must not have the name of a module of this package: importing the module would replace it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from torchzoo import backends
from torchzoo.case import Case
from torchzoo.files import safe_name
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.variant import Variant
from torchzoo.model import Model
from torchzoo.record import ApiSurface, Breakdown, Check, Coverage, Energy, Flops, Growth, OperatorShapes
from torchzoo.settings import Pass, Settings
from torchzoo.zoo.spec import ModelSpec

if TYPE_CHECKING:
    from torchzoo.measure.case_rank import CaseRank
    from torchzoo.measure.case_ranks import CaseRanks
    from torchzoo.measure.check.runs import TimedRuns
    from torchzoo.measure.passes.breakdown import DeviceWork
    from torchzoo.measure.passes.communication import Communication


def energy_of(
    variant: Variant, settings: Settings, devices: Sequence[torch.device], clock: DeviceClock, step_s: float
) -> Energy | None:
    """Measure the energy of steps on the devices of all ranks; None if it was not asked for."""
    if Pass.ENERGY not in settings.passes:
        return None
    from torchzoo.measure.passes.energy import measure_energy

    variant.select()
    return measure_energy(variant.step, clock, devices, step_s=step_s)


def breakdown_of(
    variant: Variant, case: Case, settings: Settings, device: torch.device, clock: DeviceClock, step_s: float
) -> Breakdown | None:
    """Measure where the wall time of steps goes; None if it was not asked for."""
    if Pass.BREAKDOWN not in settings.passes:
        return None
    from torchzoo.measure.passes.breakdown import measure_breakdown

    variant.select()
    trace = _trace_path(settings.trace_dir, case, variant)
    return measure_breakdown(variant.step, clock, device, step_s=step_s, trace=trace)


def operator_shapes_of(
    variant: Variant, settings: Settings, device: torch.device, clock: DeviceClock, step_s: float
) -> OperatorShapes | None:
    """Profile the operands and times of operators, in steps of their own; None if it was not asked for."""
    if Pass.OP_SHAPES not in settings.passes:
        return None
    from torchzoo.measure.passes.op_shapes import measure_operator_shapes

    variant.select()
    return measure_operator_shapes(variant.step, clock, device, step_s=step_s)


def device_work_of(variant: Variant, device: torch.device, clock: DeviceClock) -> Callable[[], DeviceWork | None]:
    """Profile a step. Return a function that returns the device's work in that step, or None where it is not known."""
    from torchzoo.measure.passes.breakdown import measure_device_work

    variant.select()
    return measure_device_work(variant.step, clock, device)


def communication_of(ranks: CaseRanks, variant: Variant, step_s: float) -> list[Communication]:
    """Measure the collectives of each rank; empty if there is one rank, or the profiler can't see them."""
    if ranks.size == 1:
        return []
    from torchzoo.measure.case_rank import CaseRank
    from torchzoo.measure.passes.communication import steps_that_fit

    found = ranks.everywhere(CaseRank.communication, variant.name, steps_that_fit(step_s))
    return [one for one in found if one is not None]


def growth_of(
    variant: Variant, settings: Settings, device: torch.device, clock: DeviceClock, step_s: float
) -> Growth | None:
    """Measure the memory in use over many steps; None if the leak check was not asked for."""
    if Pass.LEAK_CHECK not in settings.passes:
        return None
    from torchzoo.measure.passes.leak import measure_growth

    variant.select()
    return measure_growth(variant.step, clock, device, step_s=step_s)


def counts_work(settings: Settings) -> bool:
    """Whether the work of steps is counted: for its own pass, or for the check, which compares the variants' work."""
    return bool({Pass.FLOPS, Pass.CHECK} & set(settings.passes))


def captured_work_of(ranks: CaseRanks, model: Model, settings: Settings) -> Flops | None:
    """Count the work of the graphs that Dynamo captures for the case's backend; None if it was not asked for."""
    case = ranks.own.case
    if not counts_work(settings) or ranks.size > 1 or not backends.info(case.backend.name).uses_dynamo:
        return None
    from torchzoo.measure.passes.flops import count_captured_work

    return count_captured_work(model, model.measured_step, case)


def coverage_of(case: Case, eager: Variant, candidate: Variant, modules: Sequence[nn.Module]) -> Coverage | None:
    """Count the operators of the modules to compile that ran in eager; None if Dynamo compiles none of the modules."""
    if candidate is eager or not backends.info(case.backend.name).uses_dynamo:
        return None
    from torchzoo.measure.passes.coverage import measure_coverage

    return measure_coverage(eager, candidate, modules)


def flops_and_api_of(step: Callable[[], Any], settings: Settings) -> tuple[Flops | None, ApiSurface | None]:
    """Count the work of one eager step, and list what the step uses of PyTorch. The caller has selected eager."""
    flops, api = None, None
    if counts_work(settings):
        from torchzoo.measure.passes.flops import count_work

        flops = count_work(step)
    if Pass.API in settings.passes:
        from torchzoo.measure.passes.api import step_api

        api = step_api(step)
    return flops, api


def timed_runs_of(own: CaseRank) -> TimedRuns:
    """Return the results of the code that was timed, from the start of the measured model, which must still exist."""
    from torchzoo.measure.check.runs import timed_runs

    return timed_runs(own)


def check_of(
    case: Case,
    spec: ModelSpec,
    model_class: type[Model],
    device: torch.device,
    timed: TimedRuns | None,
) -> Check:
    """Check whether the case computes what eager computes. `timed` has results of the code that was timed, if any."""
    from torchzoo.measure.check.check_case import check_case

    return check_case(case, spec, model_class, device, timed=timed)


def check_ranks_of(ranks: CaseRanks, case: Case) -> Check:
    """Check whether ranks compute what one device computes."""
    from torchzoo.measure.check.check_ranks import check_ranks

    return check_ranks(ranks, case)


def _trace_path(trace_dir: str | None, case: Case, variant: Variant) -> Path | None:
    if trace_dir is None:
        return None
    return Path(trace_dir) / f"{safe_name(f'{case.label()} {variant.name}')}.json"
