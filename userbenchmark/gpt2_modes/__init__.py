"""What each mode of torch.compile costs at first and gains afterwards, on GPT-2.

For eager and for inductor's modes `default`, `reduce-overhead` and `max-autotune`: the initial step, which compiles
(wall and CPU time, caches empty, one case at a time), the peak of device memory, and the steady step, in training and
in evaluation under AMP. A blog of 2023 has such a table for GPT-2 XL, of these modes. `torch.compile` has one more,
`max-autotune-no-cudagraphs`, which `--backend` takes, too
(https://docs.pytorch.org/docs/stable/generated/torch.compile.html). The models are those of the suite `study_modes`:
GPT-2 XL, and the smallest GPT-2, since the blog's memory is too small for the weights, gradients and Adam's moments of
GPT-2 XL.
"""

from __future__ import annotations

from torchzoo.analysis.bound import bound_of
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures, VariantFigures
from torchzoo.case import EAGER, Axes, Backend, Case, Mode, Precision
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import markdown, units
from torchzoo.report.beside import Row, exactly
from torchzoo.report.document import Block, Heading, Items, Marked, Table, table
from torchzoo.run.request import RunRequest
from torchzoo.settings import CacheMode, Pass, Settings
from torchzoo.stats import Estimate, scaled
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, measured, not_measured, speedup_of

PUBLISHED_MODES = ("eager", "default", "reduce-overhead", "max-autotune")

#: Tokens of a sequence, by model and mode, from the models' folders, since records lack them.
LENGTHS = {
    ("hf_GPT2", Mode.TRAIN): 512,
    ("hf_GPT2", Mode.EVAL): 1024,
    ("hf_GPT2_xl", Mode.TRAIN): 512,
    ("hf_GPT2_xl", Mode.EVAL): 512,
}
MODES = (None, "reduce-overhead", "max-autotune")

NOT_COLD = "no process began with empty caches of compiled code"

#: A case with its figures.
Line = tuple[CaseResult, CaseFigures]

READING = """## How to read it, and where it can mislead

Each mode ran in two processes. The first began with empty caches of compiled code and took no eager step: the initial
step is of that one. The second found the compiled code in the cache and took turns with eager. The speedup is against
that eager, not against the eager line of the table, which comes from another process. The initial step is one
measurement, without an interval; it is left out where no process began with empty caches. Compilers use several
processes at once, so its wall time depends on the number of cores, its CPU time less. *Pays after* is the number of
steps after which the time that compiling cost is regained. The number is computed from medians and includes the first
step. Device memory is the allocator's peak over a few steady steps, weights included. Memory that CUDA graphs keep is
part of *reserved*. If its CUDA graphs were skipped, a mode did not run as intended.

*Where the time of a step goes* tells why a mode is slower or faster than eager. (On the CPU this is not known, and the
part is missing.) A step has two parts: the device works (kernels, copies and memory sets), or it waits for the host. If
a mode makes the device work less and the step is not faster, the host limits the step: it does not hand over the work
as fast. The device bounds a step if it works in at least 90% of the time; the host does if the device works in less
than half; else both do. The device's time and the number of kernels are those of one step under the profiler. Both have
no interval. In a CUDA graph each kernel counts, though the host launches them all at once.
"""


def plan(choice: Choice) -> RunRequest:
    """Eager and three modes of inductor. One case at a time, so that no other case makes compiling slower.

    Each mode compiles once, in the process that reads the memory of its first step; the timed process finds the
    compiled code in the cache. Autotuning takes minutes.
    """
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("study_modes"),
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.TRAIN, Mode.EVAL),
            devices=(),
            backends=(EAGER, *(Backend("inductor", option) for option in MODES)),
            precisions=(Precision.AMP,),
            eager_alone=True,
        ),
        settings=Settings(passes=(Pass.MEMORY_ALONE,), cache=CacheMode.WARM),
        jobs=1,
    )


def rows(run: Run) -> list[Row]:
    """The blog's table for each model: first step, its memory, a training and an evaluation step, by mode.

    The first step is that of training. A mode's memory is that of a process without eager: after eager, gradients and
    the optimizer's state would already exist.
    """
    rows = []
    for result, figures in measured(run):
        case, shown = result.case, figures.shown
        if case.mode.generates:
            continue
        is_mode = case.backend.name == "inductor"
        published = case.backend.option or "default" if is_mode else str(case.backend)
        name = f"{case.model}, {published}"
        length = LENGTHS.get((case.model, case.mode))
        about = f"batch {case.batch_size}" + (f", {length:,} tokens" if length else "")
        about = "; ".join(filter(None, (about, result.reason)))
        beside = published if published in PUBLISHED_MODES else ""

        peak, missing = first_step_peak_bytes(figures), "no peak of the first step is known here"
        if result.has_candidate and shown.raw.alone is None:
            missing = "only a process without eager gives it, and there was none (--memory-alone)"

        def row(
            table: str,
            value: Estimate | None,
            *,
            name: str = name,
            beside: str = beside,
            note: str = about,
            missing: str = missing,
        ) -> Row:
            return Row(table=table, figure=name, beside=beside, measured=value, note=note, missing=missing)

        if case.mode is Mode.TRAIN:
            first_step = shown.cold_first_step
            first = None if first_step is None else exactly(first_step.wall_s)
            rows.append(row("First step", first, missing=NOT_COLD))
            rows.append(row("Memory of the first step", None if peak is None else exactly(peak / 2**20)))
        rows.append(row(f"A step, {case.mode}", scaled(shown.latency_s, 1e3)))
    return rows


def first_step_peak_bytes(figures: CaseFigures) -> int | None:
    """The peak of device memory in the first step; for a mode, of a process without eager. None if not known."""
    if figures.candidate is None:
        return figures.eager.raw.first_step_peak_bytes
    alone = figures.candidate.raw.alone
    return None if alone is None else alone.first_step_peak_bytes


def report(run: Run) -> list[Block | str]:
    """The report for each model and mode, eager first: costs and gains of compiling, and the time of a step."""
    tables: dict[tuple[str, Mode], list[Line]] = {}
    for line in measured(run):
        tables.setdefault((line[0].case.model, line[0].case.mode), []).append(line)
    lines: list[Block | str] = []
    if run.manifest.settings.jobs > 1:
        jobs = run.manifest.settings.jobs
        lines.append(f"**{jobs} cases prepared at once: their initial steps shared the host's cores.**")
    for (model, mode), of_table in tables.items():
        title = f"{model}, {mode}"
        lines += [Heading(title), _table(of_table), *_where_time_goes(title, of_table)]
    if not tables:
        lines += ["No case of this run was measured yet.", ""]
    return [*lines, READING, *not_measured(run)]


def _table(lines: list[Line]) -> Table:
    headings = (
        "backend",
        "precision",
        "batch",
        "initial step",
        "of CPU time",
        "memory of the initial step",
        "peak allocated",
        "reserved",
        "step",
        "speedup over eager",
        "pays after",
        "graphs",
        "breaks",
        "CUDA-graph skips",
        "cache",
    )
    ordered = sorted(lines, key=lambda line: line[0].has_candidate)
    rows = [_row(*line) for line in ordered]
    if all(result.has_candidate for result, _ in lines):
        rows.insert(0, _eager_beside(*lines[0]))
    return table(headings, rows)


def _row(result: CaseResult, figures: CaseFigures) -> list[str]:
    compilation = figures.shown.raw.compilation
    return [
        str(result.case.backend),
        *_measures(result.case, figures.shown, first_step_peak_bytes(figures)),
        speedup_of(result, figures),
        "" if figures.speedup is None else pays_after(figures),
        *(
            ("", "", "", "")
            if compilation is None
            else (
                str(compilation.graphs),
                str(compilation.break_count),
                str(compilation.cudagraph_skips),
                str(compilation.cache or ""),
            )
        ),
    ]


def _measures(case: Case, figures: VariantFigures, first_step_bytes: int | None) -> list[str]:
    first_step = figures.cold_first_step
    return [
        case.precision,
        str(case.batch_size),
        *(("", "") if first_step is None else map(units.seconds, first_step)),
        units.size(first_step_bytes),
        units.size(figures.raw.memory.device_peak_allocated_bytes),
        units.size(figures.raw.memory.device_peak_reserved_bytes),
        units.latency(figures.latency_s),
    ]


def _eager_beside(result: CaseResult, figures: CaseFigures) -> list[str]:
    """The line of eager from a candidate's process, for a run without a case of eager alone."""
    measures = _measures(result.case, figures.eager, figures.eager.raw.first_step_peak_bytes)
    return [f"eager (beside {result.case.backend})", *measures, *[""] * 6]


def _where_time_goes(title: str, lines: list[Line]) -> list[Block]:
    """The device's time of work and waiting in a step of each mode, and the change from eager in the same process.

    Empty if the device's time is not known, as on the CPU.
    """
    rows, changes = [], []
    for result, figures in sorted(lines, key=lambda line: line[0].has_candidate):
        variants = [(str(result.case.backend), CANDIDATE_VARIANT, figures.candidate)] if figures.candidate else []
        beside = f"eager (beside {result.case.backend})" if figures.candidate else "eager"
        variants.insert(0, (beside, EAGER_VARIANT, figures.eager))
        for name, variant, one in variants:
            if (active_s := one.raw.device_active_s) is not None and one.device_share is not None:
                kernels = one.raw.device_kernels
                rows.append(
                    [
                        name,
                        units.latency(one.latency_s),
                        f"{units.seconds(active_s)}, {one.device_share:.0%}",
                        units.seconds(_waits_s(one.latency_s.value, active_s)),
                        str(bound_of(figures.measured, variant) or ""),
                        "" if kernels is None else f"{kernels:,}",
                    ]
                )
        changes += [] if (change := _change(result, figures)) is None else [Marked(change)]
    if not rows:
        return []
    headings = ("backend", "step", "the device works", "it waits", "bound by", "kernels of a step")
    return [
        Heading(f"Where the time of a step goes: {title}", level=3),
        table(headings, rows),
        *([Items(tuple(changes))] if changes else []),
    ]


def _waits_s(step_s: float, active_s: float) -> float:
    """The time in which the device does not work in a step."""
    return max(0.0, step_s - active_s)


def _change(result: CaseResult, figures: CaseFigures) -> str | None:
    """The measured reason why a mode's step is slower or faster than eager's in turns with it, or None."""
    mode, eager = figures.candidate, figures.eager
    if mode is None or mode.raw.device_active_s is None or eager.raw.device_active_s is None:
        return None
    step_s, of_eager_s = mode.latency_s.value, eager.latency_s.value
    works_s, eager_works_s = mode.raw.device_active_s, eager.raw.device_active_s
    waits_s, eager_waits_s = _waits_s(step_s, works_s), _waits_s(of_eager_s, eager_works_s)
    text = (
        f"{markdown.code(str(result.case.backend))}: a step takes {_more(step_s - of_eager_s)} than eager's beside it. "
        f"The device works {_more(works_s - eager_works_s)}, and waits {_more(waits_s - eager_waits_s)}."
    )
    kernels, of_eager = mode.raw.device_kernels, eager.raw.device_kernels
    if kernels is not None and of_eager is not None:
        text += f" It runs {kernels:,} kernels, eager {of_eager:,}."
    is_sure = figures.speedup is not None and figures.speedup.surely_excludes(1.0)
    return text if is_sure else f"{text} (No difference of the whole step is sure.)"


def _more(difference_s: float) -> str:
    """A difference in words: `1.20 ms more`."""
    return f"{units.seconds(abs(difference_s))} {'more' if difference_s >= 0 else 'less'}"


def pays_after(figures: CaseFigures) -> str:
    """The number of steps that regain the extra time of the candidate's first step over eager's."""
    gain_s = figures.eager.latency_s.value - figures.shown.latency_s.value
    first, of_eager = figures.shown.cold_first_step, figures.eager.cold_first_step
    is_faster = figures.speedup is not None and figures.speedup.surely_excludes(1.0) and figures.speedup.value > 1
    if not is_faster or gain_s <= 0 or first is None or of_eager is None:
        return "never, or not known"
    cost_s = first.wall_s - of_eager.wall_s
    return f"{max(1, 1 + round(cost_s / gain_s)):,} steps"
