"""The CPU: steps are over when they return, and its memory is the host's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torchzoo.devices.generic import Device

if TYPE_CHECKING:
    from torch import Tensor


class CpuDevice(Device):
    """See `torchzoo.devices.generic`."""

    kind: ClassVar[str] = "cpu"
    collectives: ClassVar[str | None] = "gloo"
    reduces_sparse: ClassVar[bool] = True
    is_asynchronous: ClassVar[bool] = False

    def name(self) -> str:
        return cpu_name()

    def memory_bytes(self) -> int | None:
        return None

    def synchronize(self) -> None:
        pass

    def event(self) -> Any:
        return None

    def allocator_bytes(self, figure: str) -> int | None:
        return None

    def reset_peaks(self) -> bool:
        return False

    def empty_cache(self) -> None:
        pass

    def held_by_others(self) -> int | None:
        return 0

    def random_states(self) -> tuple[Tensor, ...]:
        return ()  # the host's generator is the CPU's


def cpu_name() -> str:
    """The name of the processor."""
    import platform

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
