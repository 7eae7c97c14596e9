"""`torchzoo doctor --peaks`: measure the peaks of each kind of device here, and show them beside its datasheet."""

from __future__ import annotations

import datetime as dt
from importlib.metadata import version
from pathlib import Path

from torchzoo.analysis.peaks import PATHS, datasheet, keep_measured, measured_file, measured_key, read_measured
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import MeasuredPeaks
from torchzoo.report import terminal
from torchzoo.report.tables import used_columns
from torchzoo.run.fork_server import ForkServer


def measure_and_keep_peaks(server: ForkServer, machine: MachineInfo) -> None:
    """Measure, show and keep the peaks of one device of each name, and of the CPU. Each has a process of its own.

    Raises:
        PeaksFileError: what was measured can't be kept.
        TorchUnusable: a device can't be used.
    """
    file = measured_file()
    read_measured(file)  # raises now, not after the measurement, if the file can't be read
    for device in devices_to_measure(machine):
        terminal.say(f"measuring {device} ...")
        name, threads, peaks = server.measured_peaks(device)
        key = measured_key(name, threads)
        keep_measured(file, key, peaks)
        print(f"\n{key}, torch {peaks.torch}: the best of several sizes, each the median of its runs")
        print("\n".join(beside_datasheet(key, peaks)))
        alike = devices_alike(machine, device)
        for world in worlds(len(alike)):
            _measure_and_keep_bus(server, file, name, alike[:world])
    print(f"\nkept in {file}; reports use it for what a device's datasheet does not say")


def devices_alike(machine: MachineInfo, device: str) -> list[str]:
    """All devices of the name of this one. Of CPUs, two: as many processes share the host."""
    kind, _, index = device.partition(":")
    if not index:
        return [device] * 2
    name = machine.accelerators[int(index)].name
    return [f"{kind}:{number}" for number, one in enumerate(machine.accelerators) if one.name == name]


def worlds(count: int) -> list[int]:
    """How many of so many devices are measured together: 2, 4, 8 and so on, and all."""
    powers = [2**power for power in range(1, count.bit_length()) if 2**power <= count]
    return sorted({*powers, *([count] if count > 1 else [])})


def _measure_and_keep_bus(server: ForkServer, file: Path, name: str, devices: list[str]) -> None:
    rates = server.bus_peaks(devices)
    key = measured_key(name, None, len(devices))
    keep_measured(
        file,
        key,
        MeasuredPeaks(bus_gb_per_s=rates, torch=version("torch"), date=dt.datetime.now(dt.UTC).date().isoformat()),
    )
    told = ", ".join(f"{collective} {rate:,.4g} GB/s" for collective, rate in rates.items())
    print(f"\n{key}: bus bandwidth (as nccl-tests counts it) {told}")


def devices_to_measure(machine: MachineInfo) -> list[str]:
    """`cpu`, and the first accelerator of each name: `cuda:0`."""
    first = {
        accelerator.name: f"{kind}:{index}"
        for kind in machine.devices
        if kind != "cpu"
        for index, accelerator in reversed(list(enumerate(machine.accelerators)))
    }
    return ["cpu", *sorted(first.values())]


def beside_datasheet(key: str, peaks: MeasuredPeaks) -> list[str]:
    """The lines of a table: each path, and copying, as measured and as in the datasheet if there is one."""
    sheet = datasheet(key)
    found = [
        (path, peaks.tflop_per_s.get(path), None if sheet is None else sheet.best_tflop_per_s(path), "TFLOP/s")
        for path in PATHS
    ]
    found.append(("copy", peaks.gb_per_s, None if sheet is None else sheet.gb_per_s, "GB/s"))
    rows = [_cells(*one) for one in found if one[1] is not None or one[2] is not None]
    headings, used = used_columns(("path", "measured", "datasheet", "reached"), rows)
    lines = terminal.lines(terminal.indented(terminal.table(headings, used, right=headings[1:])))
    return lines if sheet is None else [*lines, f"  datasheet: {sheet.title}, dense, {sheet.url}"]


def _cells(path: str, measured: float | None, stated: float | None, unit: str) -> list[str]:
    """The path, the measured value, the datasheet's, and the share of it that was reached."""
    values = ["" if value is None else f"{value:,.4g} {unit}" for value in (measured, stated)]
    share = f"{measured / stated:.0%}" if measured is not None and stated is not None else ""
    return [path, *values, share]
