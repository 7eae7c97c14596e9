"""The machine and the software that this process runs on, and the state of a device."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from packaging.utils import canonicalize_name

import torchzoo
from torchzoo import heap
from torchzoo.cores import usable_cores
from torchzoo.record import DeviceState

if TYPE_CHECKING:
    import torch

#: The libraries that reports name beside torch, and that are the same in all records of a report.
PACKAGES = ("torchvision", "timm", "transformers", "diffusers", "opacus", "triton", "numpy")
#: Libraries whose kernels transformers, diffusers, torch_geometric and others call in place of PyTorch's operators as
#: soon as they are installed: a step then does other work under the same label.
KERNEL_PACKAGES = (
    *("apex", "causal-conv1d", "fla-core", "flash-attn", "flash-attn-3", "flash-attn-4", "flash-linear-attention"),
    *("kernels", "mamba-ssm", "pyg-lib", "sageattention", "torch-scatter", "torch-sparse", "xformers"),
)
#: The environment variables that are recorded begin so: they can change how PyTorch and its libraries compute.
VARIABLE_PREFIXES = (
    *("TORCH", "PYTORCH_", "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "NVIDIA_TF32", "OMP_", "MKL_", "KMP_"),
    *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"),
)

#: The environment variable with the process that has started the agents of a run, each of which has a fork server.
RUNNER_VARIABLE = "TORCHZOO_RUNNER"


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU or other accelerator. A field is empty or None where it can't be found out."""

    name: str = ""
    memory_bytes: int | None = None
    near_cores: tuple[int, ...] | None = None  # the CPU cores of its NUMA node


class MachineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The devices, compilers and software of this machine.

    A worker process collects it, because the runner, which plans the cases, does not import torch.
    """

    devices: dict[str, int]  # how many there are of each device type; the CPU comes first
    dynamo_backends: tuple[str, ...]
    environment: dict[str, Any]  # as `collect_environment` returns it
    accelerators: tuple[Accelerator, ...] = ()  # by index

    @property
    def default_device(self) -> str:
        """The type of the accelerator; `cpu` where there is none."""
        return list(self.devices)[-1]

    def device_class(self, device: str) -> str:
        """The name of the hardware that cases on `device` (`cpu`, `cuda`, `cuda:1`) run on."""
        if device == "cpu":
            return str(self.environment.get("cpu"))
        index = int(device.partition(":")[2] or 0)
        return self.accelerators[index].name if index < len(self.accelerators) else ""


def collect_machine_info() -> MachineInfo:
    """Find out what this machine has. Imports torch."""
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
    """The cores of the device's NUMA node, from NVML; None where NVML does not know them."""
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
    """The machine and its software as plain data: names, versions and counts; memory in bytes."""
    import psutil
    import torch

    distributions = installed_distributions()
    return {
        "torchzoo": torchzoo.__version__,
        "torchzoo_commit": _git_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "malloc": heap.described(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "cpu_usable": len(usable_cores()),
        "host_memory_bytes": psutil.virtual_memory().total,
        "torch": str(torch.__version__),
        "torch_commit": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(),
        "nccl": _nccl_version(),
        "packages": {name: distributions[name] for name in PACKAGES if name in distributions},
        "distributions": distributions,
        "gpus": _gpus(),
        "variables": {name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLE_PREFIXES)},
    }


def _nccl_version() -> str | None:
    import torch
    from torch import distributed
    from torch.cuda import nccl

    if not (torch.cuda.is_available() and distributed.is_available() and distributed.is_nccl_available()):
        return None
    return ".".join(map(str, nccl.version()))  # type: ignore[no-untyped-call]


def _cudnn_version() -> int | None:
    from torch.backends import cudnn

    version: int | None = cudnn.version() if cudnn.is_available() else None  # type: ignore[no-untyped-call]
    return version


def installed_distributions() -> dict[str, str]:
    """The versions of all that pip or another installer has installed here, by normalised name, in their order."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        about = one.metadata
        name, version = about["Name"], about["Version"]
        if name and version:  # what was only half removed has none
            found.setdefault(canonicalize_name(name), version)  # the first one on the path is imported
    return dict(sorted(found.items()))


def _git_commit() -> str | None:
    """The commit of torchzoo's checkout, with `+` if its files were changed; None outside a checkout."""
    root = Path(torchzoo.__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    import subprocess

    try:
        described = subprocess.run(  # noqa: S603  fixed arguments and our own path
            [  # noqa: S607  the user's own git
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


def device_state(device: torch.device) -> DeviceState | None:
    """Clocks, temperature, power, throttle reasons and foreign processes at this moment.

    Call it in a worker: the processes of the worker's own run are not counted as foreign.

    Returns:
        None without NVML. A field is None where NVML can't tell it.
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
    """Seconds at lowered clocks by reason. A counter that this device or driver does not have is left out."""
    return {
        _THROTTLE_COUNTERS[value.fieldId]: value.value.ullVal / 1e9
        for value in values
        if value.nvmlReturn == 0  # NVML_SUCCESS
    }


def run_ancestor() -> int:
    """The process from which all workers of this worker's run descend: the runner of agents, else the fork server."""
    return int(os.environ.get(RUNNER_VARIABLE, os.getppid()))


def foreign_processes(pids: Iterable[int], *, own: int, ancestor: int) -> int | None:
    """How many of the processes on a device don't belong to this run.

    Args:
        pids: the processes on the device, as NVML lists them.
        own: this process, which uses the device too.
        ancestor: the process from which all processes of the run descend.

    Returns:
        None if `own` is not among `pids`. Then NVML lists no processes, or counts them in another PID namespace.
    """
    others = set(pids)
    if own not in others:
        return None
    return sum(_is_foreign(pid, ancestor) for pid in others - {own})


def _is_foreign(pid: int, ancestor: int) -> bool:
    """Whether the process is alive and does not descend from `ancestor`.

    NVML lists a process for some seconds after its end: those of `--memory-alone`, for example.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return is_alive and all(parent.pid != ancestor for parent in process.parents())
    except psutil.Error:  # it has ended, or /proc does not show it to this user
        return _exists(pid)


def _exists(pid: int) -> bool:
    """Whether there is such a process, also where /proc hides it (`psutil.pid_exists` then says no)."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def host_loop_s(loops: int = 5) -> float:
    """Seconds that a fixed loop of plain Python takes, the fastest of `loops` trials.

    It is a measure of the host's speed, as clocks are of a GPU's. Other users of the machine and the turbo clocks of
    the cores change it. Steps that wait for the host become slower or faster with it.
    """
    fastest_s = float("inf")
    for _ in range(loops):
        total, began = 0, time.perf_counter()
        for number in range(20_000):
            total += number * number
        fastest_s = min(fastest_s, time.perf_counter() - began)
    return fastest_s


def device_name(device: torch.device) -> str:
    """The name that the CPU or the accelerator itself reports."""
    import torch

    if device.type == "cpu":
        return _cpu_name()
    return str(torch.get_device_module(device).get_device_name(device))
