"""Questions that processes of a server answer for the runner, which has no torch."""

from __future__ import annotations

import traceback
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from torchzoo.case import Backend
from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.files import to_json
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import MeasuredPeaks
from torchzoo.run import resources
from torchzoo.run.lines import function_named, write_line
from torchzoo.run.protocol import CanNotTell, Question, Told
from torchzoo.zoo.spec import ModelSpec


def answer(argument: bytes, connection: Connection) -> None:
    """Call the function of a `Question`, and send what it returns."""
    question = msgspec.json.decode(argument, type=Question)
    found = attempt(lambda: function_named(question.function)(*question.arguments))
    if isinstance(found, Exception) and not isinstance(found, TorchzooError):
        traceback.print_exception(found)
    told = CanNotTell(message=one_line(found)) if isinstance(found, Exception) else Told(result=found)
    write_line(connection.fileno(), to_json(told) + b"\n")


def machine_info() -> MachineInfo:
    """Return what the machine has.

    Raises:
        TorchzooError: torch can't tell.
    """
    try:
        from torchzoo.machine.facts import collect_machine_info

        return collect_machine_info()
    except (ImportError, OSError, RuntimeError) as error:
        raise TorchzooError(f"torch can't be used here: {one_line(error)}") from error


def measured_peaks(device_name: str) -> tuple[str, int | None, MeasuredPeaks]:
    """Return a device's name, its number of threads (of a CPU), and what matrix products and copies reach on it.

    Raises:
        TorchzooError: the device can't be used.
    """
    try:
        import torch

        from torchzoo.devices import device_of
        from torchzoo.measure.passes.measured_peaks import measure_peaks

        device = torch.device(device_name)
        if device.type != "cpu":
            torch.accelerator.set_device_index(device)
        threads = torch.get_num_threads() if device.type == "cpu" else None
        return device_of(device).name(), threads, measure_peaks(device)
    except (ImportError, OSError, RuntimeError) as error:
        raise TorchzooError(f"can't measure {device_name}: {one_line(error)}") from error


def host_speed(cores: list[int]) -> float:
    """Return how long the host's loop takes on an undisturbed one of these cores, in seconds."""
    from torchzoo.measure.host import undisturbed_loop_s

    return undisturbed_loop_s(tuple(cores))


def missing(models: list[Any], backends: list[Any]) -> dict[str, str]:
    """Return what this Python does not have installed, as `resources.missing` does."""
    return resources.missing(
        msgspec.convert(models, tuple[ModelSpec, ...]), msgspec.convert(backends, tuple[Backend, ...])
    )
