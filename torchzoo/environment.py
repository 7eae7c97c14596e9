"""What machine and software this is; and what can run on it."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

import torchzoo
from torchzoo.record import DeviceState

if TYPE_CHECKING:
    import torch

PACKAGES = ("torchvision", "timm", "transformers", "diffusers", "opacus", "triton", "numpy")
VARIABLE_PREFIXES = ("TORCH", "PYTORCH_", "CUDA_", "CUDNN_", "NVIDIA_TF32", "OMP_", "MKL_", "KMP_", "CUBLAS_")


class MachineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What `plan` must know of the machine: read by a worker, which has torch; `plan` itself has not."""

    devices: dict[str, int]  # device type: how many
    dynamo_backends: tuple[str, ...]
    environment: dict[str, Any]
    accelerators: tuple[Accelerator, ...] = ()  # by index

    @property
    def default_device(self) -> str:
        """The accelerator, or the CPU where there is none."""
        return list(self.devices)[-1]

    def device_class(self, device: str) -> str:
        """The name of the hardware that cases on `device` (`cpu`, `cuda`, `cuda:1`) run on."""
        if device == "cpu":
            return str(self.environment.get("cpu"))
        index = int(device.partition(":")[2] or 0)
        return self.accelerators[index].name if index < len(self.accelerators) else ""


def collect_machine_info() -> MachineInfo:
    """Device types with their counts, Dynamo's backends, the environment and the accelerators."""
    import torch
    import torch._dynamo

    devices = {"cpu": 1}
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
        assert accelerator is not None
        devices[accelerator.type] = torch.accelerator.device_count()
    return MachineInfo(
        devices=devices,
        dynamo_backends=tuple(torch._dynamo.list_backends(exclude_tags=())),
        environment=collect_environment(),
        accelerators=tuple(
            _accelerator(torch.device(kind, index))
            for kind, count in devices.items()
            if kind != "cpu"
            for index in range(count)
        ),
    )


def _accelerator(device: torch.device) -> Accelerator:
    import torch

    properties = torch.get_device_module(device).get_device_properties(device)
    return Accelerator(
        name=device_name(device),
        memory_bytes=getattr(properties, "total_memory", None),
        near_cores=_near_cores(device),
    )


def _near_cores(device: torch.device) -> tuple[int, ...] | None:
    """The cores of the device's NUMA node, as NVML knows them."""
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


def collect_environment() -> dict[str, Any]:
    """Machine and software as plain data. Versions, counts, names; memory in bytes."""
    import torch

    versions = {name: _version(name) for name in PACKAGES}
    return {
        "torchzoo": torchzoo.__version__,
        "torchzoo_commit": _git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(usable_cores()),
        "host_memory_bytes": psutil.virtual_memory().total,
        "torch": str(torch.__version__),
        "torch_commit": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(),
        "packages": {name: version for name, version in versions.items() if version},
        "gpus": _gpus(),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLE_PREFIXES)},
    }


def _cudnn_version() -> int | None:
    from torch.backends import cudnn

    version: int | None = cudnn.version() if cudnn.is_available() else None  # type: ignore[no-untyped-call]
    return version


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The checkout's commit, with `+` where files differ from it; None outside a checkout."""
    root = Path(torchzoo.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        described = subprocess.run(  # noqa: S603  fixed words and our own path
            [  # noqa: S607  whichever git the user has
                "git",
                "-C",
                str(root),
                "describe",
                "--always",
                "--abbrev=12",
                "--dirty=+",
                "--exclude=*",
            ],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


@functools.cache
def _nvml_is_ready() -> bool:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _gpus() -> list[dict[str, Any]]:
    import pynvml

    if not _nvml_is_ready():
        return []
    gpus = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpus.append(
            {
                "name": pynvml.nvmlDeviceGetName(handle),
                "memory_bytes": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
                "driver": pynvml.nvmlSystemGetDriverVersion(),
            }
        )
    return gpus


def nvml_device(device: torch.device) -> Any:
    """NVML's handle of a CUDA device (matched by UUID: NVML ignores CUDA_VISIBLE_DEVICES); None elsewhere."""
    import torch

    if device.type != "cuda" or torch.version.hip or not _nvml_is_ready():
        return None
    import pynvml

    uuid = torch.cuda.get_device_properties(device).uuid
    try:
        return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except pynvml.NVMLError:
        return None


def device_state(device: torch.device) -> DeviceState | None:
    """Clocks, temperature, power, throttle reasons and who else is there now, as a worker of a run sees it.

    None without NVML, a field None where NVML refuses it.
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
            family=os.getppid(),
        ),
    )


#: NVML's counters of nanoseconds at lowered clocks, by field: its numbers are part of its interface.
_THROTTLE_COUNTERS = {
    74: "software power cap",
    269: "software thermal slowdown",
    270: "hardware thermal slowdown",
    271: "hardware power brake",
}


def _throttled_s(values: Iterable[Any]) -> dict[str, float]:
    """Seconds by reason; a counter that this device or driver does not have is left out."""
    return {
        _THROTTLE_COUNTERS[value.fieldId]: value.value.ullVal / 1e9
        for value in values
        if value.nvmlReturn == 0  # NVML_SUCCESS
    }


def foreign_processes(pids: Iterable[int], *, own: int, family: int) -> int | None:
    """How many of the processes on a device don't belong to this run.

    None where that can't be known: NVML does not list this process `own`, which is on the device too, so its numbers
    are those of another PID namespace, or none are told.

    Args:
        family: the process that the run's workers, and through them their helpers, descend from: the parent of each.
    """
    others = set(pids)
    if own not in others:
        return None
    return sum(not _descends_from(pid, family) for pid in others - {own})


def _descends_from(pid: int, ancestor: int) -> bool:
    try:
        return any(parent.pid == ancestor for parent in psutil.Process(pid).parents())
    except psutil.Error:  # of another namespace or user: not ours
        return False


def host_loop_s(loops: int = 5) -> float:
    """Time of a fixed loop of plain Python, the fastest of a few: it says of the host what clocks say of a GPU.

    Other tenants of the machine and the cores' turbo change it; steps that wait for the host change with it.
    """
    fastest_s = float("inf")
    for _ in range(loops):
        total, began = 0, time.perf_counter()
        for number in range(20_000):
            total += number * number
        fastest_s = min(fastest_s, time.perf_counter() - began)
    return fastest_s


def device_name(device: torch.device) -> str:
    """The CPU's or the accelerator's own name."""
    import torch

    if device.type == "cpu":
        return _cpu_name()
    return str(torch.get_device_module(device).get_device_name(device))


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """What lanes must know of a device. `near_cores`: those of its NUMA node; None where that can't be known."""

    name: str = ""
    memory_bytes: int | None = None
    near_cores: tuple[int, ...] | None = None


def usable_cores() -> tuple[int, ...]:
    """The cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))
