"""Counts of compilation: lines of one case's table, and the document of `--compile-stats` over the cases of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from torchzoo.analysis.figures import VariantFigures
from torchzoo.record import CANDIDATE_VARIANT, Compilation, Measured, Record, VariantResult
from torchzoo.report import units
from torchzoo.report.document import Block, Column, Heading, Items, Text, section, table

#: How many reasons of one kind a case's own table shows. `--compile-stats` shows all of them.
FEW = 5
FIGURES = ("compiling", "CPU time", "graphs", "breaks", "recompiled", "guards", "skips", "cache hits")
EXPLAINED = (
    "CPU time: of the first step. Breaks: of graphs. Recompiled: functions that were compiled once more. Skips: CUDA "
    "graphs that were not recorded. Cache hits: what the cache held at first, and the graphs that were found in it."
)


def lines(columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """Return lines of a case's table; `-` for a variant of which neither Dynamo nor AOTInductor compiled anything."""
    counts = [c.raw.compilation for c in columns]

    def cells(of: Callable[[Compilation], str | None]) -> list[str]:
        return ["-" if c is None or not (c.graphs or c.package_bytes is not None) else of(c) or "-" for c in counts]

    coverages = [c.raw.coverage for c in columns]
    return [
        ("compiling", cells(_compiling)),
        ("graphs, graph breaks", cells(lambda c: f"{c.graphs}, {c.break_count}" if c.graphs else None)),
        ("operators captured", cells(lambda c: None if c.operators_captured is None else f"{c.operators_captured:,}")),
        ("operators in eager", ["-" if c is None else f"{c.in_eager:,} of {c.operators:,}" for c in coverages]),
        ("functions left to eager", cells(lambda c: str(c.functions_left) if c.functions_left else None)),
        ("recompilations", cells(_recompilations)),
        ("guards", cells(_guards)),
        ("package", cells(lambda c: units.size(c.package_bytes))),
        ("loading the package", cells(lambda c: None if c.load_s is None else units.seconds(c.load_s))),
    ]


def reasons(measured: Measured, *, limit: int | None = FEW) -> Iterator[str]:
    """Yield each break, recompilation and skipped CUDA graph of the candidate, with place and reason, each once."""
    result = measured.variants.get(CANDIDATE_VARIANT)
    if result is None or result.compilation is None:
        return
    counts = result.compilation
    found = {
        "graph break": [": ".join(filter(None, (one.place, one.reason))) for one in counts.breaks],
        "recompiled": [f"{one.place}: {one.reason}" for one in counts.recompilations],
        "no CUDA graph": list(counts.cudagraph_skip_reasons),
    }
    for what, texts in found.items():
        each = list(Counter(texts).items())
        for text, times in each[:limit]:
            yield f"{what}{f' ({times} times)' if times > 1 else ''}: {text}"
        if limit is not None and len(each) > limit:
            yield f"{what}: {len(each) - limit} more, see --compile-stats or the record"


def document(records: Iterable[Record]) -> list[Block]:
    """Return a table of the compiled cases, then the package and the reasons of each case."""
    rows: list[list[str]] = []
    details: list[Block] = []
    for record in records:
        outcome = record.outcome
        result = outcome.variants.get(CANDIDATE_VARIANT) if isinstance(outcome, Measured) else None
        if not isinstance(outcome, Measured) or result is None or result.compilation is None:
            continue
        label, counts = record.case.label(), result.compilation
        rows.append([label, *_cells(result, counts)])
        some = list(reasons(outcome, limit=None))
        if counts.package_bytes is not None and counts.load_s is not None:
            package = f"package: {units.size(counts.package_bytes)}, loaded in {units.seconds(counts.load_s)}"
            some.insert(0, package)
        details += [Heading(label, level=3), Items(tuple(some))] if some else []
    if not rows:
        return [Text("compilation: no case was compiled")]
    columns = (Column("case"), *(Column(figure, is_number=True) for figure in FIGURES))
    return [*section("compilation", table(columns, rows, notes=[EXPLAINED])), *details]


def _cells(result: VariantResult, counts: Compilation) -> list[str]:
    hits = f"{counts.cache_hits} of {counts.cache_hits + counts.cache_misses}"
    return [
        _compiling(counts),
        units.seconds(result.first_step_cpu_s),
        str(counts.graphs),
        str(counts.break_count),
        _recompilations(counts),
        _guards(counts),
        str(counts.cudagraph_skips),
        hits if counts.cache is None else f"{counts.cache}, {hits}",
    ]


def _compiling(counts: Compilation) -> str:
    return "-" if counts.compile_s is None else units.seconds(counts.compile_s)


def _recompilations(counts: Compilation) -> str:
    """Count them; `-` if nothing counted them, and for a package, which nothing compiles again."""
    return "-" if counts.compile_s is None or not counts.graphs else str(len(counts.recompilations))


def _guards(counts: Compilation) -> str:
    return "-" if counts.guards is None else f"{counts.guards:,}"
