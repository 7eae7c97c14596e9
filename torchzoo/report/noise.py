"""The A/A noise floor of a run: how much its cases' figures vary when nothing changes, between processes and within."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchzoo.analysis.noise import Noise, noise_of
from torchzoo.report import terminal, units
from torchzoo.report.markdown import escape, provenance, table
from torchzoo.report.text import json_text
from torchzoo.store import Run

HEADINGS = (
    "case",
    "latency",
    "processes",
    "between processes",
    "noise floor",
    "compare finds",
    "over eager's time",
    "within a process",
    "bound by",
)
NARROW_HEADINGS = ("latency", "processes", "between", "noise floor", "finds", "over eager", "within", "bound by")

EXPLAINED = (
    "Between processes: the standard deviation of the processes' medians. Noise floor: without any change, two such "
    "runs with as many processes each differ by more than this only 5 times in 100 (Student's t, for one case). "
    "Compare finds: the least difference that `torchzoo compare` would find between two such runs of all these cases. "
    "Over eager's time: the same for the time over that of eager, which is compared where the host bounds a step. "
    "Within a process: half of the width of the 95% interval of its median. Bound by: what a step waits for, the "
    "device, the host (then the host's own speed counts) or both."
)
NOTHING = "no case of this run was timed, so that nothing is known of noise"
ADVICE = "no repeats, so that noise between processes is not known: measure again with `torchzoo run --repeats 5`"


def _cells(noise: Noise) -> tuple[str, ...]:
    return (
        noise.case.label(),
        units.seconds(noise.latency_s),
        str(noise.processes),
        _percent(noise.between),
        _percent(noise.floor),
        _percent(noise.sees),
        _percent(noise.sees_over_eager),
        _percent(noise.within),
        noise.bound or "-",
    )


def _percent(share: float | None) -> str:
    return "-" if share is None else units.difference(share)


def _missing(noises: Sequence[Noise]) -> list[str]:
    single = [noise.case.label() for noise in noises if noise.floor is None]
    if not single:
        return []
    which = "all cases have" if len(single) == len(noises) else f"{', '.join(single)}: these have"
    return [f"{which} {ADVICE}"]


def on_terminal(run: Run) -> Any:
    """For the terminal: a line of figures for each case, the noisiest first."""
    from rich.console import Group

    noises = _noisiest_first(noise_of(run))
    if not noises:
        return terminal.text(NOTHING)
    figures = terminal.CaseTable(NARROW_HEADINGS, map(_cells, noises), right=NARROW_HEADINGS)
    return Group(figures, *terminal.texts(["", EXPLAINED, *_missing(noises)]))


def markdown(run: Run) -> str:
    """The same in Markdown, under the machine, versions and date."""
    noises = _noisiest_first(noise_of(run))
    if not noises:
        return "\n".join([*provenance(run.manifest), "", NOTHING]) + "\n"
    lines = [*provenance(run.manifest), "", *table(HEADINGS, map(_cells, noises)), "", EXPLAINED]
    for line in _missing(noises):
        lines += ["", escape(line)]
    return "\n".join(lines) + "\n"


def as_json(run: Run) -> str:
    """All of it, unrounded, in the run's order."""
    return json_text(noise_of(run), indent=1) + "\n"


def _noisiest_first(noises: Sequence[Noise]) -> list[Noise]:
    return sorted(noises, key=lambda noise: -(noise.floor if noise.floor is not None else noise.within or 0.0))
