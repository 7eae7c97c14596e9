"""The frozen data of a run, and its JSON form (msgspec): cases, outcomes, records, the run's manifest.

Times are in seconds, memory in bytes, and samples are raw; medians, units and rounding belong to `stats` and `report`.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from torchzoo.case import CacheMode, Case, Domain, Precision, Settings, Stage

SCHEMA_VERSION = 1


#: The names of a case's variants: the step in eager, and the same step with the case's backend.
EAGER_VARIANT, CANDIDATE_VARIANT = "eager", "candidate"


class StopReason(enum.StrEnum):
    CONVERGED = "converged"
    STABLY_NOISY = "stably_noisy"
    TIME_LIMIT = "time_limit"


class FailureKind(enum.StrEnum):
    OOM_DEVICE = "oom_device"
    OOM_HOST = "oom_host"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    ERROR = "error"


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive steps of one variant, each timed with the device synchronised before and after."""

    variant: str
    samples_s: tuple[float, ...]


class BackToBack(msgspec.Struct, frozen=True, array_like=True):
    """Steps run with one synchronisation at the end."""

    steps: int
    elapsed_s: float
    device_s: float | None = None  # between device events before the first and after the last; None on the CPU
    host_s: float | None = None  # until the first step returned; far below a step's time where the device bounds it


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peaks over a few steady steps (one, of very slow ones), in their own pass. None where the platform can't tell."""

    device_peak_allocated_bytes: int | None = None
    device_peak_reserved_bytes: int | None = None
    device_process_bytes: int | None = None  # what NVML sees: CUDA context and libraries included
    host_peak_rss_bytes: int | None = None
    host_peak_is_of_pass: bool = (
        False  # False: the kernel's mark could not be reset, so it is the process's peak so far
    )
    host_uss_bytes: int | None = None  # the process's own: what a forked worker shares with its server is not counted


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """Why Dynamo ended a graph, and where in the model's or a library's source: `resnet.py:120 in forward`."""

    reason: str
    place: str


class Recompilation(msgspec.Struct, frozen=True, kw_only=True):
    """A function that was compiled once more, and the guard that failed."""

    place: str
    reason: str


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """What Dynamo counted of a variant, from its first step to its last."""

    graphs: int = 0
    graph_breaks: dict[str, int] = {}  # reason: how often; Dynamo's counter, for readers that expect its number
    cudagraph_skips: int = 0
    cache: CacheMode | None = None  # None where the backend compiles nothing that is cached
    cache_hits: int = 0  # graphs whose code inductor found in its cache
    cache_misses: int = 0
    compile_s: float | None = None  # wall time inside Dynamo and its backend; None in records before 2026-11-21
    guards: int | None = None
    breaks: tuple[GraphBreak, ...] = ()
    recompilations: tuple[Recompilation, ...] = ()
    cudagraph_skip_reasons: tuple[str, ...] = ()
    late_graphs: int = 0  # of `graphs`, those compiled after the warm-up: while memory or time was measured

    @property
    def break_count(self) -> int:
        """Places where a graph ended, functions left to Python whole (which `graph_breaks` misses) included.

        Records before 2026-11-21 have no places: Dynamo's own counts.
        """
        return len(self.breaks) or sum(self.graph_breaks.values())


class StepTime(msgspec.Struct, frozen=True, array_like=True):
    """Where one profiled step's wall time went; what is left of it is idle (on the CPU: Python and the framework)."""

    wall_s: float
    active_s: float  # the device computes (on the CPU: inside operators); the union of the intervals
    movement_s: float  # it copies or sets memory and does not compute


class Kernel(msgspec.Struct, frozen=True, array_like=True):
    """Over all profiled steps. Of an operator: its own time, without that of operators inside it."""

    name: str
    calls: int
    total_s: float


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """From a profiled pass of its own: each step, and the kernels (operators, on the CPU) that took longest."""

    steps: tuple[StepTime, ...]  # empty where the profiler could not tell
    kernels: tuple[Kernel, ...]
    trace: str | None = None  # the Chrome trace, where it was kept
    problem: str = ""  # why there are no steps


class EnergyWindow(msgspec.Struct, frozen=True, array_like=True):
    """Back-to-back steps, and what the device's energy counter rose by meanwhile."""

    steps: int
    elapsed_s: float
    energy_j: float


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """Of the whole device (NVML's counter), from windows that followed one another."""

    windows: tuple[EnergyWindow, ...]

    @property
    def steps(self) -> int:
        return sum(window.steps for window in self.windows)

    @property
    def elapsed_s(self) -> float:
        return sum(window.elapsed_s for window in self.windows)

    @property
    def energy_j(self) -> float:
        return sum(window.energy_j for window in self.windows)


class Growth(msgspec.Struct, frozen=True, kw_only=True):
    """Memory in use after each of many steps, garbage collected: level, or it leaks."""

    device_bytes: tuple[int, ...] | None  # allocated; None on the CPU
    host_bytes: tuple[int, ...]  # unique to the process: whole pages, those that allocators keep included
    heap_bytes: tuple[int, ...] | None = None  # what the C library has handed out (glibc), CPU tensors included
    python_objects: tuple[int, ...] = ()  # those the garbage collector tracks, made since the pass began


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """Work of one eager step; a multiply-add counts as two operations."""

    total: int
    by_operator: dict[str, dict[str, int]]  # by the dtype of its operands: {"aten::mm": {"float32": 1024}}
    without_formula: dict[str, int] = {}  # operators known to compute much that have no formula: calls
    bytes_moved: int | None = None  # operands and results of all operators: what unfused kernels read and write


class ApiSurface(msgspec.Struct, frozen=True, kw_only=True):
    """What one eager step touches of PyTorch: functions (`torch.nn.functional.linear`) and operators (`aten::mm`)."""

    functions: tuple[str, ...]
    operators: tuple[str, ...]
    reason: str = ""  # why names are missing, where the step could not be watched


class ResultKind(enum.StrEnum):
    """What a step leaves behind that can be compared with another run of it."""

    LOSS = "loss"
    OUTPUTS = "outputs"  # floating ones, in evaluation
    INTEGERS = "integers"  # outputs and buffers of whole numbers: token indices, counters
    DETECTIONS = "detections"  # sets of boxes
    GRADIENTS = "gradients"
    PARAMETERS = "parameters"  # what the step added to them
    BUFFERS = "buffers"  # running statistics


class CheckStatus(enum.StrEnum):
    CORRECT = "correct"
    INCORRECT = "incorrect"
    NONDETERMINISTIC = "nondeterministic"  # eager itself does not agree with eager
    REFERENCE_FAILED = "reference_failed"  # nothing to judge by


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of result: the tensor that stands worst, its errors relative to the tensor's norm.

    (Of `integers` and `detections`: the share of elements, or boxes, that differ.) None: not finite, or another shape.
    `is_close` is None where nothing could be said: eager itself is too far from the reference.
    """

    what: ResultKind
    worst: str  # the name of the tensor
    error: float | None  # of the case against the fp64 reference
    eager_error: float | None  # of what it is judged beside against the same: eager, at the same or native precision
    tolerance: float  # of the precision, or of metadata.yaml's exception
    is_close: bool | None
    allowed: float | None = None  # the tolerance, or the multiple of eager's own error where that is larger
    tensors: int = 1
    tensors_not_judged: int = 0


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on a case's results against eager, judged by an fp64 reference."""

    status: CheckStatus
    reason: str = ""  # one line
    comparisons: tuple[Comparison, ...] = ()  # where `nondeterministic`, of eager with eager
    judged_at: Precision | None = None  # another precision than the case's, at which there was nothing to judge by


class VariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured of eager, or of the candidate beside it."""

    first_step_s: float  # compilation included; wall time, shared with siblings where `jobs` is above 1
    first_step_cpu_s: float  # CPU time of the same, the compilers' own processes included
    warmup_s: tuple[float, ...]
    memory: Memory
    back_to_back: tuple[BackToBack, ...]
    result_is_finite: bool  # loss (train) or outputs (eval) after warm-up
    compilation: Compilation | None = None
    breakdown: Breakdown | None = None
    energy: Energy | None = None
    growth: Growth | None = None


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """NVML's view of the device at one moment."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_w: float | None = None
    throttle_reasons: int | None = None  # NVML's bit mask
    throttled_s: dict[str, float] = {}  # by reason, since the driver was loaded; reasons that NVML counts
    foreign_processes: int | None = None  # other processes that compute on the device, siblings of the run excepted


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """Raw results. `blocks` are in the order they ran: A only for eager, A B B A and so on beside a candidate."""

    blocks: tuple[Block, ...]
    stop_reason: StopReason
    variants: dict[str, VariantResult]  # "eager", and "candidate" for another backend
    samples_per_step: int
    sample_unit: str
    parameters: int
    operator_dtypes: dict[str, int]  # floating results of one eager step's operators, by dtype
    precision_flags: dict[str, str]
    host_syncs: str | None = None  # the model's declared reason for waiting for the device inside its step
    threads: int
    device_name: str
    device_state_before: DeviceState | None = None
    device_state_after: DeviceState | None = None
    device_wait_s: float | None = (
        None  # for kernels that stopped siblings had queued; None in records before 2026-11-21
    )
    device_was_busy: bool = False  # with other processes' work when timing began, however long it was waited for
    host_loop_s: tuple[float, ...] = ()  # `environment.host_loop_s`, before and after the latency pass
    stage_seconds: dict[str, float] = {}  # wall time, that in which the worker was stopped included
    stage_cpu_seconds: dict[str, float] = {}  # CPU time of the worker and of the compilers' processes it started
    flops: Flops | None = None
    api: ApiSurface | None = None
    check: Check | None = None

    @property
    def is_incorrect(self) -> bool:
        """Whether its results were checked and are wrong: its figures are shown, but no mean counts them."""
        return self.check is not None and self.check.status is CheckStatus.INCORRECT


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag="skipped"):
    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    kind: FailureKind
    stage: Stage
    message: str  # one line
    traceback: str = ""  # its tail
    log: str = ""  # the worker's output, a path


Outcome = Measured | Skipped | Failed


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One case and what came of it; times are UTC, ISO 8601."""

    case: Case
    outcome: Outcome
    started_at: str
    finished_at: str
    lane: str | None = None  # the device it ran on, by index; None where it never ran
    paused_s: float = 0.0  # how long the worker was stopped while others were measured
    batch_curve: dict[int, float] | None = None  # with `--bs auto`: samples/s of eager by batch size tried


class BatchCurve(msgspec.Struct, frozen=True, kw_only=True):
    """What `--bs auto` tried of one tuning case, here at the batch size it chose: samples/s of eager by batch size."""

    case: Case
    samples_per_s: dict[int, float]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`run.json`: what a run was asked to do, where."""

    schema_version: int = SCHEMA_VERSION
    torchzoo_version: str
    command: tuple[str, ...]
    created_at: str
    environment: dict[str, Any]
    settings: Settings
    cases: tuple[Case, ...]
    domains: dict[str, Domain] = {}  # of the models whose metadata can be read
    device_indices: tuple[int, ...] | None = None  # the accelerators that a bare `cuda` is spread over
    models_dirs: tuple[str, ...] = ()  # the user's own model folders
    batch_curves: tuple[BatchCurve, ...] = ()


class MeasuredPeaks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Measured ceilings of one device: matrix products by path, and copying (what is read and what is written)."""

    tflop_per_s: dict[str, float]
    gb_per_s: float
    torch: str
    date: str
