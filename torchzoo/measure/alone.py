"""A candidate that is alone in its process: no eager step, and no eager copy of anything, came before."""

from __future__ import annotations

from torchzoo import backends
from torchzoo.backends import dynamo
from torchzoo.case import EAGER, Case, CompileScope
from torchzoo.measure.clock import PatientClock
from torchzoo.measure.compilation import watch_compilation
from torchzoo.measure.memory import measure_memory, watch_device_peak
from torchzoo.measure.precision import apply_memory_format, apply_precision
from torchzoo.measure.process_group import use_device
from torchzoo.measure.variant import Variant
from torchzoo.measure.warmup import memory_steps, warm_up
from torchzoo.model import Model
from torchzoo.record import CANDIDATE_VARIANT, Alone
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import load_model_class
from torchzoo.zoo.spec import ModelSpec


def can_be_alone(case: Case) -> bool:
    """Whether the backend compiles in the first step. Others need the inputs of an eager step before."""
    return case.backend != EAGER and backends.info(case.backend.name).uses_dynamo and case.world == 1


def measure_alone(case: Case, spec: ModelSpec, device_name: str, settings: Settings) -> Alone:
    """Build the model, compile it, time its first step, and read the peaks of that step and of a few steady ones.

    This process must be new to the device.
    """
    device = use_device(device_name, settings.threads)
    assert case.batch_size is not None
    model = load_model_class(spec)(case.mode, device, case.batch_size, seed=case.seed)
    apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    variant, watch = _candidate(model, case), watch_compilation()
    warm = warm_up(variant, PatientClock(device), settings, watch.graphs, watch_device_peak(device))
    return Alone(
        first_step_s=warm.first_step_s,
        first_step_cpu_s=warm.first_step_cpu_s,
        first_step_peak_bytes=warm.first_step_peak_bytes,
        memory=measure_memory(variant.step, memory_steps(settings, warm), device),
    )


def _candidate(model: Model, case: Case) -> Variant:
    """The step with every network that it calls compiled in its first call, or compiled as a whole."""
    step = model.measured_step
    if case.compile_scope is CompileScope.STEP:
        return Variant(name=CANDIDATE_VARIANT, step=dynamo.compile_step(step, case.backend), select=lambda: None)

    def select() -> None:
        for network in model.networks().values():
            network._compiled_call_impl = dynamo.compile_network(network, None, case.backend)

    return Variant(name=CANDIDATE_VARIANT, step=step, select=select)
