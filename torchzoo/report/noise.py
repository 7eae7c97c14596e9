"""The A/A noise floor of a run: how far its cases' figures move when nothing changes, between processes and within."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from torchzoo.analysis.noise import Noise, noise_of
from torchzoo.report import units
from torchzoo.report.markdown import provenance, table
from torchzoo.store import Run

HEADINGS = ("case", "latency", "processes", "between processes", "noise floor", "within a process", "bound by")

EXPLAINED = (
    "Between processes: the standard deviation of their medians. Noise floor: a difference between two such runs, of "
    "as many processes each, that no change at all exceeds 5 times in 100 (Student's t, for one case). Within a "
    "process: half of the 95% interval of its median. Bound by: the device, where the host hands it a step's work in "
    "half of the step's time, else the host, whose own speed then counts."
)
ADVICE = "no repeats, so that noise between processes is not known: measure again with `torchzoo run --repeats 5`"


def _cells(noise: Noise) -> tuple[str, ...]:
    return (
        noise.case.label(),
        units.seconds(noise.latency_s),
        str(noise.processes),
        _percent(noise.between),
        _percent(noise.floor),
        _percent(noise.within),
        "device" if noise.is_device_bound else "host",
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}%"


def _missing(noises: Sequence[Noise]) -> list[str]:
    single = [noise.case.label() for noise in noises if noise.floor is None]
    if not single:
        return []
    which = "all cases have" if len(single) == len(noises) else f"{', '.join(single)}: these have"
    return [f"{which} {ADVICE}"]


def terminal(run: Run) -> Any:
    """For the terminal, 80 columns wide, the noisiest first: a line for the case, one for its figures."""
    from rich.text import Text

    noises = _noisiest_first(noise_of(run))
    headings = ("latency", "processes", "between", "noise floor", "within", "bound by")
    lines = ["".join(f"{heading:>13}" for heading in headings)]
    for noise in noises:
        label, *cells = _cells(noise)
        lines += [label, "".join(f"{cell:>13}" for cell in cells)]
    return Text("\n".join([*lines, "", EXPLAINED, *_missing(noises)]))


def markdown(run: Run) -> str:
    """The same under machine, versions and date."""
    noises = _noisiest_first(noise_of(run))
    lines = [*provenance(run.manifest), "", *table(HEADINGS, map(_cells, noises)), "", EXPLAINED]
    for line in _missing(noises):
        lines += ["", line]
    return "\n".join(lines) + "\n"


def as_json(run: Run) -> str:
    """All of it, unrounded, in the run's order."""
    return msgspec.json.format(msgspec.json.encode(noise_of(run)), indent=1).decode() + "\n"


def _noisiest_first(noises: Sequence[Noise]) -> list[Noise]:
    return sorted(noises, key=lambda noise: -(noise.floor if noise.floor is not None else noise.within or 0.0))
