"""The passes that a run may ask for beside time and memory. Each has steps of its own.

In the window in which the case is measured alone, after the timing:
- energy, of each variant;
- the breakdown where it was asked for, and the device's work in one step, of each variant. They come after all
  energy, because the profiler leaves its hooks in the process;
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

`measured_peaks` is not of a case: it measures a device.

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
    """The energy that the devices of all ranks take for steps; None where it was not asked for."""
    if Pass.ENERGY not in settings.passes:
        return None
    from torchzoo.measure.passes.energy import measure_energy

    variant.select()
    return measure_energy(variant.step, clock, devices, step_s=step_s)


def breakdown_of(
    variant: Variant, case: Case, settings: Settings, device: torch.device, clock: DeviceClock, step_s: float
) -> Breakdown | None:
    """Where the wall time of steps goes; None where it was not asked for."""
    if Pass.BREAKDOWN not in settings.passes:
        return None
    from torchzoo.measure.passes.breakdown import measure_breakdown

    variant.select()
    trace = _trace_path(settings.trace_dir, case, variant)
    return measure_breakdown(variant.step, clock, device, step_s=step_s, trace=trace)


def operator_shapes_of(
    variant: Variant, settings: Settings, device: torch.device, clock: DeviceClock, step_s: float
) -> OperatorShapes | None:
    """What operators take and how long, in steps that are profiled for it; None where it was not asked for."""
    if Pass.OP_SHAPES not in settings.passes:
        return None
    from torchzoo.measure.passes.op_shapes import measure_operator_shapes

    variant.select()
    return measure_operator_shapes(variant.step, clock, device, step_s=step_s)


def device_work_of(variant: Variant, device: torch.device, clock: DeviceClock) -> Callable[[], DeviceWork | None]:
    """A function that gives what the device does in a step, which is profiled now; None where that is not known."""
    from torchzoo.measure.passes.breakdown import measure_device_work

    variant.select()
    return measure_device_work(variant.step, clock, device)


def communication_of(ranks: CaseRanks, variant: Variant, step_s: float) -> list[Communication]:
    """What each rank does in its collectives; nothing where there is one rank, or the profiler can't tell."""
    if ranks.size == 1:
        return []
    from torchzoo.measure.case_rank import CaseRank
    from torchzoo.measure.passes.communication import steps_that_fit

    found = ranks.everywhere(CaseRank.communication, variant.name, steps_that_fit(step_s))
    return [one for one in found if one is not None]


def growth_of(
    variant: Variant, settings: Settings, device: torch.device, clock: DeviceClock, step_s: float
) -> Growth | None:
    """Memory in use over many steps; None where the leak check was not asked for."""
    if Pass.LEAK_CHECK not in settings.passes:
        return None
    from torchzoo.measure.passes.leak import measure_growth

    variant.select()
    return measure_growth(variant.step, clock, device, step_s=step_s)


def counts_work(settings: Settings) -> bool:
    """Whether the work of steps is counted: it was asked for, or the check compares that of the variants."""
    return bool({Pass.FLOPS, Pass.CHECK} & set(settings.passes))


def captured_work_of(ranks: CaseRanks, model: Model, settings: Settings) -> Flops | None:
    """The work of the graphs that Dynamo captures for the case's backend; None where it was not asked for."""
    case = ranks.own.case
    if not counts_work(settings) or ranks.size > 1 or not backends.info(case.backend.name).uses_dynamo:
        return None
    from torchzoo.measure.passes.flops import count_captured_work

    return count_captured_work(model, model.measured_step, case)


def coverage_of(case: Case, eager: Variant, candidate: Variant, modules: Sequence[nn.Module]) -> Coverage | None:
    """How many operators of the modules that the label compiles ran in eager; None if Dynamo compiles none of them."""
    if candidate is eager or not backends.info(case.backend.name).uses_dynamo:
        return None
    from torchzoo.measure.passes.coverage import measure_coverage

    return measure_coverage(eager, candidate, modules)


def flops_and_api_of(step: Callable[[], Any], settings: Settings) -> tuple[Flops | None, ApiSurface | None]:
    """What one step of eager computes, and what it uses of PyTorch. The caller has selected eager."""
    flops, api = None, None
    if counts_work(settings):
        from torchzoo.measure.passes.flops import count_work

        flops = count_work(step)
    if Pass.API in settings.passes:
        from torchzoo.measure.passes.api import step_api

        api = step_api(step)
    return flops, api


def timed_runs_of(own: CaseRank) -> TimedRuns:
    """What the code that was timed computes, from the model's state before its first step. The model is still there."""
    from torchzoo.measure.check.runs import timed_runs

    return timed_runs(own)


def check_of(
    case: Case,
    spec: ModelSpec,
    model_class: type[Model],
    device: torch.device,
    timed: TimedRuns | None,
) -> Check:
    """Whether the case computes what eager computes. `timed` is what the code computes that it has timed, if any."""
    from torchzoo.measure.check.check_case import check_case

    return check_case(case, spec, model_class, device, timed=timed)


def check_ranks_of(ranks: CaseRanks, case: Case) -> Check:
    """Whether ranks compute what one device computes."""
    from torchzoo.measure.check.check_ranks import check_ranks

    return check_ranks(ranks, case)


def _trace_path(trace_dir: str | None, case: Case, variant: Variant) -> Path | None:
    if trace_dir is None:
        return None
    return Path(trace_dir) / f"{safe_name(f'{case.label()} {variant.name}')}.json"
