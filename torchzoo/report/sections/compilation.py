"""What compilation did: a few lines of one case's table, and a table over the compiled cases of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from torchzoo.analysis.figures import VariantFigures
from torchzoo.case import EAGER
from torchzoo.record import CANDIDATE_VARIANT, Compilation, Measured, Record
from torchzoo.report import units

#: Reasons shown of a kind in one case's table; `--compile-stats` shows all.
FEW = 5


def lines(columns: Sequence[VariantFigures]) -> list[tuple[str, list[str]]]:
    """A label and a cell for each variant; `-` where Dynamo compiled nothing."""
    counts = [c.raw.compilation if c.raw.compilation and c.raw.compilation.graphs else None for c in columns]

    def cells(of: Callable[[Compilation], str]) -> list[str]:
        return ["-" if c is None else of(c) for c in counts]

    return [
        ("compiling", cells(lambda c: _seconds(c.compile_s))),
        ("graphs, graph breaks", cells(lambda c: f"{c.graphs}, {c.break_count}")),
        ("recompilations", cells(lambda c: "-" if c.compile_s is None else str(len(c.recompilations)))),
        ("guards", cells(lambda c: "-" if c.guards is None else f"{c.guards:,}")),
    ]


def reasons(measured: Measured, *, limit: int | None = FEW) -> Iterator[str]:
    """Each break, recompilation and skipped CUDA graph of the candidate with its place and reason, equal ones once."""
    result = measured.variants.get(CANDIDATE_VARIANT)
    if result is None or result.compilation is None:
        return
    counts = result.compilation
    found = {
        "graph break": [f"{one.place}: {one.reason}" for one in counts.breaks],
        "recompiled": [f"{one.place}: {one.reason}" for one in counts.recompilations],
        "no CUDA graph": list(counts.cudagraph_skip_reasons),
    }
    for what, texts in found.items():
        each = list(Counter(texts).items())
        for text, times in each[:limit]:
            yield f"{what}{f' ({times} times)' if times > 1 else ''}: {text}"
        if limit is not None and len(each) > limit:
            yield f"{what}: {len(each) - limit} more, see --compile-stats or the record"


def table(records: Iterable[Record]) -> list[str]:
    """For each compiled case a heading, its figures and all reasons; nothing for what was not compiled."""
    found = []
    for record in records:
        measured = record.outcome
        if not isinstance(measured, Measured) or record.case.backend == EAGER:
            continue
        result = measured.variants.get(CANDIDATE_VARIANT)
        if result is None or result.compilation is None:
            continue
        counts = result.compilation
        cache = f"cache {counts.cache}, " if counts.cache is not None else "cache "
        figures = [
            f"compiling {_seconds(counts.compile_s)}",
            f"first step {units.seconds(result.first_step_cpu_s)} of CPU time",
            _graphs(counts),
            f"{cache}{counts.cache_hits} hits, {counts.cache_misses} misses",
        ]
        found += [
            record.case.label(),
            f"  {'; '.join(figures)}",
            *(f"  {one}" for one in reasons(measured, limit=None)),
        ]
    return ["compilation", *found] if found else ["compilation: no case was compiled"]


def _graphs(counts: Compilation) -> str:
    """`3 graphs, 2 breaks, 1 recompilation, 120 guards, 0 skipped CUDA graphs`; what was not counted is left out."""
    parts = [_count(counts.graphs, "graph"), _count(counts.break_count, "break")]
    if counts.compile_s is not None:
        parts.append(_count(len(counts.recompilations), "recompilation"))
    if counts.guards is not None:
        parts.append(_count(counts.guards, "guard"))
    if counts.cudagraph_skips:
        parts.append(_count(counts.cudagraph_skips, "skipped CUDA graph"))
    return ", ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _seconds(value_s: float | None) -> str:
    return "-" if value_s is None else units.seconds(value_s)
