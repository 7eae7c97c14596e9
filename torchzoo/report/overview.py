"""The document of a whole report: cases, totals, failures, outliers, devices, commands."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from torchzoo.analysis.cases import CaseResult, ReportData, Status
from torchzoo.analysis.command_lines import shell_line
from torchzoo.analysis.totals import OUTLIER_RULE, Outlier, Overview, Total
from torchzoo.case import Precision
from torchzoo.report import checks, graph_breaks, some_cases, units
from torchzoo.report.columns import BOUND, CANDIDATE, EAGER, MEMORY, SPEEDUP, TIME, FigureColumn
from torchzoo.report.document import Block, Cell, Code, Column, Fold, Heading, Items, Style, Table, Text, section, table
from torchzoo.report.markdown import provenance
from torchzoo.report.remarks import remarks_of, what_failed

TOTALS = (
    Column("group"),
    Column("passed", is_number=True),
    Column("skipped", is_number=True, is_detail=True),
    Column("speedup, passing cases", short="speedup", is_number=True),
    Column("speedup, all cases", short="all", is_number=True),
    Column("coverage", short="cover", is_number=True),
    *(Column(name, is_number=True) for name in ("T", "CM", "GM", "D", "H", "on the reference host")),
)
FIGURES = (EAGER, CANDIDATE, SPEEDUP, BOUND, MEMORY)
#: The columns where another table has the figures of eager.
OWN_FIGURES = (TIME, SPEEDUP, BOUND, MEMORY)
#: How to read the totals, wherever they are shown.
TOTALS_NOTE = (
    "passed: cases that were measured or checked, and not found incorrect or refused, of those that could run (skipped "
    "ones could not). Speedups: geometric means over cases with a backend beside eager, with an interval (95%, "
    "Student's t) over the models, of which fewer than four give none; over all cases, one that failed or is incorrect "
    "counts as 1.0x. Unsteady cases, which were compiled again while they were measured, are in no mean, nor are "
    "refused ones. Coverage: cases with a backend beside eager that passed, of those that could run. T, CM, GM, D, H: "
    "candidate over eager of time, CPU memory (peak resident), GPU memory (peak allocated), of the time in which "
    "the device works in one step, and of the host's work for a step; below 1 the candidate needs less. D and H do not "
    "depend on how fast the host is. The speedup on the reference host follows from them by a model."
)


def before_the_cases(data: ReportData) -> list[Block]:
    """Return where the runs were made, and the backends side by side if there are several."""
    made = provenance(*(run.manifest for run in data.runs))
    memory = "memory: peak allocated on the device, or on the CPU peak resident; of the candidate if there is one"
    by_backend = [*some_cases.several_backends(data.cases), *map(Text, some_cases.disagreements(data.cases))]
    return [Fold((Items((*made.texts, memory)),)), *by_backend]


def cases_table(results: Sequence[CaseResult]) -> Table:
    """Return a row for each case, without the figures of eager if there are several backends: their table has these."""
    columns = OWN_FIGURES if some_cases.has_several_backends(results) else FIGURES
    headings = ("model", "mode", "device", "backend", "precision", "batch", *(one.heading for one in columns), "note")
    return table(headings, (_cells(result, columns) for result in results))


def _cells(result: CaseResult, columns: Sequence[FigureColumn]) -> tuple[str, ...]:
    case = result.case
    axes = msgspec.structs.replace(case, precision=Precision.DEFAULT).axes_label()  # precision has a column of its own
    head = (
        case.model,
        case.mode,
        case.device,
        axes,
        case.precision,
        "-" if case.batch_size is None else str(case.batch_size),
    )
    figures = result.measured_figures
    if figures is None:
        return (*head, *[""] * len(columns), "; ".join(what_failed(result)))
    notes = [f"{figures.processes} processes"] if figures.processes > 1 else []
    return (
        *head,
        *(one.cell(figures) for one in columns),
        "; ".join([*notes, *what_failed(result), *remarks_of(result.measured)]),
    )


def document(data: ReportData, found: Overview) -> list[Block]:
    """Return totals, cases that did not pass, outliers, devices, checks, graph breaks and commands."""
    commands = tuple(result.command for result in data.cases)
    again = (Heading("Commands"), Text("Each measures a row of the first table again."), Code(commands))
    return [
        *(block for title, totals in totals_tables(found) for block in (Heading(f"Summary: {title}"), totals)),
        Text(TOTALS_NOTE),
        *map(Text, notes(data)),
        Fold(tuple(problems(found))),
        *outliers(found),
        *devices(found),
        *checks.document(data.cases),
        *graph_breaks.document(data.cases),
        Fold(again),
    ]


def totals_tables(found: Overview) -> list[tuple[str, Table]]:
    """Return the totals of all cases, then of each kind of speedup, with their titles."""
    tables = []
    for one in found.sections:
        axes = [total.axis for total in one.totals]
        starts = [number for number, axis in enumerate(axes) if not number or axis != axes[number - 1]]
        tables.append((one.title, table(TOTALS, map(_total_cells, one.totals), groups=starts).used()))
    return tables


def _total_cells(total: Total) -> tuple[Cell | str, ...]:
    rate = "" if total.pass_rate is None else f" ({percent(total.pass_rate)})"
    passing, over_all = total.passing, total.over_all
    ratios = (
        *(total.time_ratio, total.host_memory_ratio, total.device_memory_ratio, total.device_time_ratio),
        *(total.host_time_ratio, total.reference_speedup),
    )
    name = total.name if total.name.startswith(total.axis) else f"{total.axis} {total.name}"
    return (
        Cell(name, short=total.name),
        Cell(f"{total.passed} of {total.could_run}{rate}", short=f"{total.passed}/{total.could_run}"),
        str(total.skipped or ""),
        Cell(units.factor(passing), short=units.factor(passing, has_confidence=False)) if passing else "",
        Cell(units.factor(over_all), short=f"{over_all.value:.2f}x") if over_all else "",
        Cell(f"{total.compared} of {total.comparable}", short=f"{total.compared}/{total.comparable}")
        if total.comparable
        else "",
        *("" if ratio is None else f"{ratio.value:.2f}" for ratio in ratios),
    )


def problems(found: Overview) -> list[Block]:
    """Return the cases that are in no mean, with the reasons."""
    kinds = (Status.FAILED, Status.INCORRECT, Status.REFUSED, Status.UNSTEADY, Status.SKIPPED)
    return [
        block
        for kind in kinds
        for block in section(
            f"{kind.capitalize()} ({len(found.by_status[kind])})",
            table(
                ("case", "reason", "command"),
                ((one.case.label(), one.reason, Cell(one.command, style=Style.CODE)) for one in found.by_status[kind]),
            ),
        )
    ]


def outliers(found: Overview, *, has_scores: bool = False) -> list[Block]:
    """Return the cases whose speedup is far from that of their group, with the score if `has_scores`."""
    columns: list[Column | str] = [
        "",
        "case",
        *(Column(name, is_number=True) for name in ("speedup", "usual", "score")),
    ]
    rows = (
        (speed_word(one), one.result.case.label(), f"{one.speedup:.2f}x", f"{one.usual:.2f}x")
        + ((f"{one.score:.1f}",) if has_scores else ())
        for one in found.outliers
    )
    return section("Outliers", table(columns[: 4 + has_scores], rows, notes=[OUTLIER_RULE]))


def devices(found: Overview) -> list[Block]:
    """Return the ratios of each case's times on two devices."""
    rows = ((one.result.case.label(), one.base, units.factor(one.ratio)) for one in found.device_ratios)
    return section("One device against another", table(("case", "against", "times as fast"), rows))


def percent(share: float) -> str:
    """`99.7%`. Only a share of 1 is shown as 100%."""
    text = f"{100 * share:.0f}%"
    return f"{int(1000 * share) / 10}%" if text == "100%" and share < 1 else text


def speed_word(one: Outlier) -> str:
    """`fast` or `slow`."""
    return "fast" if one.score > 0 else "slow"


def notes(data: ReportData) -> list[str]:
    """Say which cases and records the runs lack."""
    found = [run.damage for run in data.runs if run.damage]
    missing = [(data.not_run, "case", "cases"), (data.repeats_not_run, "repeat", "repeats of measured cases")]
    texts = [f"{count} planned {one if count == 1 else many}" for count, one, many in missing if count]
    if texts:
        were = "was" if data.not_run + data.repeats_not_run == 1 else "were"
        resume = f"; on its machine: {shell_line(['torchzoo', 'run', '--resume', str(data.runs[0].path)])}"
        found.append(f"{' and '.join(texts)} {were} not run{resume if len(data.runs) == 1 else ''}")
    if data.superseded:
        found.append(f"{data.superseded} records are left out: a later run has measured the same case again")
    return found
