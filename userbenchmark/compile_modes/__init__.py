"""What each mode of torch.compile costs at first and gives afterwards, on GPT-2.

For eager and for inductor's modes `default`, `reduce-overhead`, `max-autotune` and `max-autotune-no-cudagraphs`: the
initial step, which compiles (wall and CPU time, caches cold, one case at a time), the peak of device memory, and the
steady step, in training and in evaluation under AMP. The modes are those of the documentation of `torch.compile`
(https://docs.pytorch.org/docs/stable/generated/torch.compile.html); the models those of the suite `study_modes`.
"""

from __future__ import annotations

from typing import NamedTuple

from torchzoo import stats
from torchzoo.plan import Axes
from torchzoo.record import EAGER, Backend, Case, Measured, Record, Settings, VariantResult
from torchzoo.report import markdown, units
from torchzoo.runs import Asked
from torchzoo.spec import Mode, Precision
from torchzoo.stats import CANDIDATE_VARIANT, EAGER_VARIANT, Estimate
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, measured, not_measured

MODES = (None, "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

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


def plan(choice: Choice) -> Asked:
    """Eager and four modes of inductor, one case at a time, so that compile times are wall-clock times."""
    return Asked(
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


class Line(NamedTuple):
    """One backend of one model and mode."""

    case: Case
    outcome: Measured
    result: VariantResult
    step_s: Estimate
    speedup: Estimate | None


def report(run: Run) -> list[str]:
    """A table for each model and mode, eager first."""
    tables: dict[tuple[str, Mode], list[Line]] = {}
    for record, outcome in measured(run):
        tables.setdefault((record.case.model, record.case.mode), []).append(_line(record, outcome))
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


def _line(record: Record, outcome: Measured) -> Line:
    is_candidate = CANDIDATE_VARIANT in outcome.variants
    variant = CANDIDATE_VARIANT if is_candidate else EAGER_VARIANT
    return Line(
        case=record.case,
        outcome=outcome,
        result=outcome.variants[variant],
        step_s=stats.latency_s(outcome.blocks, variant),
        speedup=stats.speedup(outcome.blocks) if is_candidate else None,
    )


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
    ordered = sorted(lines, key=lambda line: line.case.backend != EAGER)
    rows = [_row(line) for line in ordered]
    if not any(line.case.backend == EAGER for line in lines):
        rows.insert(0, _eager_beside(lines[0]))
    return markdown.table(headings, rows)


def _row(line: Line) -> list[str]:
    compilation = line.result.compilation
    speedup = "" if line.speedup is None else units.speedup(line.speedup)
    return [
        str(line.case.backend),
        *_measures(line.case, line.result, line.step_s),
        f"{speedup}, but its results are wrong" if line.outcome.is_incorrect else speedup,
        "" if line.speedup is None else pays_after(line),
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


def _measures(case: Case, result: VariantResult, step_s: Estimate) -> list[str]:
    return [
        case.precision,
        str(case.batch_size),
        units.seconds(result.first_step_s),
        units.seconds(result.first_step_cpu_s),
        units.size(result.memory.device_peak_allocated_bytes),
        units.size(result.memory.device_peak_reserved_bytes),
        units.latency(step_s),
    ]


def _eager_beside(line: Line) -> list[str]:
    """Eager as it ran beside a candidate, where it has no case of its own."""
    result, step_s = line.outcome.variants[EAGER_VARIANT], stats.latency_s(line.outcome.blocks, EAGER_VARIANT)
    return [f"eager (beside {line.case.backend})", *_measures(line.case, result, step_s), *[""] * 6]


def pays_after(line: Line) -> str:
    """Steps until the time that the candidate's first step cost more than eager's is won back."""
    eager_s = stats.latency_s(line.outcome.blocks, EAGER_VARIANT).value
    won_s = eager_s - line.step_s.value
    if line.speedup is None or line.speedup.low <= 1 or won_s <= 0:
        return "never, or not to be told"
    cost_s = line.result.first_step_s - line.outcome.variants[EAGER_VARIANT].first_step_s
    return f"{max(1, 1 + round(cost_s / won_s)):,} steps"
