"""The passes that a run may ask for beside time and memory: which run when, on what."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from torchzoo.case import Case, Pass, Settings
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.variant import Variant
from torchzoo.model import Model
from torchzoo.record import ApiSurface, Breakdown, Check, Energy, Flops, Growth
from torchzoo.zoo.spec import ModelSpec


def energy(variant: Variant, settings: Settings, device: torch.device, step_s: float) -> Energy | None:
    """Joules of steps, where asked for. Before any breakdown: the profiler leaves its hooks in the process."""
    if Pass.ENERGY not in settings.passes:
        return None
    from torchzoo.measure.passes.energy import measure_energy

    variant.select()
    return measure_energy(variant.step, DeviceClock(device), device, step_s=step_s)


def breakdown(
    variant: Variant, case: Case, settings: Settings, device: torch.device, step_s: float
) -> Breakdown | None:
    """Where the wall time of steps goes, where asked for."""
    if Pass.BREAKDOWN not in settings.passes:
        return None
    from torchzoo.measure.passes.breakdown import measure_breakdown

    variant.select()
    trace = _trace_path(settings.trace_dir, case, variant)
    return measure_breakdown(variant.step, DeviceClock(device), device, step_s=step_s, trace=trace)


def growth(variant: Variant, settings: Settings, device: torch.device, step_s: float) -> Growth | None:
    """Memory in use over many steps, where the leak check is asked for."""
    if Pass.LEAK_CHECK not in settings.passes:
        return None
    from torchzoo.measure.passes.leak import measure_growth

    variant.select()
    return measure_growth(variant.step, DeviceClock(device), device, step_s=step_s)


def of_eager_step(step: Callable[[], Any], settings: Settings) -> tuple[Flops | None, ApiSurface | None]:
    """What one step of eager computes and touches. The caller has selected eager."""
    flops, api = None, None
    if Pass.FLOPS in settings.passes:
        from torchzoo.measure.passes.flops import count_work

        flops = count_work(step)
    if Pass.API in settings.passes:
        from torchzoo.measure.passes.api import step_api

        api = step_api(step)
    return flops, api


def check(
    case: Case, spec: ModelSpec, model_class: type[Model], device: torch.device, settings: Settings
) -> Check | None:
    """The results of the case against eager's and an fp64 reference's, on models built anew, where asked for.

    The caller has let go of the measured model.
    """
    if Pass.CHECK not in settings.passes:
        return None
    from torchzoo.measure.check.check import check_case

    gc.collect()
    if device.type != "cpu":
        torch.accelerator.empty_cache()
    return check_case(case, spec, model_class, device)


def _trace_path(trace_dir: str | None, case: Case, variant: Variant) -> Path | None:
    if trace_dir is None:
        return None
    words = f"{case.label()} {variant.name}"
    safe = "".join(character if character.isalnum() or character in "-_." else "-" for character in words)
    return Path(trace_dir) / f"{safe}.json"
