"""Measure a candidate in a process of its own, without an eager step or an eager copy of anything before it."""

from __future__ import annotations

from torchzoo import backends
from torchzoo.case import Case
from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.clock import PatientClock
from torchzoo.measure.compilation import count_compiled, watch_compilation
from torchzoo.measure.memory import measure_memory, watch_device_peak
from torchzoo.measure.process_group import use_device
from torchzoo.measure.variant import candidate_variant
from torchzoo.measure.warmup import memory_steps, warm_up
from torchzoo.record import Alone
from torchzoo.settings import Settings
from torchzoo.zoo.spec import ModelSpec


def why_never_alone(case: Case) -> str | None:
    """Return why the candidate of such a case can't have a process without eager, or None if it can."""
    if case.world > 1:
        return "a case of several ranks has none"
    if not backends.info(case.backend.name).uses_dynamo:
        return f"{case.backend} does not compile in its first step: an eager step comes before it"
    return None


def measure_alone(case: Case, spec: ModelSpec, device_name: str, settings: Settings) -> Alone:
    """Build the model, compile it, time its first step, and read the peaks of that step and of a few steady ones.

    This process must be new to the device. All else is as in the process that is timed, without the eager steps:
    networks that the step does not call are never compiled, for example.

    Raises:
        LabelNotReached, NotRunnable: as for a candidate that is timed.
    """
    device = use_device(device_name, settings.threads)
    own = CaseRank(case, spec, device)
    own.load()
    own.build()
    own.prepare()
    model, watch = own.model, watch_compilation()
    variant = candidate_variant(model, model.measured_step, case, dict.fromkeys(model.networks()))
    warm = warm_up(variant, PatientClock(device), settings, watch.graphs, watch_device_peak(device))
    count_compiled(watch, case, settings.cache)
    return Alone(
        first_step_s=warm.first_step_s,
        first_step_cpu_s=warm.first_step_cpu_s,
        first_step_peak_bytes=warm.first_step_peak_bytes,
        memory=measure_memory(variant.step, memory_steps(settings, warm), device),
    )
