"""What a compiler gains and costs against eager: time, CPU memory and GPU memory.

The question of Figures 3 and 4 of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226), which compare
TorchInductor with eager in training and in inference: the ratios candidate over eager of the time of a step (T), of the
peak of CPU memory (CM) and of GPU memory (GM), for each model and on average. Below 1 the compiler is better.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.totals import CaseRatios
from torchzoo.case import EAGER, Axes, Backend, Mode
from torchzoo.report.beside import Row, exactly
from torchzoo.report.document import Block, Heading, Text, table
from torchzoo.report.dots import DotRow, Panel, Value
from torchzoo.report.remarks import why_not_alone
from torchzoo.run.request import RunRequest
from torchzoo.settings import CacheMode, Pass, Settings, StageLimits
from torchzoo.stats import STATED_CONFIDENCE, Estimate, scaled
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, by_domain, by_domain_and_mode, counted, not_measured, percent

READING = """## How to read it, and where it can mislead

T is 1 / speedup, as in every report. Eager and the candidate take turns in one process, and the speedup is the median
of the ratios of the quads (4 blocks). Its interval holds at 95%, or at what stands behind it where there are few quads.
The interval of a mean is Student's t over models. CM and GM of a model
have no interval: a peak is one number, and it may be another one in a second run.

Peaks are those of a few steady steps. GM is of the device's allocator, weights included. CM is of the resident memory
of one process. Memory that compiling has left counts: in the candidate's, that of compiling with empty caches. The peak
while it compiles does not count, nor do the compilers' own processes. (A note says so where the kernel does not tell
the peak of these steps alone.) Eager's peak is read in the timed process before anything is compiled. The candidate's
is read in a process of its own, which takes no eager step: so CM and GM may be above or below 1. The libraries are
loaded once for all processes. The libraries count in both peaks, which draws CM towards 1. Where there was no such
process, or it failed, the table of models has the peak beside eager, and a note with the reason if it is known. No mean
of CM or GM counts it.

The first step is of that process too. The caches of inductor and Triton began empty there. The first step is one
measurement, without an interval. Its CPU time has that of the compilers' own processes. Its wall time is longer where
other cases prepare beside it.

The means are over the cases that ran, stayed steady and were not found wrong (*counted*). Results are not checked by
the study's own plan, so none is found wrong there. Where others are left out, a mean may look better than it is. Where
several processes measured a case, T is over all of them; CM, GM and the first step are those of the process whose
latency is the middle one. Notes say what was seen, and give no reasons.
"""

#: The limit of compiling, without the time in which a case is stopped. The longest of 719 compilations by inductor on
#: H200s is DALLE2_pytorch in training: 295 to 365 s in three runs, and more than the limit on a disturbed host
#: (`docs/studies/paper_compilers.md`).
COMPILE_LIMIT_S = 400.0


def plan(choice: Choice) -> RunRequest:
    """Inductor in turns with eager, in both modes, on the paper's 84 models unless others are named.

    The candidate compiles once, in the process that reads its memory; the timed process finds the compiled code in the
    cache. If the first process exceeds its limit, the case continues without its figures, and compiles itself.
    """
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("torchbench"),
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=(), backends=(Backend("inductor"),)),
        settings=Settings(
            time_limit_s=2.0,
            limits=StageLimits(compile_s=COMPILE_LIMIT_S, alone_s=COMPILE_LIMIT_S),
            passes=(Pass.MEMORY_ALONE,),
            cache=CacheMode.WARM,
        ),
    )


INDUCTOR = Backend("inductor")
CPU_MEMORY, GPU_MEMORY = "CPU memory, change of the peak (CM - 1)", "GPU memory, change of the peak (GM - 1)"
GUARDS, REFORMER = "Guards of hf_Reformer", "hf_Reformer"
HEAVY_GUARDS, NO_WEIGHTS = "Heavy guards of hf_Reformer", "torchzoo counts guards, and can't tell which ones are heavy"
NOT_ALONE = "no candidate had a process of its own for memory (--memory-alone)"
SPEEDUP, SLOWER = "Speedup of inductor over eager", "Slower than eager in evaluation"


class Means(NamedTuple):
    """Geometric means over some cases; None if no case has the ratio."""

    speedup: Estimate | None
    time_ratio: Estimate | None
    host_memory_ratio: Estimate | None
    device_memory_ratio: Estimate | None
    alone: int  # cases whose candidate had a process of its own for memory
    with_host_memory: int  # cases among these with the ratio
    with_device_memory: int


def means(results: Sequence[CaseResult], ratios: CaseRatios) -> Means:
    """The means over the cases that passed; of memory, over those with the candidate's own process."""
    passed = [one for one in results if one.passed]
    alone = [one for one in passed if one.figures is not None and one.figures.shown.raw.alone is not None]
    figures = [one.figures for one in alone if one.figures is not None]
    return Means(
        speedup=ratios.geomean("speedup", passed),
        time_ratio=ratios.geomean("time_ratio", passed),
        host_memory_ratio=ratios.geomean("host_memory_ratio", alone),
        device_memory_ratio=ratios.geomean("device_memory_ratio", alone),
        alone=len(alone),
        with_host_memory=sum(one.host_memory_ratio is not None for one in figures),
        with_device_memory=sum(one.device_memory_ratio is not None for one in figures),
    )


def rows(run: Run) -> list[Row]:
    """The means over all models by mode, the two models that the paper found slower, and Reformer's guards."""
    results = [one for one in case_results(run) if one.case.backend == INDUCTOR]
    ratios = CaseRatios(results)
    rows = [Row(table=HEAVY_GUARDS, figure=REFORMER, measured=None, missing=NO_WEIGHTS)]
    for mode in (Mode.TRAIN, Mode.EVAL):
        some = [one for one in results if one.case.mode is mode]
        found = means(some, ratios)
        if found.speedup is None:
            continue
        rows.append(Row(table=SPEEDUP, figure=mode, measured=found.speedup, note=counted(some)))
        passed = sum(one.passed for one in some)
        missing = "this device has no such peak" if found.alone else NOT_ALONE
        for name_of_table, ratio, count in (
            (CPU_MEMORY, found.host_memory_ratio, found.with_host_memory),
            (GPU_MEMORY, found.device_memory_ratio, found.with_device_memory),
        ):
            change = None if ratio is None else scaled(ratio, 100, -100)
            note = f"{count} of the {passed} models that count"
            rows.append(Row(table=name_of_table, figure=mode, measured=change, note=note, missing=missing))
    for name in ("yolov3", REFORMER):
        found_one = next((one for one in results if (one.case.model, one.case.mode) == (name, Mode.EVAL)), None)
        figures = None if found_one is None else found_one.figures
        speedup = None if figures is None else figures.speedup
        why = "no measured case of this run gives it" if found_one is None else found_one.reason
        rows.append(Row(table=SLOWER, figure=name, measured=speedup, missing=why))
    for one in results:
        compilation = one.figures.shown.raw.compilation if one.figures is not None else None
        if one.case.model == REFORMER and compilation is not None and compilation.guards is not None:
            guards = exactly(compilation.guards)
            rows.append(Row(table=GUARDS, figure=f"{REFORMER}, {one.case.mode}", beside=REFORMER, measured=guards))
    return rows


#: The ratios of Figures 3 and 4, with the name of each in `CaseFigures`.
RATIOS = {
    "T: time of a step": "time_ratio",
    "CM: peak of CPU memory": "host_memory_ratio",
    "GM: peak of GPU memory": "device_memory_ratio",
}


def panels(run: Run) -> list[Panel]:
    """The charts of Figures 3 and 4: each ratio of inductor over eager, of the cases in its mean."""
    results = [one for one in case_results(run) if one.case.backend == INDUCTOR and one.passed]
    ratios = CaseRatios(results)
    found = []
    for title, name in RATIOS.items():
        counted = [one for one in results if _counts(one, name)]
        rows = by_domain_and_mode(run, [(one.case, one) for one in counted])
        groups = tuple(_group(*row, some, name, ratios) for row, some in rows.items())
        if groups:
            axis = "candidate / eager: left of 1x the candidate takes less"
            found.append(Panel(title=f"{title}, inductor over eager (Figures 3 and 4)", axis=axis, groups=groups))
    return found


def _counts(result: CaseResult, name: str) -> bool:
    """Whether the mean of this ratio counts the case: ratios of memory need the candidate's own process."""
    figures = result.figures
    if figures is None or getattr(figures, name) is None:
        return False
    return name == "time_ratio" or figures.shown.raw.alone is not None


def _group(domain: str, mode: Mode, some: Sequence[CaseResult], name: str, ratios: CaseRatios) -> DotRow:
    mean = ratios.geomean(name, some)
    assert mean is not None, "each of these cases has the ratio"
    values = tuple(_value(one, name) for one in some)
    return DotRow(name=domain, mode=mode, values=values, mean=mean, count=len(some))


def _value(result: CaseResult, name: str) -> Value:
    ratio = getattr(result.figures, name)
    return Value(name=result.case.label(), value=ratio.value if isinstance(ratio, Estimate) else ratio)


def report(run: Run) -> list[Block | str]:
    """The report for each backend: means by domain with pass rates, then a line for each model."""
    results = [result for result in case_results(run) if result.has_candidate]
    backends = list(dict.fromkeys(case.backend for case in run.manifest.cases if case.backend != EAGER))
    if not backends:
        return ["No case of this run has a backend beside eager: run it with `--backend inductor`."]
    ratios = CaseRatios(results)
    lines: list[Block | str] = [*_waited(run)]
    for backend in backends:
        of_backend = [result for result in results if result.case.backend == backend]
        lines += [Heading(f"{backend}: means per domain"), _means(run, of_backend, ratios)]
        for mode, figure in ((Mode.TRAIN, "Figure 3"), (Mode.EVAL, "Figure 4")):
            rows = [
                (result, figures)
                for result in of_backend
                if result.case.mode is mode and (figures := result.figures) is not None
            ]
            rows.sort(key=lambda one: -_speedup(one[1]))
            if rows:
                headings = ("model", "batch", "T", "CM", "GM", "first step", "of CPU time", "note")
                lines += [Heading(f"{backend}: each model, {mode} (as the paper's {figure})")]
                lines += [table(headings, (_row(*one) for one in rows))]
    return [*lines, READING, *not_measured(run)]


def _waited(run: Run) -> list[str]:
    """A line on the number of cases that prepared at once; empty for one."""
    jobs = max(part.manifest.settings.jobs for part in run.parts)
    if jobs == 1:
        return []
    return [
        f"**Up to {jobs} cases prepared at once, on the same cores, and were stopped while another one was measured. "
        "The wall time of a first step includes both waits; its CPU time includes neither.**",
        "",
    ]


def _speedup(figures: CaseFigures) -> float:
    return 0.0 if figures.speedup is None else figures.speedup.value


def _means(run: Run, results: Sequence[CaseResult], ratios: CaseRatios) -> Block:
    modes = [mode for mode in Mode if any(result.case.mode is mode for result in results)]
    if not modes:
        return Text("No case of this backend has run yet.")
    headings = ["domain"]
    for mode in modes:
        headings += [f"{mode}: T", "CM", "GM", "cases"]
    grouped = {
        mode: by_domain(run, [(one.case.model, one) for one in results if one.case.mode is mode]) for mode in modes
    }
    everywhere = by_domain(run, [(result.case.model, result) for result in results])
    return table(
        headings,
        (
            [domain, *(cell for mode in modes for cell in _cells(grouped[mode].get(domain, []), ratios))]
            for domain in everywhere
        ),
    )


def _cells(results: Sequence[CaseResult], ratios: CaseRatios) -> list[str]:
    """The means T, CM and GM, and the number of cases in each."""
    found = means(results, ratios)
    shown = (found.time_ratio, found.host_memory_ratio, found.device_memory_ratio)
    memory = f"; CM of {found.with_host_memory}, GM of {found.with_device_memory}" if found.time_ratio else ""
    return [*("" if ratio is None else ratio_text(ratio) for ratio in shown), counted(results) + memory]


def ratio_text(estimate: Estimate) -> str:
    """The estimate as `0.770 [0.700, 0.850]`, or the reason why there is no interval."""
    if not estimate.has_interval:
        return f"{estimate.value:.2f} ({estimate.why_no_interval})"
    confidence = "" if estimate.confidence >= 0.95 else f" (at {100 * estimate.confidence:.0f}%)"
    return f"{estimate.value:.3f} [{estimate.low:.3f}, {estimate.high:.3f}]{confidence}"


def _row(result: CaseResult, figures: CaseFigures) -> list[str]:
    time, first_step = figures.time_ratio, figures.shown.cold_first_step
    return [
        result.case.model,
        str(result.case.batch_size),
        "" if time is None else ratio_text(time),
        *("" if one is None else f"{one:.2f}" for one in (figures.host_memory_ratio, figures.device_memory_ratio)),
        *(("", "") if first_step is None else (f"{first_step.wall_s:.1f} s", f"{first_step.cpu_s:.1f} s")),
        "; ".join(_notes(result, figures)),
    ]


def _notes(result: CaseResult, figures: CaseFigures) -> list[str]:
    """Notes on a case: why no mean counts it, that it is slower, and which process gave its memory."""
    time, raw = figures.time_ratio, figures.shown.raw
    found = [] if result.passed else [f"{result.status}, in no mean: {result.reason}"]
    if time is not None and time.value > 1 and time.excludes(1):
        found.append(_slower(figures, time))
    if raw.alone is None:
        why = why_not_alone(raw)
        found.append("memory beside eager" + (f", for its own process gave none ({why})" if why else ""))
    memory = raw.memory if raw.alone is None else raw.alone.memory
    if not (memory.host_peak_is_of_pass and figures.eager.raw.memory.host_peak_is_of_pass):
        found.append("CM is of whole processes, building and compiling included")
    if raw.compilation is not None and (breaks := raw.compilation.break_count):
        found.append(f"{breaks} graph breaks")
    if raw.compilation is not None and raw.compilation.cudagraph_skips:
        found.append(f"CUDA graphs skipped {raw.compilation.cudagraph_skips} times")
    return found


def _slower(figures: CaseFigures, time: Estimate) -> str:
    """`slower than eager (the device works 25.0% of its step, 50.0% of eager's)`, with the confidence."""
    sure = "" if time.confidence >= STATED_CONFIDENCE else f", at {100 * time.confidence:.0f}%"
    own, eagers = figures.shown.device_share, figures.eager.device_share
    text = f"slower than eager{sure}"
    if own is None or eagers is None:
        return text
    return f"{text} (the device works {percent(own)} of its step, {percent(eagers)} of eager's)"
