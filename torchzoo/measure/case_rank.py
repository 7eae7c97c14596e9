"""A rank of a case: its model, the variants of its step, and the methods that rank 0 calls in all ranks."""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor

from torchzoo import backends
from torchzoo.case import Case, Mode, Parallel
from torchzoo.devices import device_of
from torchzoo.measure.clock import Clock, DeviceClock
from torchzoo.measure.finite import FiniteWatch
from torchzoo.measure.global_state import PUT_BACK_BY_SERVER, keeping_state
from torchzoo.measure.host import LEAST_CORES, HostGate, in_this_thread
from torchzoo.measure.latency import quiet_python, timed_step_s
from torchzoo.measure.memory import free_memory, measure_memory
from torchzoo.measure.precision import Inspection, apply_memory_format, apply_precision, inspect_step
from torchzoo.measure.process_group import Participant, use_device
from torchzoo.measure.start_state import CanNotRestore, StartState
from torchzoo.measure.variant import Variant, candidate_variant, eager_variant
from torchzoo.model import Model
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, DeviceState, Memory
from torchzoo.zoo.catalog import library_imports, load_model_class
from torchzoo.zoo.spec import ModelSpec

# Waiting for an idle device: kernels that a stopped process has launched go on running.

#: The probe, one small kernel, takes some 20 µs. While another process uses the device, the probe waits a millisecond
#: or more for its time slice. So a longer probe is a wait.
WAIT_S = 1e-3
#: The device is probed for so long at a time.
LOOK_S = 0.05
#: The device is idle if at most this share of that time went into waits.
IDLE_SHARE = 0.1


def device_probe(device: torch.device) -> Callable[[], Any]:
    """Return a function that launches one small kernel on the device."""
    value = torch.zeros((), device=device)
    return lambda: value.add_(1)


def wait_until_idle(probe: Callable[[], Any], clock: Clock, *, limit_s: float = 60.0) -> tuple[float, bool]:
    """Wait until the device has done the work of other processes; return how long that took, and whether it is idle.

    SIGSTOP stops a process but not the kernels that it has launched, which with slow steps run for seconds. Processes
    share a device in time slices: while kernels of another process run, even small kernels take long. The device is
    idle when at most a tenth of `LOOK_S` went into such waits. After `limit_s` the device counts as busy.
    """
    for _ in range(3):  # the first launch loads the kernel
        timed_step_s(probe, clock)
    began = clock.now_ns()
    while True:
        look_began, waited_s = clock.now_ns(), 0.0
        while (looked_s := (clock.now_ns() - look_began) / 1e9) < LOOK_S:
            took_s = timed_step_s(probe, clock)
            waited_s += took_s if took_s > WAIT_S else 0.0
        elapsed_s = (clock.now_ns() - began) / 1e9
        if waited_s <= IDLE_SHARE * looked_s:
            return max(0.0, elapsed_s - looked_s), True
        if elapsed_s >= limit_s:
            return elapsed_s, False


# The thread in which PyTorch runs the backward pass of a device.


class AutogradThread:
    """Run functions in the thread of PyTorch's autograd engine that belongs to this device.

    The engine has one such thread for each accelerator. On the CPU it works in the thread of the caller.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._leaf: Tensor | None = None  # made at the first call, so that the device is not used before

    def __call__(self, do: Callable[[], Any]) -> Any:
        """Run a function in that thread, and return its result. Only the first call launches a kernel."""
        if self._leaf is None:
            self._leaf = torch.zeros((), device=self._device, requires_grad=True)
        results: list[Any] = []
        with torch.enable_grad():
            output = _CallInBackward.apply(self._leaf, lambda: results.append(do()))
            torch.autograd.grad(output, self._leaf, grad_outputs=self._leaf.detach())
        return results[0]


class _CallInBackward(torch.autograd.Function):
    """The identity, whose backward pass calls a function."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor, do: Callable[[], None]) -> Tensor:
        ctx.do = do
        return leaf.view_as(leaf)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.do()
        return gradients[0], None


def new_rank(case: Case, spec: ModelSpec, device: str, threads: int | None, rank: int, gate: HostGate) -> CaseRank:
    """Return a rank other than the first. Its process is made to use `device`."""
    return CaseRank(case, spec, use_device(device, threads), rank, gate)


class CaseRank(Participant):
    """A rank of a case.

    Args:
        case: the case to measure.
        spec: the spec of its model.
        device: the device of this rank.
        rank: its number, counted from 0.
        gate: watches the cores of this rank; without a gate, the host is never slow.
        keeps_start: whether the state of the model before its first step is kept, so that it can be restored.
    """

    model_class: type[Model]
    model: Model
    inspection: Inspection
    finite: FiniteWatch
    precision_flags: dict[str, str]  # PyTorch's, as they are once the model is prepared
    start: StartState | CanNotRestore | None = None
    put_back: tuple[str, ...] = ()  # settings that the model's libraries or constructor changed, and that were restored

    def __init__(
        self,
        case: Case,
        spec: ModelSpec,
        device: torch.device,
        rank: int = 0,
        gate: HostGate | None = None,
        *,
        keeps_start: bool = False,
    ) -> None:
        super().__init__(device, rank, case.world)
        self.case, self.spec, self.keeps_start = case, spec, keeps_start
        self.gate = gate or HostGate(None, time.perf_counter_ns)
        self.clock = DeviceClock(device)
        self.variants: dict[str, Variant] = {}
        self._began: tuple[str, int] | None = None  # variant and begin of the step since the last synchronisation
        self._steps_ns: dict[str, list[int]] = {}
        self._quiet = contextlib.ExitStack()

    def load(self) -> None:
        """Import the model's folder. Settings that its libraries change are restored, and named in `put_back`."""
        self.model_class, changed = keeping_state(lambda: load_model_class(self.spec))
        packages = dict.fromkeys(name.partition(":")[0].partition(".")[0] for name in library_imports(self.spec))
        by_server = [change for package in packages for change in PUT_BACK_BY_SERVER.get(package, ())]
        self.put_back = tuple(dict.fromkeys([*by_server, *changed]))

    def build(self) -> None:
        """Build the model. The weights are the same in all ranks; with tensor parallelism, so are the data."""
        case = self.case
        assert case.batch_size is not None
        shard = 0 if case.parallel is Parallel.TP else self.rank
        make = partial(self.model_class, case.mode, self.device, case.batch_size, seed=case.seed, shard=shard)
        self.model, changed = keeping_state(make)
        self.put_back = tuple(dict.fromkeys([*self.put_back, *changed]))

    def prepare(self) -> None:
        """Apply precision, memory format and parallelism."""
        self.precision_flags = apply_precision(self.model, self.case.precision)
        apply_memory_format(self.model, self.case.memory_format)
        if self.mesh is not None:
            from torchzoo.measure.parallel import parallelize

            parallelize(self.model, self.case.parallel, self.mesh)
            torch.manual_seed(self.case.seed + self.model.shard)  # for the random numbers of steps, such as dropout
        self.finite = FiniteWatch(self.model)
        if self.keeps_start:
            try:
                self.start = StartState(self.model)
            except CanNotRestore as reason:
                self.start = reason.with_traceback(None)  # its frames hold the model
        self.variants[EAGER_VARIANT] = eager_variant(self.model, self.model.measured_step)

    def inspect(self) -> None:
        """Take one eager step, and note in which dtypes it computes and how it calls its networks."""
        self.inspection = inspect_step(self.model, self.model.measured_step)
        if self.inspection.uses_cpu_threads:  # two threads on one core wait for each other
            self.gate.least_cores = max(LEAST_CORES, torch.get_num_threads())
        if self.case.mode is Mode.TRAIN and self.device.type != "cpu":
            self.gate.threads = (in_this_thread, AutogradThread(self.device))
            self.gate.one_core = not self.inspection.uses_cpu_threads
            os.register_at_fork(after_in_child=self.gate.release)  # for processes that a step starts: data loaders

    def import_backend(self) -> None:
        """Import the code of the case's backend and its libraries, so that no step includes the time of imports."""
        backends.module_of(self.case.backend.name)

    def add_candidate(self) -> None:
        """Make the candidate. Backends behind Dynamo compile in its first step, all others compile or convert here."""
        self.variants[CANDIDATE_VARIANT] = candidate_variant(
            self.model, self.model.measured_step, self.case, self.inspection.take_calls()
        )

    def step(self, name: str) -> Any:
        """Take one step of a variant."""
        self._began = (name, self.clock.now_ns())
        return self.variants[name].step()

    def synchronize(self, clock: DeviceClock) -> None:
        """Wait for the device of this rank, and note how long the last step took."""
        clock.synchronize()
        if self._began is not None:
            name, began_ns = self._began
            self._steps_ns.setdefault(name, []).append(self.clock.now_ns() - began_ns)
            self._began = None

    def look_at_host(self) -> float:
        """Return how long the host's loop takes this rank now, in seconds."""
        return self.gate.slowest_look_s()

    def wait_for_host(self, limit_s: float, matters: bool) -> tuple[bool, tuple[int, ...]]:  # noqa: FBT001
        """See `HostGate.wait`. Return whether the host is fast, and the cores to which this rank is pinned."""
        self.gate.matters = matters
        return self.gate.wait(limit_s), self.gate.fast_cores

    def wait_for_device(self) -> tuple[float, bool] | None:
        """See `wait_until_idle`; None on the CPU."""
        if not self.clock.is_asynchronous:
            return None
        return wait_until_idle(device_probe(self.device), self.clock)

    def device_state(self) -> DeviceState | None:
        """Return what NVML reports of the device of this rank."""
        return device_of(self.device).state()

    def release_core(self) -> None:
        """See `HostGate.release`."""
        self.gate.release()

    def quiet(self) -> None:
        """Turn garbage collection off in this rank, until `loud`."""
        self._quiet.enter_context(quiet_python())

    def loud(self) -> None:
        self._quiet.close()

    def collect(self) -> None:
        """Collect the garbage that accumulated while collection was off."""
        gc.collect()

    def forget_steps(self) -> None:
        self._steps_ns.clear()

    def step_medians_s(self) -> dict[str, float]:
        """Return the median time of a step in this rank since `forget_steps`, by variant."""
        return {name: median(steps) / 1e9 for name, steps in self._steps_ns.items()}

    def release(self) -> None:
        """Drop the references to the model."""
        self.variants.clear()
        for name in ("model", "finite", "inspection", "start"):
            vars(self).pop(name, None)

    def forget(self) -> None:
        """Drop the model and what was compiled for it."""
        self.release()
        torch._dynamo.reset()
        free_memory(self.device)

    def memory(self, name: str, steps: int) -> Memory:
        """Measure the peaks of memory of so many steps."""
        return measure_memory(self.variants[name].step, steps, self.device)
