"""How cases are measured: the settings of a run, the stages that a case goes through, and their limits."""

from __future__ import annotations

import enum
import math

import msgspec

from torchzoo.bounds import Count, LimitSeconds, PositiveAmount, PositiveCount


class Stage(enum.StrEnum):
    """What a worker is doing; on a failure, what it was doing."""

    PLAN = "plan"
    START = "start"
    PRIME = "prime"  # a process before this one fills the compile caches
    ALONE = "alone"  # a process before this one reads the memory of the candidate without eager
    IMPORT = "import"
    BUILD = "build"
    PREPARE = "prepare"
    WARM_UP = "warm_up"
    COMPILE = "compile"
    WAIT = "wait"  # for the window in which the case is measured alone
    MEASURE = "measure"
    EXAMINE = "examine"  # what needs no quiet machine: growth of memory, operations, the API surface
    HOLD = "hold"  # until there is memory for the check; the measured model is gone
    CHECK = "check"  # of results, on models of its own


class Pass(enum.StrEnum):
    """What a run may ask for beside time and memory. Each pass has steps of its own, apart from the timing."""

    BREAKDOWN = "breakdown"
    OP_SHAPES = "op_shapes"
    ENERGY = "energy"
    FLOPS = "flops"
    API = "api"
    MEMORY_ALONE = "memory_alone"
    LEAK_CHECK = "leak_check"
    CHECK = "check"
    CHECK_ONLY = "check_only"  # the check without what all others come after: nothing is timed


#: The worker itself ends the process in which the candidate is alone. It has so long to do it.
TO_END_IT_S = 30.0


class StageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stage may take."""

    build_s: LimitSeconds = 600.0  # each stage that is not named below
    compile_s: LimitSeconds = 900.0  # compiling with its warm-up, filling caches, examining, and the check
    measure_s: LimitSeconds = 300.0  # the window
    alone_s: LimitSeconds = 900.0  # the candidate in a process of its own; the case goes on without it

    def of(self, stage: Stage) -> float:
        """The limit of a stage in seconds. Waiting has none: it is not the worker's fault."""
        if stage in (Stage.WAIT, Stage.HOLD):
            return math.inf
        limits = {
            Stage.COMPILE: self.compile_s,
            Stage.PRIME: self.compile_s,
            Stage.ALONE: self.alone_s + TO_END_IT_S,
            Stage.MEASURE: self.measure_s,
            Stage.EXAMINE: self.compile_s,
            Stage.CHECK: self.compile_s,  # it may compile once more
        }
        return limits.get(stage, self.build_s)


class CacheMode(enum.StrEnum):
    """What the compilers' caches hold when a case begins to compile."""

    COLD = "cold"  # nothing: each case has an empty folder of its own
    WARM = "warm"  # what one earlier compilation of the same case left, in a process of its own
    SHARED = "shared"  # what earlier cases, of this run and of others, left in one folder


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How every case of a run is measured."""

    target_half_width: PositiveAmount = 0.01  # of the 95% interval of the figure, relative to the figure
    min_samples: Count = 10
    min_time_s: LimitSeconds = 0.5
    time_limit_s: LimitSeconds = 10.0  # of the interleaved latency pass
    block_s: LimitSeconds = 0.02  # one variant runs this long (or one step), then the other has its turn
    warmup_min_steps: PositiveCount = 3
    warmup_max_steps: PositiveCount = 10
    warmup_limit_s: LimitSeconds = 10.0
    compiling_max_steps: PositiveCount = 40  # of the warm-up, while its steps still compile
    compiling_limit_s: LimitSeconds = 120.0
    memory_steps: PositiveCount = 3  # fewer (at least one) where they would take more than two seconds
    threads: PositiveCount | None = None  # None: PyTorch's own choice
    jobs: PositiveCount = 1  # workers alive at once, over all lanes
    compile_threads: PositiveCount | None = None  # of inductor, in each worker; None: PyTorch's own choice
    host_memory_limit_bytes: Count | None = None
    limits: StageLimits = StageLimits()
    cache: CacheMode = CacheMode.COLD
    cache_dir: str | None = None  # of `shared`
    passes: tuple[Pass, ...] = ()
    trace_dir: str | None = None  # where the breakdown's Chrome traces are kept
    debug_dir: str | None = None  # where structured traces of compiling are kept, and scripts that reproduce failures

    @property
    def is_timed(self) -> bool:
        return Pass.CHECK_ONLY not in self.passes

    @property
    def checks(self) -> bool:
        """Whether results are checked, after the timing or without it."""
        return Pass.CHECK in self.passes or not self.is_timed
