"""`torchzoo doctor --peaks`: measure what each kind of device here reaches, show it beside its datasheet, keep it."""

from __future__ import annotations

import sys

from torchzoo.analysis.peaks import PATHS, ceilings_file, datasheet, keep_ceilings, read_ceilings
from torchzoo.environment import MachineInfo
from torchzoo.record import MeasuredPeaks
from torchzoo.run.processes import ForkServer


def measure_peaks(server: ForkServer, machine: MachineInfo) -> None:
    """One device of each name, the CPU included, in a process of its own each.

    Raises:
        PeaksFileError: what was measured can't be kept.
        TorchUnusable: a device can't be used.
    """
    file = ceilings_file()
    read_ceilings(file)  # a file that can't be read is said to be so before time is spent
    for device in devices_to_measure(machine):
        print(f"measuring {device} ...", file=sys.stderr, flush=True)
        key, ceilings = server.ceilings(device)
        keep_ceilings(file, key, ceilings)
        print(f"\n{key}, torch {ceilings.torch}: the best of several sizes, each the median of its runs")
        print("\n".join(beside_datasheet(key, ceilings)))
    print(f"\nkept in {file}; reports use it where a device's datasheet says nothing")


def devices_to_measure(machine: MachineInfo) -> list[str]:
    """`cpu`, and the first accelerator of each name: `cuda:0`."""
    first = {
        accelerator.name: f"{kind}:{index}"
        for kind in machine.devices
        if kind != "cpu"
        for index, accelerator in reversed(list(enumerate(machine.accelerators)))
    }
    return ["cpu", *sorted(first.values())]


def beside_datasheet(key: str, ceilings: MeasuredPeaks) -> list[str]:
    """A line for each path and one for copies; those of the datasheet alone too."""
    sheet = datasheet(key)
    lines = []
    for path in PATHS:
        stated = None if sheet is None else sheet.best_tflop_per_s(path)
        measured = ceilings.tflop_per_s.get(path)
        if measured is not None or stated is not None:
            lines.append(_line(path, measured, stated, "TFLOP/s"))
    lines.append(_line("copy", ceilings.gb_per_s, None if sheet is None else sheet.gb_per_s, "GB/s"))
    if sheet is not None:
        lines.append(f"  datasheet: {sheet.title}, dense, {sheet.url}")
    return lines


def _line(what: str, measured: float | None, stated: float | None, unit: str) -> str:
    shown = "-" if measured is None else f"{measured:,.4g} {unit}"
    if stated is None:
        return f"  {what:5} {shown:>16}"
    share = "" if measured is None else f", {measured / stated:.0%} of it"
    return f"  {what:5} {shown:>16}   datasheet {stated:,.4g} {unit}{share}"
