"""What a compiler gains and costs against eager: time, CPU memory and GPU memory.

The question of Figures 3 and 4 of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226), which set TorchInductor
against eager in training and in inference: the ratios candidate over eager of the time of a step (T), of the peak of
CPU memory (CM) and of GPU memory (GM), per model and averaged. Below 1 the compiler is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median
from typing import NamedTuple

from torchzoo import stats
from torchzoo.plan import Axes
from torchzoo.record import EAGER, Backend, Failed, Measured, Record, Settings, VariantResult
from torchzoo.report import markdown
from torchzoo.runs import Asked
from torchzoo.spec import Mode
from torchzoo.stats import CANDIDATE_VARIANT, EAGER_VARIANT, Estimate
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, by_domain, measured, not_measured

READING = """## How to read it, and where it can mislead

T is paired: eager and the candidate take turns in one process, and the interval (95%) is of the median of the quads'
ratios; that of a mean is a bootstrap over models and samples. CM and GM have no interval: a peak is one number, and a
second run may differ. GM is the allocator's peak over a few steps, weights included; a pool that CUDA graphs keep
counts where it is in use. CM is the peak resident memory of the process, in which eager ran first and stays: libraries
and both forms of the model are in it, so that CM says what compiling adds to a process and hardly ever falls below 1.
Only cases that ran and were not found wrong count in the means: a pass rate below 100% flatters the means.

## Beside the paper

The paper's Figures 3 and 4 measured TorchInductor of 2023 on an A100 with eager and compiled runs in processes of their
own, so that its CM can show savings that CM here can not. Summaries of the paper by others agree on its mean speedups,
1.30x in training and 1.46x in inference, which are T of 0.77 and 0.68; they could not be checked against the paper's
own text when this was written, and its memory ratios are left out for that reason.
"""


class Ratios(NamedTuple):
    """Candidate over eager; of the time one ratio for each quad, of memory one or none."""

    time: list[float]
    host: float | None
    device: float | None


def plan(choice: Choice) -> Asked:
    """Inductor beside eager, both modes, the paper's 84 models unless others are named."""
    return Asked(
        patterns=choice.patterns,
        suites=choice.suites if choice.names_models else ("torchbench",),
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=(), backends=(Backend("inductor"),)),
        settings=Settings(time_limit_s=2.0),
    )


def ratios(outcome: Measured) -> Ratios:
    """T, CM and GM of a measured case with a candidate."""

    def of(peak: Callable[[VariantResult], int | None]) -> float | None:
        candidate, eager = peak(outcome.variants[CANDIDATE_VARIANT]), peak(outcome.variants[EAGER_VARIANT])
        return candidate / eager if candidate and eager else None

    return Ratios(
        time=[1 / ratio for ratio in stats.quad_ratios(outcome.blocks)],
        host=of(lambda result: result.memory.host_peak_rss_bytes),
        device=of(lambda result: result.memory.device_peak_allocated_bytes),
    )


def report(run: Run) -> list[str]:
    """Per backend: means per domain with pass rates, then a line for each model."""
    backends = list(dict.fromkeys(case.backend for case in run.manifest.cases if case.backend != EAGER))
    if not backends:
        return ["No case of this run has a backend beside eager: run it with `--backend inductor`."]
    lines = []
    for backend in backends:
        of_backend = [one for one in run.records if one.case.backend == backend and one.case.repeat == 0]
        lines += [f"## {backend}: means per domain", "", *_means(run, of_backend), ""]
        for mode, figure in ((Mode.TRAIN, "Figure 3"), (Mode.EVAL, "Figure 4")):
            of_mode = [
                (record, outcome, ratios(outcome))
                for record, outcome in measured(run)
                if record.case.backend == backend and record.case.mode is mode
            ]
            of_mode.sort(key=lambda one: median(one[2].time or [math.inf]))
            if of_mode:
                headings = ("model", "batch", "T", "CM", "GM", "first step", "note")
                lines += [f"## {backend}: each model, {mode} (as the paper's {figure})", ""]
                lines += [*markdown.table(headings, (_row(*one) for one in of_mode)), ""]
    return [*lines, READING, *not_measured(run)]


def _means(run: Run, records: Sequence[Record]) -> list[str]:
    modes = [mode for mode in Mode if any(record.case.mode is mode for record in records)]
    if not modes:
        return ["No case of this backend has run yet."]
    headings = ["domain"]
    for mode in modes:
        headings += [f"{mode}: T", "CM", "GM", "passed"]
    grouped = {
        mode: by_domain(run, [(one.case.model, one) for one in records if one.case.mode is mode]) for mode in modes
    }
    everywhere = by_domain(run, [(record.case.model, record) for record in records])
    return markdown.table(
        headings,
        (
            [domain, *(cell for mode in modes for cell in _cells(grouped[mode].get(domain, [])))]
            for domain in everywhere
        ),
    )


def _cells(records: Sequence[Record]) -> list[str]:
    """Geometric means of T, CM and GM over what passed; how many passed of those that could run."""
    passed = [one.outcome for one in records if isinstance(one.outcome, Measured) and not one.outcome.is_incorrect]
    ran = [one for one in records if isinstance(one.outcome, Measured | Failed)]
    found = [ratios(outcome) for outcome in passed]
    hosts = [[one.host] for one in found if one.host is not None]
    devices = [[one.device] for one in found if one.device is not None]
    times = [one.time for one in found if one.time]
    rate = f"{len(passed)}/{len(ran)}, {100 * len(passed) / len(ran):.0f}%" if ran else "none ran"
    return [*(ratio_text(stats.geomean(samples)) if samples else "" for samples in (times, hosts, devices)), rate]


def ratio_text(estimate: Estimate) -> str:
    """`0.77 [0.70, 0.85]`; a single number has no interval."""
    if estimate.count < 2:
        return f"{estimate.value:.2f}"
    confidence = "" if estimate.confidence >= 0.95 else f" (at {100 * estimate.confidence:.0f}%)"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]{confidence}"


def time_text(time: Sequence[float]) -> str:
    """The median of the quads' ratios with its interval."""
    if len(time) < 2:
        return f"{time[0]:.2f} (one quad)" if time else ""
    return ratio_text(stats.median_estimate(time))


def _row(record: Record, outcome: Measured, found: Ratios) -> list[str]:
    compilation = outcome.variants[CANDIDATE_VARIANT].compilation
    notes = ["results are wrong: not in the means"] if outcome.is_incorrect else []
    if compilation is not None and (breaks := compilation.break_count):
        notes.append(f"{breaks} graph breaks")
    if compilation is not None and compilation.cudagraph_skips:
        notes.append(f"CUDA graphs skipped {compilation.cudagraph_skips} times")
    return [
        record.case.model,
        str(record.case.batch_size),
        time_text(found.time),
        *("" if one is None else f"{one:.2f}" for one in (found.host, found.device)),
        f"{outcome.variants[CANDIDATE_VARIANT].first_step_s:.1f} s",
        "; ".join(notes),
    ]
