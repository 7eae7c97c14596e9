"""NVIDIA's GPUs, and AMD's, which PyTorch calls by the same name. Facts of NVIDIA's come from their library NVML."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from torchzoo.devices.foreign import foreign_processes, run_ancestor
from torchzoo.devices.generic import Device, Switch
from torchzoo.record import DeviceState, Gpu

#: By arithmetic, the first compute capability of NVIDIA's GPUs that has it.
_FIRST_WITH = {"tf32": (8, 0), "int4": (8, 0), "fp8": (8, 9)}


class CudaDevice(Device):
    """See `torchzoo.devices.generic`."""

    kind: ClassVar[str] = "cuda"
    collectives: ClassVar[str | None] = "nccl"
    collective_kernels: ClassVar[tuple[str, ...]] = ("nccl", "rccl")
    launch_calls: ClassVar[tuple[str, ...]] = (
        *("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpy", "cudaMemset", "cuMemcpy", "cuMemset"),
        *("hipLaunchKernel", "hipExtLaunchKernel", "hipModuleLaunchKernel", "hipExtModuleLaunchKernel"),
        *("hipGraphLaunch", "hipMemcpy", "hipMemset"),
    )
    wait_calls: ClassVar[tuple[str, ...]] = (
        *("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize"),
        *("cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"),
        *("hipStreamSynchronize", "hipDeviceSynchronize", "hipEventSynchronize"),
    )

    def memory_bytes(self) -> int | None:
        return int(self._module.get_device_properties(self.device).total_memory)

    def near_cores(self) -> tuple[int, ...] | None:
        if (handle := self._nvml()) is None:
            return None
        import pynvml

        bits = 64
        words = _read(pynvml.nvmlDeviceGetCpuAffinity, handle, (os.cpu_count() or 1) // bits + 1) or ()
        near = tuple(index * bits + bit for index, word in enumerate(words) for bit in range(bits) if word >> bit & 1)
        return near or None

    def state(self) -> DeviceState | None:
        """Clocks, temperature, power, throttle reasons and foreign processes at this moment.

        To be called in a worker: the processes of the worker's own run are not counted as foreign. A field is None if
        NVML does not know it.
        """
        if (handle := self._nvml()) is None:
            return None
        import pynvml

        power_mw = _read(pynvml.nvmlDeviceGetPowerUsage, handle)
        return DeviceState(
            sm_clock_mhz=_read(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=_read(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            temperature_c=_read(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            power_w=None if power_mw is None else power_mw / 1000,
            throttle_reasons=_read(pynvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
            throttled_s=_throttled_s(_read(pynvml.nvmlDeviceGetFieldValues, handle, list(_THROTTLE_COUNTERS)) or ()),
            foreign_processes=foreign_processes(
                [process.pid for process in _read(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()],
                own=os.getpid(),
                ancestor=run_ancestor(),
            ),
        )

    def energy_counter(self) -> Callable[[], int] | None:
        if (handle := self._nvml()) is None:
            return None
        import pynvml

        if _read(pynvml.nvmlDeviceGetTotalEnergyConsumption, handle) is None:
            return None
        return lambda: int(pynvml.nvmlDeviceGetTotalEnergyConsumption(handle))

    def process_bytes(self) -> int | None:
        """None where NVML can't tell, as in a PID namespace."""
        if (handle := self._nvml()) is None:
            return None
        import pynvml

        processes = _read(pynvml.nvmlDeviceGetComputeRunningProcesses, handle) or ()
        used = [process.usedGpuMemory for process in processes if process.pid == os.getpid()]
        return used[0] if used else None

    def computes_in(self, arithmetic: str) -> bool:
        import torch

        if arithmetic == "bf16":
            return bool(torch.cuda.is_bf16_supported(including_emulation=False))
        if torch.version.hip:
            return False
        return torch.cuda.get_device_capability(self.device) >= _FIRST_WITH[arithmetic]

    @contextlib.contextmanager
    def waiting_forbidden(self) -> Iterator[bool]:
        import torch

        torch.cuda.set_sync_debug_mode("error")
        try:
            yield True
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def _nvml(self) -> Any:
        """NVML's handle of the device; None without NVML.

        The handle is found by UUID, because NVML's own order of devices ignores CUDA_VISIBLE_DEVICES.
        """
        import torch

        if torch.version.hip or not _nvml_is_ready():
            return None
        import pynvml

        return _read(pynvml.nvmlDeviceGetHandleByUUID, f"GPU-{self._module.get_device_properties(self.device).uuid}")

    @classmethod
    def software(cls) -> dict[str, Any]:
        import torch
        from torch.backends import cudnn

        return {
            "cuda": torch.version.cuda,
            "hip": torch.version.hip,
            "cudnn": cudnn.version() if cudnn.is_available() else None,  # type: ignore[no-untyped-call]
            "nccl": _nccl_version(),
        }

    @classmethod
    def devices_of_machine(cls) -> tuple[Gpu, ...]:
        return _gpus()

    @classmethod
    def switches(cls) -> tuple[Switch, ...]:
        from torch.backends import cuda

        return (
            Switch("flash attention", cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
            Switch("memory-efficient attention", cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
            Switch("cuDNN's attention", cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
            Switch("attention of plain operators", cuda.math_sdp_enabled, cuda.enable_math_sdp),
            *(
                Switch(
                    f"cuda.matmul.{name}",
                    functools.partial(getattr, cuda.matmul, name),
                    functools.partial(setattr, cuda.matmul, name),
                )
                for name in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
            ),
        )


def _nccl_version() -> str | None:
    import torch
    from torch import distributed
    from torch.cuda import nccl

    if not (torch.cuda.is_available() and distributed.is_available() and distributed.is_nccl_available()):
        return None
    return ".".join(map(str, nccl.version()))  # type: ignore[no-untyped-call]


def _read(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of NVML; None if it does not know the answer."""
    import pynvml

    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


@functools.cache
def _nvml_is_ready() -> bool:
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _gpus() -> tuple[Gpu, ...]:
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
