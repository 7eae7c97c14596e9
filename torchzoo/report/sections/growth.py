"""Growth of memory over many steps, in words: a line of one case's table, and a remark if something leaks."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis import leaks
from torchzoo.analysis.leaks import LeakCheck, LeakVerdict, Measure
from torchzoo.record import Growth, VariantResult
from torchzoo.report import units


def lines(results: Sequence[VariantResult]) -> list[tuple[str, list[str]]]:
    """A label and a cell for each variant; `-` if growth was not measured."""
    return [("growth of memory", ["-" if r.growth is None else _cell(r.growth) for r in results])]


def remark(growth: Growth | None) -> str | None:
    """What leaks, and how much a step; None if nothing does."""
    found = leaks.check(growth) if growth is not None else None
    return (
        f"its memory leaks: {_growing(found, LeakVerdict.LEAK)}"
        if found and found.verdict is LeakVerdict.LEAK
        else None
    )


def _cell(growth: Growth) -> str:
    found = leaks.check(growth)
    if found.verdict is LeakVerdict.LEVEL:
        return f"none in {len(growth.host_bytes)} steps"
    return f"{found.verdict}: {_growing(found, found.verdict)}"


def _growing(found: LeakCheck, verdict: LeakVerdict) -> str:
    """`1.00 MiB a step of the heap, 2 Python objects a step`: the measures that have this verdict."""
    return ", ".join(_amount(what, found.slopes[what].value) for what, one in found.verdicts.items() if one is verdict)


def _amount(measure: Measure, per_step: float) -> str:
    if measure is Measure.PYTHON:
        return f"{per_step:.3g} Python objects a step"
    where = {Measure.DEVICE: "on the device", Measure.HEAP: "of the heap", Measure.HOST: "of the host's memory"}
    return f"{units.size(round(per_step))} a step {where[measure]}"
