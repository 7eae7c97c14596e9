"""Read the facts and the state of GPUs from NVML, the management library of NVIDIA GPUs."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from torchzoo.record import DeviceState, Gpu

if TYPE_CHECKING:
    import torch

#: The environment variable with the process that has started several fork servers for a run.
RUNNER_VARIABLE = "TORCHZOO_RUNNER"


@functools.cache
def _nvml_is_ready() -> bool:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def gpus() -> tuple[Gpu, ...]:
    """Return NVML's facts of each GPU; empty without NVML."""
    import pynvml

    if not _nvml_is_ready():
        return ()
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        found.append(
            Gpu(
                name=pynvml.nvmlDeviceGetName(handle),
                memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                driver=pynvml.nvmlSystemGetDriverVersion(),
            )
        )
    return tuple(found)


def nvml_device(device: torch.device) -> Any:
    """NVML's handle of a CUDA device; None for other devices and without NVML.

    The handle is found by UUID, because NVML's own order of devices ignores CUDA_VISIBLE_DEVICES.
    """
    import torch

    if device.type != "cuda" or torch.version.hip or not _nvml_is_ready():
        return None
    import pynvml

    uuid = torch.cuda.get_device_properties(device).uuid
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None


def near_cores(device: torch.device) -> tuple[int, ...] | None:
    """The cores of the device's NUMA node; None if NVML does not know them."""
    handle = nvml_device(device)
    if handle is None:
        return None
    import pynvml

    bits = 64
    try:
        words = pynvml.nvmlDeviceGetCpuAffinity(handle, (os.cpu_count() or 1) // bits + 1)
    except pynvml.NVMLError:
        return None
    near = tuple(index * bits + bit for index, word in enumerate(words) for bit in range(bits) if word >> bit & 1)
    return near or None


def device_state(device: torch.device) -> DeviceState | None:
    """Clocks, temperature, power, throttle reasons and foreign processes at this moment.

    To be called in a worker: the processes of the worker's own run are not counted as foreign.

    Returns:
        None without NVML. A field is None if NVML does not know it.
    """
    handle = nvml_device(device)
    if handle is None:
        return None
    import pynvml

    def read(function: Any, *args: Any) -> Any:
        try:
            return function(handle, *args)
        except pynvml.NVMLError:
            return None

    power_mw = read(pynvml.nvmlDeviceGetPowerUsage)
    return DeviceState(
        sm_clock_mhz=read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
        memory_clock_mhz=read(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
        temperature_c=read(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
        power_w=None if power_mw is None else power_mw / 1000,
        throttle_reasons=read(pynvml.nvmlDeviceGetCurrentClocksEventReasons),
        throttled_s=_throttled_s(read(pynvml.nvmlDeviceGetFieldValues, list(_THROTTLE_COUNTERS)) or ()),
        foreign_processes=foreign_processes(
            [process.pid for process in read(pynvml.nvmlDeviceGetComputeRunningProcesses) or ()],
            own=os.getpid(),
            ancestor=run_ancestor(),
        ),
    )


#: NVML's counters of the nanoseconds at lowered clocks: field number and reason. The numbers are NVML's interface.
_THROTTLE_COUNTERS = {
    74: "software power cap",
    269: "software thermal slowdown",
    270: "hardware thermal slowdown",
    271: "hardware power brake",
}


def _throttled_s(values: Iterable[Any]) -> dict[str, float]:
    """Seconds at lowered clocks by reason, for the counters that the device and driver have."""
    return {
        _THROTTLE_COUNTERS[value.fieldId]: value.value.ullVal / 1e9
        for value in values
        if value.nvmlReturn == 0  # NVML_SUCCESS
    }


def run_ancestor() -> int:
    """The process from which all workers of this run descend: the one in `RUNNER_VARIABLE`, else the fork server."""
    return int(os.environ.get(RUNNER_VARIABLE, os.getppid()))


def foreign_processes(pids: Iterable[int], *, own: int, ancestor: int) -> int | None:
    """The number of processes on a device that don't belong to this run.

    Args:
        pids: the processes on the device, as NVML lists them.
        own: this process, which uses the device too.
        ancestor: the process from which all processes of the run descend.

    Returns:
        None if `own` is not among `pids`, because NVML lists no processes, or those of another PID namespace.
    """
    others = set(pids)
    if own not in others:
        return None
    return sum(_is_foreign(pid, ancestor) for pid in others - {own})


def _is_foreign(pid: int, ancestor: int) -> bool:
    """Whether the process is alive and does not descend from `ancestor`.

    NVML lists a process for some seconds after its end.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return is_alive and all(parent.pid != ancestor for parent in process.parents())
    except psutil.Error:  # it has ended, or /proc does not show it to this user
        return _exists(pid)


def _exists(pid: int) -> bool:
    """Whether the process exists, even if /proc hides it (where `psutil.pid_exists` is False)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
