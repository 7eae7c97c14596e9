"""What each mode of torch.compile costs at first and gives afterwards, on GPT-2.

For eager and for inductor's modes `default`, `reduce-overhead`, `max-autotune` and `max-autotune-no-cudagraphs`: the
initial step, which compiles (wall and CPU time, caches cold, one case at a time), the peak of device memory, and the
steady step, in training and in evaluation under AMP. The modes are those of the documentation of `torch.compile`
(https://docs.pytorch.org/docs/stable/generated/torch.compile.html); the models those of the suite `study_modes`.
"""

from __future__ import annotations

from torchzoo.analysis.cases import CaseResult, Status
from torchzoo.analysis.figures import CaseFigures, VariantFigures
from torchzoo.case import EAGER, Backend, Case, Mode, Precision, Settings
from torchzoo.report import markdown, units
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, measured, not_measured

MODES = (None, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

#: One case with its figures.
Line = tuple[CaseResult, CaseFigures]

READING = """## How to read it, and where it can mislead

Each mode ran in a process of its own with empty caches, beside eager in turns: its speedup is against that eager, not
against the eager line of the table, which is a process of its own too. The initial step is one measurement, without an
interval: compilers' own processes work in parallel, so that its wall time depends on the number of cores, its CPU time
less so. *Pays after* is how many steps it takes until the time that compiling cost is won back, from medians, and
counts from the first step. Device memory is the allocator's peak over a few steady steps, weights included; what CUDA
graphs keep for themselves shows in *reserved*. A mode whose CUDA graphs were skipped is that mode in name only.

## Beside other measurements

No published table is set beside this one: none whose figures, model sizes and batch could be checked was at hand when
this was written.
"""


def plan(choice: Choice) -> RunRequest:
    """Eager and four modes of inductor, one case at a time, so that compile times are wall-clock times."""
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites if choice.names_models else ("study_modes",),
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.TRAIN, Mode.EVAL),
            devices=(),
            backends=(EAGER, *(Backend("inductor", option) for option in MODES)),
            precisions=(Precision.AMP,),
        ),
        settings=Settings(),
        jobs=1,
    )


def report(run: Run) -> list[str]:
    """A table for each model and mode, eager first."""
    tables: dict[tuple[str, Mode], list[Line]] = {}
    for line in measured(run):
        tables.setdefault((line[0].case.model, line[0].case.mode), []).append(line)
    lines = []
    if run.manifest.settings.jobs > 1:
        lines += [
            f"**{run.manifest.settings.jobs} cases prepared at once: initial steps shared the host's cores.**",
            "",
        ]
    for (model, mode), of_table in tables.items():
        lines += [f"## {markdown.escape(model)}, {mode}", "", *_table(of_table), ""]
    if not tables:
        lines += ["No case of this run was measured yet.", ""]
    return [*lines, READING, *not_measured(run)]


def _table(lines: list[Line]) -> list[str]:
    headings = (
        "backend",
        "precision",
        "batch",
        "initial step",
        "of CPU time",
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
    return markdown.table(headings, rows)


def _row(result: CaseResult, figures: CaseFigures) -> list[str]:
    compilation = figures.shown.raw.compilation
    speedup = "" if figures.speedup is None else units.speedup(figures.speedup)
    return [
        str(result.case.backend),
        *_measures(result.case, figures.shown),
        f"{speedup}, but its results are wrong" if result.status is Status.INCORRECT else speedup,
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


def _measures(case: Case, figures: VariantFigures) -> list[str]:
    return [
        case.precision,
        str(case.batch_size),
        units.seconds(figures.raw.first_step_s),
        units.seconds(figures.raw.first_step_cpu_s),
        units.size(figures.raw.memory.device_peak_allocated_bytes),
        units.size(figures.raw.memory.device_peak_reserved_bytes),
        units.latency(figures.latency_s),
    ]


def _eager_beside(result: CaseResult, figures: CaseFigures) -> list[str]:
    """Eager as it ran beside a candidate, where it has no case of its own."""
    return [f"eager (beside {result.case.backend})", *_measures(result.case, figures.eager), *[""] * 6]


def pays_after(figures: CaseFigures) -> str:
    """Steps until the time that the candidate's first step cost more than eager's is won back."""
    won_s = figures.eager.latency_s.value - figures.shown.latency_s.value
    if figures.speedup is None or figures.speedup.low <= 1 or won_s <= 0:
        return "never, or not to be told"
    cost_s = figures.shown.raw.first_step_s - figures.eager.raw.first_step_s
    return f"{max(1, 1 + round(cost_s / won_s)):,} steps"
