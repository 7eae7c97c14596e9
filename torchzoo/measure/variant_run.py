"""Warm up one variant of a case, and hold what is then measured of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.case_ranks import CaseRanks
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.compilation import CompilationWatch, count_compiled, packaged
from torchzoo.measure.finite import loss_scale
from torchzoo.measure.memory import watch_device_peak
from torchzoo.measure.passes import Fields, only_of
from torchzoo.measure.stages import cpu_time_s
from torchzoo.measure.variant import Variant
from torchzoo.measure.warmup import WarmUp, memory_steps, warm_up
from torchzoo.record import BackToBack, Compilation, Memory, VariantResult
from torchzoo.settings import Settings


@dataclass(kw_only=True)
class VariantRun:
    """A variant, and what has been measured of it so far."""

    variant: Variant
    warm: WarmUp
    memory: Memory
    memories: list[Memory]  # of all ranks
    watch: CompilationWatch | None = None
    compilation: Compilation | None = None  # None unless Dynamo or AOTInductor compiled something
    conversion_s: float | None = None  # the part of `warm.first_step_s` before the step itself
    warm_graphs: int = 0  # compiled in the warm-up
    back_to_back: tuple[BackToBack, ...] = ()
    found: list[Fields | Callable[[], Fields]] = field(default_factory=list)  # by passes
    steps: int  # taken before its blocks were timed
    step_s: float  # the time of a steady step: at first as in the warm-up, then as in its window

    def count_late_graphs(self, settings: Settings) -> None:
        """Count again, to include graphs that were compiled after the warm-up: in the memory pass or later."""
        if self.watch is not None and self.compilation is not None and self.compilation.package_bytes is None:
            self.compilation = self.watch.counts(settings.cache, warm_graphs=self.warm_graphs)

    def fields(self) -> dict[str, Any]:
        """Return what passes found so far, by field of the record."""
        return {name: value for one in self.found for name, value in (one() if callable(one) else one).items()}

    def result(self, fields: Fields) -> VariantResult:
        return VariantResult(
            first_step_s=self.warm.first_step_s,
            first_step_cpu_s=self.warm.first_step_cpu_s,
            conversion_s=self.conversion_s,
            first_step_peak_bytes=self.warm.first_step_peak_bytes,
            warmup_s=self.warm.steps_s,
            memory=self.memory,
            back_to_back=self.back_to_back,
            result_is_finite=self.warm.result_is_finite,
            compilation=self.compilation,
            **only_of(VariantResult, fields),
        )


def warmed_up(
    ranks: CaseRanks,
    name: str,
    clock: DeviceClock,
    settings: Settings,
    *,
    make: Callable[[], object] | None = None,
    watch: CompilationWatch | None = None,
) -> VariantRun:
    """Warm a variant up, count what was compiled for it, and read its memory.

    A candidate has a `watch`, and is made by `make`: the time in which a backend traces, exports or compiles before the
    first step counts as part of that step.
    """
    peak, graphs = watch_device_peak(ranks.own.device), (lambda: 0) if watch is None else watch.graphs
    began_ns, cpu_before_s = clock.now_ns(), cpu_time_s()
    if make is not None:
        make()
    made_s, made_cpu_s = (clock.now_ns() - began_ns) / 1e9, cpu_time_s() - cpu_before_s
    variant = ranks.variant(name)
    warm = warm_up(variant, clock, settings, graphs, peak, partial(loss_scale, ranks.own.model))
    if make is not None:
        warm = replace(
            warm, first_step_s=warm.first_step_s + made_s, first_step_cpu_s=warm.first_step_cpu_s + made_cpu_s
        )
    compilation = None
    if watch is not None:
        compilation = packaged(variant.packages, settings.cache) or count_compiled(
            watch, ranks.own.case, settings.cache
        )
    steps = memory_steps(settings, warm)
    memories = ranks.everywhere(CaseRank.memory, name, steps)
    return VariantRun(
        variant=variant,
        warm=warm,
        memory=memories[0],
        memories=memories,
        watch=watch,
        compilation=compilation,
        conversion_s=None if make is None else made_s,
        warm_graphs=0 if compilation is None else compilation.graphs,
        steps=warm.steps + steps,
        step_s=warm.steady_s,
    )
