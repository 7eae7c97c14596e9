"""A device by `torch.accelerator` alone. Other kinds are subclasses that know more.

A method returns None for a property that the kind of device lacks; the record then lacks the figure of it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from torchzoo.record import DeviceState, Gpu

if TYPE_CHECKING:
    import torch
    from torch import Tensor
    from torch.profiler import ProfilerActivity


class Switch(NamedTuple):
    """A global switch of PyTorch that changes how a kind of device computes."""

    name: str
    get: Callable[[], Any]
    put: Callable[[Any], object]


class Device:
    """A device, of any kind that PyTorch supports.

    Args:
        device: with its index, where the kind has several.
    """

    kind: ClassVar[str] = ""  # as in `torch.device.type`; empty: any
    collectives: ClassVar[str | None] = None  # PyTorch's backend of process groups; None: as PyTorch chooses
    #: Whether the backend of process groups sums sparse gradients.
    reduces_sparse: ClassVar[bool] = False
    #: Prefixes of the names of kernels that communicate.
    collective_kernels: ClassVar[tuple[str, ...]] = ()
    #: Prefixes of the names, in a profile, of the calls that hand kernels, graphs or copies to the device.
    launch_calls: ClassVar[tuple[str, ...]] = ()
    #: Prefixes of the names, in a profile, of the calls that wait for the device.
    wait_calls: ClassVar[tuple[str, ...]] = ()
    #: The steps of a case return before the device has done its work.
    is_asynchronous: ClassVar[bool] = True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @functools.cached_property
    def _module(self) -> Any:
        import torch

        return torch.get_device_module(self.device)

    # --- identity ---

    def name(self) -> str:
        """The name of the hardware; the kind where it has none."""
        get = getattr(self._module, "get_device_name", None)
        return self.device.type if get is None else str(get(self.device))

    def memory_bytes(self) -> int | None:
        """The memory of the device."""
        import torch

        with contextlib.suppress(RuntimeError, AttributeError):
            return int(torch.accelerator.get_memory_info(self.device)[1])
        return None

    def near_cores(self) -> tuple[int, ...] | None:
        """The CPU cores of the device's NUMA node."""
        return None

    def state(self) -> DeviceState | None:
        """Clocks, temperature, power and foreign processes at this moment."""
        return None

    def energy_counter(self) -> Callable[[], int] | None:
        """Return a function that reads the energy that the device has used, in mJ."""
        return None

    # --- time ---

    def synchronize(self) -> None:
        """Wait until the device has done all work that was launched."""
        import torch

        torch.accelerator.synchronize(self.device)

    def event(self) -> Any:
        """Return a new event, which is not recorded yet; None where the kind has none with times."""
        event = getattr(self._module, "Event", None)
        return None if event is None else event(enable_timing=True)

    # --- memory ---

    def allocator_bytes(self, figure: str) -> int | None:
        """Return a figure of the allocator, such as `memory_allocated`; None if nothing is counted.

        Where nothing is counted, PyTorch raises or returns 0, which no counting allocator returns: the model is on its
        device.
        """
        import torch

        try:
            return int(getattr(torch.accelerator, figure)(self.device)) or None
        except RuntimeError:
            return None

    def allocations(self) -> int | None:
        """Return how many blocks the allocator has given out so far; None if nothing is counted."""
        import torch

        try:
            return int(torch.accelerator.memory_stats(self.device).get("allocation.all.allocated", 0)) or None
        except RuntimeError:
            return None

    def reset_peaks(self) -> bool:
        """Set the allocator's high-water marks to what is held now. Return False where it keeps none."""
        import torch

        try:
            torch.accelerator.reset_peak_memory_stats(self.device)
        except RuntimeError:
            return False
        return True

    def empty_cache(self) -> None:
        """Give cached blocks back to the device."""
        import torch

        with contextlib.suppress(RuntimeError):  # not each allocator has a cache
            torch.accelerator.empty_cache()

    def held_by_others(self) -> int | None:
        """The bytes of device memory that other processes hold, with the context of this one (some hundred MB)."""
        import torch

        reserved = self.allocator_bytes("memory_reserved")
        if reserved is None:
            return None
        free, total = torch.accelerator.get_memory_info(self.device)
        return int(total - free - reserved)

    def process_bytes(self) -> int | None:
        """The device memory of this process, with its context."""
        return None

    # --- random numbers, profiles, precision ---

    def random_states(self) -> tuple[Tensor, ...]:
        """Return the states of the device's generator for steps on this device."""
        return (self._module.get_rng_state(self.device),)

    def activity(self) -> ProfilerActivity | None:
        """Return what PyTorch's profiler is to record; None where it can't."""
        from torch.profiler import ProfilerActivity, supported_activities

        activity: ProfilerActivity | None = getattr(ProfilerActivity, self.device.type.upper(), None)
        return activity if activity in supported_activities() else None  # type: ignore[no-untyped-call]

    def computes_in(self, arithmetic: str) -> bool:
        """Whether the device itself multiplies matrices in `tf32`, `bf16`, `fp8` or `int4`."""
        return arithmetic == "bf16"

    @contextlib.contextmanager
    def waiting_forbidden(self) -> Iterator[bool]:
        """Inside, a step that makes the host wait raises RuntimeError, if True is yielded."""
        yield False

    # --- of the kind, without a device ---

    @classmethod
    def software(cls) -> dict[str, Any]:
        """The versions of the kind's libraries, by the names of `torchzoo.record.Environment`."""
        return {}

    @classmethod
    def devices_of_machine(cls) -> tuple[Gpu, ...]:
        """The devices of this kind as their driver knows them, whether or not PyTorch can use them."""
        return ()

    @classmethod
    def switches(cls) -> tuple[Switch, ...]:
        """The kind's global switches."""
        return ()
