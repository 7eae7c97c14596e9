"""Where the time of a step goes: the device computes, moves data, or idles.

The question of Figures 1 and 2 and of Table 2 of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226): how much
of the wall time of eager training and inference is the GPU at work? Shares per model, averaged per domain.
"""

from __future__ import annotations

from statistics import fmean
from typing import NamedTuple

from torchzoo import stats
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import EAGER, Case, Mode
from torchzoo.record import Breakdown
from torchzoo.report import markdown, units
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, by_domain, measured, not_measured, percent

BAR_WIDTH = 25

READING = """## How to read it, and where it can mislead

The shares are those of the wall time of steps that ran under torch.profiler, in a pass after the timing. *Active* is
the union of the intervals in which a kernel computes. *Movement* is that of copies and fills while no kernel computes.
*Idle* is the rest, so the three add up to 100%. The profiler slows the host down. So a model that is bound by kernel
launches is idle somewhat more here than in a step of the latency column. An active device is not always used well: one
small kernel on one of many multiprocessors counts as active. On the CPU, *active* is time inside operators, and *idle*
is Python and the framework around them. In the means of a domain every model counts the same, whatever its time.

## Beside the paper

The paper measured an A100 (40 GB) with PyTorch of 2023, with other batch sizes, and with input data on the host for
some models. Here the inputs are on the device before a step begins, so *movement* is only what the model itself does.
The paper's Table 2 by domain is not shown here: its figures could not be checked against the paper's own text when this
was written. Summaries of the paper by others quote about 56% active on average over all its models.
"""


def plan(choice: Choice) -> RunRequest:
    """Eager, both modes, the paper's 84 models unless others are named."""
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites if choice.names_models else ("torchbench",),
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=(), backends=(EAGER,)),
        settings=Settings(time_limit_s=1.0, passes=(Pass.BREAKDOWN, Pass.FLOPS)),
    )


class Shares(NamedTuple):
    """Parts of the wall time, which add up to 1."""

    active: float
    movement: float
    idle: float


def shares(breakdown: Breakdown) -> Shares | None:
    """The shares over all profiled steps together; None if the profiler recorded no steps."""
    found = stats.shares(breakdown)
    return None if found is None else Shares(found.active.value, found.movement.value, found.idle.value)


class Profiled(NamedTuple):
    """A case of eager with a breakdown."""

    case: Case
    figures: CaseFigures
    shares: Shares


def report(run: Run) -> list[str]:
    """Table 2's averages per domain, then Figures 1 (train) and 2 (eval): a bar per model."""
    found = [
        Profiled(result.case, figures, parts)
        for result, figures in measured(run)
        if not result.has_candidate
        and (breakdown := figures.eager.raw.breakdown) is not None
        and (parts := shares(breakdown)) is not None
    ]
    if not found:
        return [
            "No case of this run has a breakdown: run it with `--breakdown`.",
            "",
            *_problems(run),
            *not_measured(run),
        ]
    lines = ["## Averages per domain (the paper's Table 2)", "", *_averages(run, found), ""]
    for mode, figure in ((Mode.TRAIN, "Figure 1"), (Mode.EVAL, "Figure 2")):
        of_mode = [one for one in found if one.case.mode is mode]
        if of_mode:
            lines += [f"## Each model, {mode} (the paper's {figure})", "", *_bars(of_mode), ""]
    return [*lines, *_problems(run), READING, *not_measured(run)]


def _problems(run: Run) -> list[str]:
    """The cases whose profile could not be read, and why."""
    found = [
        (result.case.label(), breakdown.problem)
        for result, figures in measured(run)
        if (breakdown := figures.eager.raw.breakdown) is not None and breakdown.problem
    ]
    return ["## Measured without a breakdown", "", *markdown.table(("case", "why"), found), ""] if found else []


def _averages(run: Run, found: list[Profiled]) -> list[str]:
    modes = [mode for mode in Mode if any(one.case.mode is mode for one in found)]
    grouped = {
        mode: by_domain(run, [(one.case.model, one.shares) for one in found if one.case.mode is mode]) for mode in modes
    }
    headings = ["domain"]
    for mode in modes:
        headings += [f"{mode}: active [lowest to highest]", "movement", "idle", "models"]
    everywhere = by_domain(run, [(one.case.model, one.shares) for one in found])
    return markdown.table(
        headings,
        (
            [domain, *(cell for mode in modes for cell in _mean_cells(grouped[mode].get(domain, [])))]
            for domain in everywhere
        ),
    )


def _mean_cells(parts: list[Shares]) -> list[str]:
    if not parts:
        return ["", "", "", "0"]
    active, movement, idle = (fmean(column) for column in zip(*parts, strict=True))
    lowest, highest = min(parts).active, max(parts).active
    spread = f" [{percent(lowest)} to {percent(highest)}]" if len(parts) > 1 else ""
    return [percent(active) + spread, percent(movement), percent(idle), str(len(parts))]


def _bars(found: list[Profiled]) -> list[str]:
    has_flops = any(one.figures.measured.flops is not None for one in found)
    headings = ["model", "batch", "active", "movement", "idle", "█ active ▒ movement · idle", "latency"]
    rows = []
    for case, figures, parts in sorted(found, key=lambda one: -one.shares.active):
        latency_s, flops = figures.eager.latency_s, figures.measured.flops
        row = [case.model, str(case.batch_size), *map(percent, parts), bar(parts)]
        row.append(units.latency(latency_s))
        if has_flops:
            row.append(f"{flops.total / latency_s.value / 1e12:.3g}" if flops else "")
        rows.append(row)
    return markdown.table(headings + (["TFLOP/s"] if has_flops else []), rows)


def bar(parts: Shares) -> str:
    """The three shares as `BAR_WIDTH` characters."""
    first = round(BAR_WIDTH * parts.active)
    second = round(BAR_WIDTH * (parts.active + parts.movement))
    return "█" * first + "▒" * (second - first) + "·" * (BAR_WIDTH - second)
