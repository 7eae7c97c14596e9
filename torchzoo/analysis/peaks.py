"""Look up the peaks of devices: in datasheets, and in the peaks that `torchzoo doctor --peaks` measured."""

from __future__ import annotations

import functools
import os
from pathlib import Path

import msgspec

from torchzoo.errors import TorchzooError
from torchzoo.files import FileError, read_yaml
from torchzoo.record import MeasuredPeaks
from torchzoo.store import write_whole

#: Kinds of matrix products, by the format of the operands.
PATHS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")


class Datasheet(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry of `peaks.yaml`, which describes its fields."""

    names: tuple[str, ...]
    tflop_per_s: dict[str, float]
    gb_per_s: float
    title: str
    url: str

    def best_tflop_per_s(self, path: str) -> float | None:
        """The peak of matrix products: on the matrix units if the device has them for this format."""
        return self.tflop_per_s.get(f"{path}_matrix", self.tflop_per_s.get(path))


class Peak(msgspec.Struct, frozen=True, kw_only=True):
    """Operations or bytes per second. `source` says in words where the figure comes from."""

    per_s: float
    source: str


class Peaks(msgspec.Struct, frozen=True, kw_only=True):
    """The peaks of one device, each from its datasheet, or measured if the datasheet lacks it."""

    compute: dict[str, Peak]  # by path
    memory: Peak | None


class PeaksFileError(TorchzooError):
    """The file of measured peaks can't be read or written."""


def peaks_of(device_name: str, *, threads: int | None = None) -> Peaks:
    """The known peaks of the device of that name; empty for a device in neither table.

    Those of a CPU depend on its number of threads.
    """
    compute: dict[str, Peak] = {}
    memory = None
    found = read_measured(measured_file()).get(measured_key(device_name, threads))
    if found is not None:
        source = f"measured {found.date} with torch {found.torch}"
        compute = {path: Peak(per_s=value * 1e12, source=source) for path, value in found.tflop_per_s.items()}
        memory = Peak(per_s=found.gb_per_s * 1e9, source=source) if found.gb_per_s is not None else None
    sheet = datasheet(device_name)
    if sheet is not None:
        for path in PATHS:
            value = sheet.best_tflop_per_s(path)
            if value is not None:
                compute[path] = Peak(per_s=value * 1e12, source="datasheet")
        memory = Peak(per_s=sheet.gb_per_s * 1e9, source="datasheet")
    return Peaks(compute=compute, memory=memory)


def bus_ceiling_bytes_per_s(device_name: str, world: int, collective: str) -> float | None:
    """The measured bus bandwidth of a large collective between `world` devices; None if it was not measured."""
    found = read_measured(measured_file()).get(measured_key(device_name, None, world))
    rate = found.bus_gb_per_s.get(collective) if found is not None else None
    return rate * 1e9 if rate is not None else None


def datasheet(device_name: str) -> Datasheet | None:
    """The datasheet of the device with this name, or None. Upper case and a leading NVIDIA are ignored.

    A MIG slice has a name of its own, and so no datasheet.
    """
    return _by_name().get(_plain(device_name))


@functools.cache
def datasheets() -> tuple[Datasheet, ...]:
    """All datasheets."""
    return read_yaml(Path(__file__).with_name("peaks.yaml"), tuple[Datasheet, ...])


@functools.cache
def _by_name() -> dict[str, Datasheet]:
    return {_plain(name): sheet for sheet in datasheets() for name in sheet.names}


def _plain(name: str) -> str:
    return name.casefold().removeprefix("nvidia ")


# --- measured peaks ---


def measured_key(device_name: str, threads: int | None, world: int = 1) -> str:
    """The key of devices in the file: the name, and the threads of a CPU or the number of several devices."""
    if world > 1:
        return f"{device_name}, {world} ranks"
    return device_name if threads is None else f"{device_name}, {threads} threads"


def measured_file() -> Path:
    """The path of `peaks.yaml`: in $TORCHZOO_CACHE, else in $XDG_CACHE_HOME/torchzoo, else in ~/.cache/torchzoo."""
    own = os.environ.get("TORCHZOO_CACHE")
    if own:
        return Path(own) / "peaks.yaml"
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "torchzoo" / "peaks.yaml"


def read_measured(path: Path) -> dict[str, MeasuredPeaks]:
    """The measured peaks in the file at `path`; empty if there is no file."""
    if not os.path.lexists(path):
        return {}
    try:
        return read_yaml(path, dict[str, MeasuredPeaks])
    except FileError as error:
        raise PeaksFileError(f"can't read {error}: delete it and run `torchzoo doctor --peaks` again") from error


def keep_measured(path: Path, key: str, peaks: MeasuredPeaks) -> None:
    """Write the peaks of one device into the file, and keep those of other devices."""
    import yaml

    known = read_measured(path) | {key: peaks}
    text = "# By `torchzoo doctor --peaks`.\n" + yaml.safe_dump(msgspec.to_builtins(known), default_flow_style=None)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    except OSError as error:
        raise PeaksFileError(f"can't write {path}: {error.strerror}") from error
