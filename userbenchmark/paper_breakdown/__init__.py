"""Where the time of a step goes: the device computes, moves data, or idles.

The question of Figures 1 and 2 and of Table 2 of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226): how much
of the wall time of eager training and inference is the GPU at work? Shares per model, averaged per domain.
"""

from __future__ import annotations

from statistics import fmean, median
from typing import NamedTuple

from torchzoo import stats
from torchzoo.analysis.bound import Bound
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.means import mean
from torchzoo.case import EAGER, Axes, Case, Mode
from torchzoo.record import Breakdown
from torchzoo.report import units
from torchzoo.report.beside import Row
from torchzoo.report.document import Block, Heading, Table, section, table
from torchzoo.report.dots import DotRow, Panel, Value
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings
from torchzoo.stats import scaled
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import ALL, Choice, by_domain, by_domain_and_mode, measured, not_measured, percent

BAR_WIDTH = 25

READING = """## How to read it, and where it can mislead

The shares are those of the wall time of steps that ran under torch.profiler, in a pass after the timing. *Active* is
the union of the intervals in which a kernel computes. *Movement* is that of copies and memory sets while no kernel
computes: from host to device, back, and within the device. These are not counted apart, so movement between host and
device alone is at most as much. *Idle* is the rest, so the three add up to 100%. The profiler slows the host down, and
so a model that is bound by kernel launches is idle more than without it. *Without the profiler* is the share of a step
of the latency column in which the device computes or moves data. An active device is not always used well: one small
kernel on one of many multiprocessors counts as active. On the CPU, *active* is time inside operators, and *idle* is
Python and the framework around them.

*Bound by* says why a model idles, by a step that is not profiled: the device, if it works in at least 90% of the time;
the host, which does not hand over work as fast, if the device works in less than half; else both. *Host's loop* is the
time of a short loop of Python beside the timed steps, over that on an undisturbed core: far above 1, other work made
the host slow, and so what it bounds. In the means of a domain every model counts the same, whatever its time.
"""


def plan(choice: Choice) -> RunRequest:
    """Eager, both modes, the paper's 84 models unless others are named."""
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("torchbench"),
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=(), backends=(EAGER,)),
        settings=Settings(time_limit_s=1.0, passes=(Pass.BREAKDOWN, Pass.FLOPS)),
    )


class Shares(NamedTuple):
    """Shares of the wall time, which add up to 1."""

    active: float
    movement: float
    idle: float


def shares(breakdown: Breakdown) -> Shares | None:
    """The shares over all profiled steps together; None if there are no profiled steps."""
    found = stats.shares(breakdown)
    return None if found is None else Shares(found.active.value, found.movement.value, found.idle.value)


class Profiled(NamedTuple):
    """A case of eager with a breakdown."""

    case: Case
    figures: CaseFigures
    shares: Shares
    bound: Bound | None  # bound of a step; None: not known


def profiled(run: Run) -> list[Profiled]:
    """The cases of eager that have a breakdown."""
    return [
        Profiled(result.case, figures, parts, result.bound)
        for result, figures in measured(run)
        if not result.has_candidate
        and (breakdown := figures.eager.raw.breakdown) is not None
        and (parts := shares(breakdown)) is not None
    ]


#: The shares of single models in the paper: the model, the mode and the name of the share.
SINGLE = (
    ("fambench_xlmr", Mode.TRAIN, "active"),
    ("fambench_xlmr", Mode.EVAL, "active"),
    ("vgg16", Mode.TRAIN, "active"),
    ("hf_Reformer", Mode.TRAIN, "movement"),
)


def rows(run: Run) -> list[Row]:
    """The means of Table 2 by domain and mode, with intervals over models, and the paper's single models."""
    found = profiled(run)
    rows = []
    for mode in (Mode.TRAIN, Mode.EVAL):
        parts = by_domain(run, [(one.case.model, one.shares) for one in found if one.case.mode is mode])
        for domain, some in parts.items():
            for name in Shares._fields:
                if domain != ALL or name == "active":
                    value = scaled(mean([getattr(one, name) for one in some], least=0.0, most=1.0), 100)
                    note = "1 model" if len(some) == 1 else f"{len(some)} models"
                    rows.append(Row(table=f"Table 2, {mode}", figure=f"{domain}: {name}", measured=value, note=note))
    of_model = {(one.case.model, one.case.mode): one for one in found}
    for model, mode, name in SINGLE:
        if (one := of_model.get((model, mode))) is not None:
            value = scaled(_share_with_interval(one, name), 100)
            rows.append(Row(table="Single models", figure=f"{model}, {mode}: {name}", measured=value))
    rows.append(Row(table="Single models", figure="pig2: movement", measured=None, missing="the zoo has no pig2"))
    vgg16 = of_model.get(("vgg16", Mode.TRAIN))
    if vgg16 is not None and (flops := vgg16.figures.measured.flops) is not None:
        rate = scaled(stats.inverse(vgg16.figures.eager.latency_s), flops.total / 1e12)
        rows.append(Row(table="Rate of vgg16", figure="vgg16, train: achieved", measured=rate))
    return rows


def _share_with_interval(one: Profiled, name: str) -> stats.Estimate:
    found = one.figures.eager.shares
    assert found is not None, "a case with a breakdown has shares"
    return getattr(found, name)


def panels(run: Run) -> list[Panel]:
    """The chart of Figures 1 and 2: the share in which the device computes, by model."""
    rows = by_domain_and_mode(run, [(one.case, one) for one in profiled(run)])
    groups = tuple(_group(domain, mode, some) for (domain, mode), some in rows.items())
    if not groups:
        return []
    title = "Active: a kernel computes (Figures 1 and 2)"
    return [Panel(title=title, axis="share of the time of a profiled step", groups=groups, is_share=True)]


def _group(domain: str, mode: Mode, some: list[Profiled]) -> DotRow:
    active = mean([one.shares.active for one in some], least=0.0, most=1.0)
    values = tuple(Value(name=one.case.label(), value=one.shares.active) for one in some)
    return DotRow(name=domain, mode=mode, values=values, mean=active, count=len(some))


def report(run: Run) -> list[Block | str]:
    """The report: the spread by domain, then Figures 1 (train) and 2 (eval) with a bar per model."""
    found = profiled(run)
    if not found:
        return [
            "No case of this run has a breakdown: run it with `--breakdown`.",
            "",
            *_problems(run),
            *not_measured(run),
        ]
    lines: list[Block | str] = [Heading("Averages and spread per domain"), _averages(run, found)]
    for mode, figure in ((Mode.TRAIN, "Figure 1"), (Mode.EVAL, "Figure 2")):
        of_mode = [one for one in found if one.case.mode is mode]
        if of_mode:
            lines += [Heading(f"Each model, {mode} (the paper's {figure})"), _bars(of_mode)]
    return [*lines, *_problems(run), READING, *not_measured(run)]


def _problems(run: Run) -> list[Block]:
    """The section of cases whose profile could not be read, with the reasons."""
    found = [
        (result.case.label(), breakdown.problem)
        for result, figures in measured(run)
        if (breakdown := figures.eager.raw.breakdown) is not None and breakdown.problem
    ]
    return section("Measured without a breakdown", table(("case", "why"), found))


def _averages(run: Run, found: list[Profiled]) -> Table:
    modes = [mode for mode in Mode if any(one.case.mode is mode for one in found)]
    grouped = {
        mode: by_domain(run, [(one.case.model, one) for one in found if one.case.mode is mode]) for mode in modes
    }
    headings = ["domain"]
    for mode in modes:
        headings += [f"{mode}: active [lowest to highest]", "movement", "idle", "without the profiler", "models"]
    everywhere = by_domain(run, [(one.case.model, one) for one in found])
    return table(
        headings,
        (
            [domain, *(cell for mode in modes for cell in _mean_cells(grouped[mode].get(domain, [])))]
            for domain in everywhere
        ),
    )


def _mean_cells(found: list[Profiled]) -> list[str]:
    if not found:
        return ["", "", "", "", "0"]
    parts = [one.shares for one in found]
    active, movement, idle = (fmean(column) for column in zip(*parts, strict=True))
    lowest, highest = min(parts).active, max(parts).active
    spread = f" [{percent(lowest)} to {percent(highest)}]" if len(parts) > 1 else ""
    plain = [one.figures.eager.device_share for one in found]
    known = [share for share in plain if share is not None]
    unprofiled = percent(fmean(known)) if len(known) == len(found) else ""
    return [percent(active) + spread, percent(movement), percent(idle), unprofiled, str(len(parts))]


def _bars(found: list[Profiled]) -> Table:
    has_flops = any(one.figures.measured.flops is not None for one in found)
    headings = ["model", "batch", "active", "movement", "idle", "█ active ▒ movement · idle"]
    headings += ["without the profiler", "latency", "bound by", "host's loop"]
    rows = []
    for case, figures, parts, bound in sorted(found, key=lambda one: -one.shares.active):
        latency_s, flops = figures.eager.latency_s, figures.measured.flops
        row = [case.model, str(case.batch_size), *map(percent, parts), bar(parts)]
        share = figures.eager.device_share
        row.append("" if share is None else percent(share))
        row += [units.latency(latency_s), str(bound or ""), _host_loop(figures)]
        if has_flops:
            row.append(f"{flops.total / latency_s.value / 1e12:.3g}" if flops else "")
        rows.append(row)
    return table(headings + (["TFLOP/s"] if has_flops else []), rows)


def _host_loop(figures: CaseFigures) -> str:
    """The time of the host's loop at the timed steps over that on an undisturbed core: `1.03x`."""
    host = figures.measured.host
    if host is None or host.undisturbed_s is None or not host.looks_s:
        return ""
    return f"{median(host.looks_s) / host.undisturbed_s:.2f}x"


def bar(parts: Shares) -> str:
    """The three shares as `BAR_WIDTH` characters."""
    first = round(BAR_WIDTH * parts.active)
    second = round(BAR_WIDTH * (parts.active + parts.movement))
    return "█" * first + "▒" * (second - first) + "·" * (BAR_WIDTH - second)
