"""Collect the facts of the machine and the software that this process runs on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from packaging.utils import canonicalize_name

import torchzoo
from torchzoo.devices import device_of, devices_of_machine, software
from torchzoo.devices.cpu import cpu_name
from torchzoo.machine import process
from torchzoo.machine.limits import usable_cores
from torchzoo.record import Environment

if TYPE_CHECKING:
    import torch

#: The libraries that reports name, and that are equal in all records of a report.
PACKAGES = ("torchvision", "timm", "transformers", "diffusers", "opacus", "triton", "numpy")
#: Libraries whose kernels transformers, diffusers, torch_geometric and others call instead of PyTorch's operators once
#: they are installed, which changes the work of a step under the same label.
KERNEL_PACKAGES = (
    *("apex", "causal-conv1d", "fla-core", "flash-attn", "flash-attn-3", "flash-attn-4", "flash-linear-attention"),
    *("kernels", "mamba-ssm", "pyg-lib", "sageattention", "torch-scatter", "torch-sparse", "xformers"),
)
#: Prefixes of the recorded environment variables, which can change how PyTorch and its libraries compute.
VARIABLE_PREFIXES = (
    *("TORCH", "PYTORCH_", "CUDA_", "CUDNN_", "CUBLAS_", "NCCL_", "NVIDIA_TF32", "OMP_", "MKL_", "KMP_"),
    *("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD"),
)


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """A GPU or other accelerator. Unknown fields are empty or None."""

    name: str = ""
    memory_bytes: int | None = None
    near_cores: tuple[int, ...] | None = None  # the CPU cores of its NUMA node


class MachineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The devices, compilers and software of this machine.

    A worker process collects it, because the runner, which plans the cases, does not import torch.
    """

    devices: dict[str, int]  # number of devices of each type; the CPU comes first
    dynamo_backends: tuple[str, ...]
    environment: Environment
    accelerators: tuple[Accelerator, ...] = ()  # by index

    @property
    def default_device(self) -> str:
        """The type of the accelerator; `cpu` without one."""
        return list(self.devices)[-1]

    def device_class(self, device: str) -> str:
        """The name of the hardware that cases on `device` (`cpu`, `cuda`, `cuda:1`) run on."""
        if device == "cpu":
            return self.environment.cpu
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
    own = device_of(device)
    return Accelerator(name=own.name(), memory_bytes=own.memory_bytes(), near_cores=own.near_cores())


def collect_environment() -> Environment:
    """Find out the facts of the machine and its software. Imports torch."""
    import psutil
    import torch

    distributions = installed_distributions()
    return Environment(
        torchzoo=torchzoo.__version__,
        torchzoo_commit=_git_commit(),
        python=platform.python_version(),
        platform=platform.platform(),
        malloc=process.described(),
        cpu=cpu_name(),
        cpu_count=os.cpu_count(),
        cpu_usable=len(usable_cores()),
        host_memory_bytes=psutil.virtual_memory().total,
        torch=str(torch.__version__),
        torch_commit=torch.version.git_version,
        **software(),
        packages={name: distributions[name] for name in PACKAGES if name in distributions},
        distributions=distributions,
        gpus=devices_of_machine(),
        variables={name: value for name, value in sorted(os.environ.items()) if name.startswith(VARIABLE_PREFIXES)},
    )


def installed_distributions() -> dict[str, str]:
    """The versions of all installed distributions by normalised name, in alphabetical order."""
    found: dict[str, str] = {}
    for one in importlib.metadata.distributions():
        about = one.metadata
        name, version = about["Name"], about["Version"]
        if name and version:  # partly removed distributions have none
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


def host_loop_s(loops: int = 5) -> float:
    """Seconds that a fixed loop of plain Python takes, the fastest of `loops` trials.

    The time measures the host's speed, as clocks measure a GPU's. Other users of the machine and the turbo clocks of
    the cores change it, and with it the times of steps that wait for the host.
    """
    fastest_s = float("inf")
    for _ in range(loops):
        total, began = 0, time.perf_counter()
        for number in range(20_000):
            total += number * number
        fastest_s = min(fastest_s, time.perf_counter() - began)
    return fastest_s
