"""The differences between kinds of device, behind one protocol (`torchzoo.devices.generic`).

A new kind is a file with a subclass of `Device`, named in `KINDS`. Other kinds run by `torch.accelerator` alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchzoo.devices.cpu import CpuDevice
from torchzoo.devices.cuda import CudaDevice
from torchzoo.devices.generic import Device, Switch
from torchzoo.record import Gpu

if TYPE_CHECKING:
    import torch

KINDS: tuple[type[Device], ...] = (CpuDevice, CudaDevice)


def device_of(device: torch.device) -> Device:
    """Return the device by its kind."""
    return next((kind for kind in KINDS if kind.kind == device.type), Device)(device)


def accelerator_is_in_use() -> bool:
    """Whether this process has used the accelerator, so that forks of it can't."""
    import torch

    accelerator = torch.accelerator.current_accelerator(check_available=False)
    if accelerator is None:
        return False
    is_initialized = getattr(torch.get_device_module(accelerator), "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def software() -> dict[str, Any]:
    """Return the versions of the libraries of all kinds."""
    return {name: version for kind in KINDS for name, version in kind.software().items()}


def devices_of_machine() -> tuple[Gpu, ...]:
    """Return the devices of all kinds as their drivers know them."""
    return tuple(one for kind in KINDS for one in kind.devices_of_machine())


def switches() -> tuple[Switch, ...]:
    """Return the global switches of all kinds."""
    return tuple(one for kind in KINDS for one in kind.switches())
