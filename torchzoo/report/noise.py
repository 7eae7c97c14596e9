"""The A/A noise floor of a run: how much its cases' figures vary when nothing changes, between processes and within."""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.noise import Noise, noise_of
from torchzoo.report import units
from torchzoo.report.document import Block, Column, Fold, Marked, Text, table
from torchzoo.report.markdown import provenance
from torchzoo.report.text import json_text
from torchzoo.store import Run

COLUMNS = (
    Column("case"),
    Column("latency", is_number=True),
    Column("processes", is_number=True),
    Column("between processes", short="between", is_number=True),
    Column("noise floor", is_number=True),
    Column("compare finds", short="finds", is_number=True),
    Column("over eager's time", short="over eager", is_number=True),
    Column("within a process", short="within", is_number=True),
    Column("bound by", is_number=True),
)
EXPLAINED = Marked(
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


def document(run: Run) -> list[Block]:
    """The figures of each case, the noisiest first, under the machine, versions and date."""
    noises = _noisiest_first(noise_of(run))
    about = Fold((provenance(run.manifest),))
    if not noises:
        return [about, Text(NOTHING)]
    figures = table(COLUMNS, map(_cells, noises), notes=[EXPLAINED])
    return [about, figures, *map(Text, _missing(noises))]


def as_json(run: Run) -> str:
    """All of it, unrounded, in the run's order."""
    return json_text(noise_of(run), indent=1) + "\n"


def _noisiest_first(noises: Sequence[Noise]) -> list[Noise]:
    return sorted(noises, key=lambda noise: -(noise.floor if noise.floor is not None else noise.within or 0.0))
