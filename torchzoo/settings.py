"""Define how cases are measured: the settings of a run, the stages of a case, and their limits."""

from __future__ import annotations

import enum
import math
from typing import Self

import msgspec

from torchzoo.bounds import Count, LimitSeconds, PositiveAmount, PositiveCount


class Stage(enum.StrEnum):
    """The stage of a worker, now or when it failed."""

    PLAN = "plan"
    START = "start"
    ALONE = "alone"  # the candidate, in a process in which eager never runs
    IMPORT = "import"
    BUILD = "build"
    PREPARE = "prepare"
    WARM_UP = "warm_up"
    COMPILE = "compile"
    WAIT = "wait"  # for the time slot in which only this case is measured
    MEASURE = "measure"
    EXAMINE = "examine"  # passes that need no quiet machine: growth of memory, operations, the API surface
    HOLD = "hold"  # until there is memory for the check; the measured model is freed
    CHECK = "check"  # of results, on new models


class Pass(enum.StrEnum):
    """A measurement of a run besides time and memory, in steps of its own. `help` is that of its option."""

    help: str

    def __new__(cls, value: str, text: str) -> Self:
        member = str.__new__(cls, value)
        member._value_, member.help = value, text
        return member

    BREAKDOWN = (
        "breakdown",
        "where a step's wall time goes: the device computes, moves data, idles; the longest kernels",
    )
    OP_SHAPES = (
        "op_shapes",
        "operators by the shapes and dtypes that they take, with their calls and times; "
        "`torchzoo export RUN --format op-shapes` writes them",
    )
    ENERGY = "energy", "joules per step and per sample, by NVML's counter"
    FLOPS = "flops", "operations of a step, what the device achieved of its peak, and what bounds it"
    API = "api", "the functions and operators of PyTorch that a step touches"
    MEMORY_ALONE = "memory_alone", "peaks of a compiled candidate in a process of its own, in which eager never ran"
    LEAK_CHECK = "leak_check", "growth of device and host memory over many steps"
    CHECK = "check", "results compared with eager's, judged by an fp64 reference"
    CHECK_ONLY = "check_only", "--check without any timing: many cases are checked at the same time"


class StageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The time limits of stages."""

    build_s: LimitSeconds = 600.0  # each stage without a limit of its own
    compile_s: LimitSeconds = 900.0  # compiling with its warm-up, examining, and the check
    measure_s: LimitSeconds = 300.0  # the timing
    alone_s: LimitSeconds = 900.0  # the candidate in a process of its own; the case continues without it

    @property
    def turn_s(self) -> float:
        """The limit of a whole fresh process of a userbenchmark."""
        return self.build_s + self.compile_s + self.measure_s

    def of(self, stage: Stage) -> float:
        """The limit of a stage in seconds. Waiting has none, since other cases cause it."""
        if stage in (Stage.WAIT, Stage.HOLD):
            return math.inf
        limits = {
            Stage.COMPILE: self.compile_s,
            Stage.ALONE: self.alone_s,
            Stage.MEASURE: self.measure_s,
            Stage.EXAMINE: self.compile_s,
            Stage.CHECK: self.compile_s,  # may compile again
        }
        return limits.get(stage, self.build_s)


class CacheMode(enum.StrEnum):
    """The content of the compilers' caches when a case begins to compile."""

    COLD = "cold"  # nothing: each case has an empty folder of its own
    WARM = "warm"  # code of an earlier compilation of the case, in a process of its own
    SHARED = "shared"  # code of earlier cases, of this run and of others, in one folder


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with which every case of a run is measured."""

    target_half_width: PositiveAmount = 0.01  # of the 95% interval of the figure, relative to the figure
    min_samples: Count = 10
    min_time_s: LimitSeconds = 0.5
    time_limit_s: LimitSeconds = 10.0  # of the interleaved latency pass
    #: The time of this pass that each case has of the run's budget, and goes beyond only if it reaches the target with
    #: what is left of the budget (`torchzoo.run.budget`). None: each case may take `time_limit_s`.
    share_s: LimitSeconds | None = None
    block_s: LimitSeconds = 0.02  # time of a variant's turn (at least one step)
    warmup_min_steps: PositiveCount = 3
    warmup_max_steps: PositiveCount = 10
    warmup_limit_s: LimitSeconds = 10.0
    compiling_max_steps: PositiveCount = 40  # of the warm-up, while its steps still compile
    compiling_limit_s: LimitSeconds = 120.0
    memory_steps: PositiveCount = 3  # fewer (at least one) if they would take more than two seconds
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
