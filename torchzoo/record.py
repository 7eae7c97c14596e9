"""Define the results of a run as frozen data with a JSON form (msgspec): measurements, outcomes, records, manifest.

Times are in seconds, memory in bytes, and samples are raw. Medians, units and rounding belong to `stats` and `report`.
"""

from __future__ import annotations

import enum
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from torchzoo.bounds import Amount, Count, Int64, PositiveAmount, PositiveCount, PositiveSeconds, Seconds
from torchzoo.case import EAGER, Case, Domain, Precision, ResultKind
from torchzoo.errors import TorchzooError
from torchzoo.settings import CacheMode, Settings, Stage

SCHEMA_VERSION = 2

#: Prefix of the reason of a recompilation that Dynamo refused, after which the function may run in eager.
REFUSED = "refused, compiled too often: "

#: Prefix of the reason of a graph break at which Dynamo could not compile a function at all.
LEFT_WHOLE = "left to Python whole: "

#: The names of a case's variants: the step in eager, and the same step with the case's backend.
EAGER_VARIANT, CANDIDATE_VARIANT = "eager", "candidate"


class ApiSurface(msgspec.Struct, frozen=True, kw_only=True):
    """The functions (`torch.nn.functional.linear`) and operators (`aten::mm`) of PyTorch that an eager step uses."""

    functions: tuple[str, ...]
    operators: tuple[str, ...]
    reason: str = ""  # why names are missing, if the step could not be traced


class Operand(msgspec.Struct, frozen=True, array_like=True):
    """A tensor operand of an operator. A list of tensors has the dtype `list`, and its length as its shape."""

    dtype: str  # torch's name: `bfloat16`
    shape: tuple[Count, ...]


class OperatorCalls(msgspec.Struct, frozen=True, array_like=True):
    """All calls of an operator with operands of the same shapes and dtypes, over all profiled steps."""

    name: str  # of the operator, or of a kernel that no operator launched
    operands: tuple[Operand, ...]
    calls: PositiveCount
    total_s: Seconds  # time of its kernels; on the CPU its own time, without the operators inside it


class OperatorShapes(msgspec.Struct, frozen=True, kw_only=True):
    """The operators of a variant that take time, the longest first."""

    steps: Count  # profiled steps; 0 if the profile has none, and then `problem` says why
    operators: tuple[OperatorCalls, ...] = ()
    others: Count = 0  # number of further combinations of operator and operands
    others_calls: Count = 0
    others_s: Seconds = 0.0  # time of the others
    problem: str = ""

    @property
    def total_s(self) -> float:
        """The time of all operators over all profiled steps."""
        return sum(one.total_s for one in self.operators) + self.others_s


class CheckStatus(enum.StrEnum):
    CORRECT = "correct"
    PARTLY_CORRECT = "partly_correct"  # all results that can be judged are correct, but many of a kind can't be
    INCORRECT = "incorrect"
    NONDETERMINISTIC = "nondeterministic"  # two runs of eager do not agree with each other
    REFERENCE_FAILED = "reference_failed"  # there is no reference
    NOT_REACHED = "not_reached"  # the check did not finish; the record says why


class ResultComparison(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of result compared with the reference. Its errors are those of the worst tensor.

    An error is relative to the tensor's norm; for `integers` and `detections` it is the share of elements, or boxes,
    that differ. Tensors that are not finite or have another shape have the error None. `is_close` is None if eager
    itself is too far from the reference for a verdict.
    """

    what: ResultKind
    worst: str  # name of the worst tensor
    error: float | None  # of the case against the reference
    eager_error: float | None  # of eager at the same precision (for cases of eager: at the model's own)
    tolerance: float  # of the precision, or from metadata.yaml
    is_close: bool | None
    allowed: float | None = None  # greatest allowed error: the tolerance, or a multiple of eager's error
    tensors: Count = 1
    tensors_not_judged: Count = 0
    step: PositiveCount = 1  # number of the compared step: the first, unless only a later one is wrong
    tensors_wrong: Count | None = None  # among the judged tensors; None: not counted


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict on whether a case's results are those of eager, judged by an fp64 reference."""

    status: CheckStatus
    reason: str = ""  # one line
    comparisons: tuple[ResultComparison, ...] = ()  # if `nondeterministic`, of eager's second run with its first
    steps: PositiveCount = 1  # number of consecutive steps from the same start that were compared and judged
    #: The reason why the checked code is not the timed code; empty if both are equal, or not compiled; None: not known.
    compiled_anew: str | None = None
    judged_at: Precision | None = None  # precision of the judgement, if there was no reference at the case's own


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    memory_bytes: Count
    driver: str  # its version


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """The machine and its software. A field is None if the fact is not known, or does not exist there."""

    torchzoo: str
    torchzoo_commit: str | None = None  # with `+` if files of the checkout were changed
    python: str
    platform: str
    malloc: str | None = None  # the C library's allocator and its settings
    cpu: str
    cpu_count: PositiveCount | None = None
    cpu_usable: PositiveCount
    host_memory_bytes: Count
    torch: str
    torch_commit: str | None = None
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    nccl: str | None = None
    packages: dict[str, str]  # versions of the main libraries besides torch
    distributions: dict[str, str] | None = None  # versions of all installed distributions, by normalised name
    gpus: tuple[Gpu, ...]
    variables: dict[str, str]  # environment variables that can change how PyTorch and its libraries compute


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A host of a run over several hosts."""

    name: str
    environment: Environment
    lanes: tuple[str, ...]
    undisturbed_loop_s: PositiveSeconds | None = None  # `facts.host_loop_s` before the host's first case


class StopReason(enum.StrEnum):
    CONVERGED = "converged"
    STABLY_NOISY = "stably_noisy"
    TIME_LIMIT = "time_limit"
    BUDGET = "budget"  # the target is out of reach of the case's share of the run's budget


class FailureKind(enum.StrEnum):
    OOM_DEVICE = "oom_device"
    OOM_HOST = "oom_host"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    NOT_FINITE = "not_finite"  # NaN or infinity in training, by the backend alone: eager stays finite
    ERROR = "error"
    INTERRUPTED = "interrupted"  # the run was interrupted after the timing of the case; a resumed run repeats the case


class Block(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive steps of one variant, each timed with the device synchronised before and after.

    `issued_s` is the median time in the block until a step returns, after which the host waits for the device.
    `cpu_s` is the CPU time of the threads that issue a step until it returns, and `reference_s` that of the host's
    reference work right after the block (`torchzoo.measure.host_reference`). None: not known.
    """

    variant: str
    samples_s: Annotated[tuple[PositiveSeconds, ...], Meta(min_length=1)]
    issued_s: Seconds | None = None
    cpu_s: Seconds | None = None
    reference_s: PositiveSeconds | None = None


class BackToBack(msgspec.Struct, frozen=True, array_like=True):
    """Steps run with one synchronisation at the end."""

    steps: PositiveCount
    elapsed_s: PositiveSeconds
    device_s: Seconds | None = None  # between device events around the steps; None on the CPU
    host_s: Seconds | None = None  # until the first step returns: far below a step's time if the device is the limit
    host_was_slow: bool | None = None  # at the end, without time left to repeat the run; None: not known


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Peak memory over a few steady steps (one if it is very slow), in a pass of their own; None: not known."""

    device_peak_allocated_bytes: Count | None = None
    device_peak_reserved_bytes: Count | None = None
    device_process_bytes: Count | None = None  # by NVML: CUDA context and libraries included
    host_peak_rss_bytes: Count | None = None
    host_peak_is_of_pass: bool = False  # False: of the process so far; the kernel's counter could not be reset
    host_uss_bytes: Count | None = None  # unique to the process: without memory shared with the server


class Alone(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate in a new process, in which eager never ran. Its caches of compiled code began empty."""

    first_step_s: Seconds  # wall time, compilation included; other workers share the cores if `jobs` is above 1
    first_step_cpu_s: Seconds  # the compilers' own processes included
    first_step_peak_bytes: Count | None = None  # of the device, compiling included; None on the CPU
    memory: Memory  # of steady steps


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why Dynamo ended a graph, and the place in the source: `resnet.py:120 in forward`."""

    reason: str
    place: str  # empty: not known


class Recompilation(msgspec.Struct, frozen=True, kw_only=True):
    """A function that was compiled again, and the guard that failed."""

    place: str
    reason: str


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """Dynamo's counts for a variant, from its first step to the end of its timing; or AOTInductor's results.

    If Dynamo compiled graphs and `compile_s` is None, recompilations and guards were not counted either.
    """

    graphs: Count = 0
    graph_breaks: dict[str, Count] = {}  # number by reason, from Dynamo's own counter
    cudagraph_skips: Count = 0
    cache: CacheMode | None = None  # None if the backend compiles nothing that is cached
    cache_hits: Count = 0  # graphs whose code inductor found in its cache
    cache_misses: Count = 0
    compile_s: Seconds | None = None  # wall time inside Dynamo and its backend (aoti: from torch.export to the package)
    guards: Count | None = None
    breaks: tuple[GraphBreak, ...] = ()
    recompilations: tuple[Recompilation, ...] = ()
    cudagraph_skip_reasons: tuple[str, ...] = ()
    #: The part of `graphs` that was compiled after the warm-up, while memory or time was measured. None: not counted.
    late_graphs: Count | None = None
    package_bytes: Count | None = None  # size of AOTInductor's packages, weights included; None for other backends
    load_s: Seconds | None = None  # wall time of loading the packages
    traced: bool = False  # all compile times include writing PyTorch's structured trace
    operators_captured: Count | None = None  # calls in all graphs that Dynamo captured (`calls_captured`)

    @property
    def refused(self) -> tuple[Recompilation, ...]:
        """The functions that Dynamo refused to compile again, at its limit of recompilations."""
        return tuple(one for one in self.recompilations if one.reason.startswith(REFUSED))

    @property
    def functions_left(self) -> int:
        """The number of functions that Dynamo left to eager: refused ones, and those that it could not compile."""
        return len(self.refused) + sum(one.reason.startswith(LEFT_WHOLE) for one in self.breaks)

    @property
    def recompilation_count(self) -> int:
        return len(self.recompilations)

    @property
    def break_count(self) -> int:
        """The number of places that ended a graph, with functions left to Python, which `graph_breaks` misses."""
        return len(self.breaks)


class Coverage(msgspec.Struct, frozen=True, kw_only=True):
    """The forward operators of a step, in the modules that the label compiles, that ran as the label says."""

    operators: Count  # called by eager in these modules; operators inside others do not count
    in_eager: Count  # called by the candidate in these modules outside all compiled graphs

    @property
    def eager_share(self) -> float:
        """The share of the operators that ran in eager, in [0, 1]."""
        return min(1.0, self.in_eager / self.operators) if self.operators else 0.0


class StepCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The work of the host in one step, in counts that do not depend on its speed. None: not counted, as on the CPU."""

    operators: Count  # calls of PyTorch's dispatcher, those inside of other operators included
    python_calls: Count  # calls of Python functions, in the thread that issues the step
    launches: Count | None = None  # kernels, graphs, copies and memory sets that the host hands to the device
    copies: Count | None = None  # copies and memory sets on the device, also those in graphs
    allocations: Count | None = None  # blocks asked of the device's allocator


class StepTime(msgspec.Struct, frozen=True, array_like=True):
    """The parts of the wall time of a profiled step. The rest is idle (on the CPU: Python and the framework)."""

    wall_s: PositiveSeconds
    active_s: Seconds  # the device computes (the CPU is inside operators): the union of the intervals
    movement_s: Seconds  # the device copies or sets memory, and does not compute
    communication_s: Seconds = 0.0  # a collective runs on the device, and nothing else


class Kernel(msgspec.Struct, frozen=True, array_like=True):
    """A kernel over all profiled steps. On the CPU, an operator and its own time: without the operators inside it."""

    name: str
    calls: Count
    total_s: Seconds


class Breakdown(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a profiled pass: each step, and the kernels (on the CPU: operators) that took longest."""

    steps: tuple[StepTime, ...]  # empty if the profile has none; then `problem` says why
    kernels: tuple[Kernel, ...]
    trace: str | None = None  # path of the Chrome trace, if kept
    problem: str = ""


class EnergyWindow(msgspec.Struct, frozen=True, array_like=True):
    """Back-to-back steps, and the rise of the device's energy counter during them."""

    steps: PositiveCount
    elapsed_s: PositiveSeconds
    energy_j: Amount


class Energy(msgspec.Struct, frozen=True, kw_only=True):
    """Energy of the whole device (NVML's counter) in windows that follow one another without a gap."""

    windows: Annotated[tuple[EnergyWindow, ...], Meta(min_length=1)]

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
    """The memory in use after each of many steps, with garbage collected before each reading."""

    device_bytes: tuple[Count, ...] | None  # allocated; None on the CPU
    host_bytes: tuple[Count, ...]  # unique to the process, in pages, with those that allocators keep
    heap_bytes: tuple[Count, ...] | None = None  # allocated by the C library (glibc), CPU tensors included
    python_objects: tuple[Int64, ...] = ()  # made since the pass began, as the garbage collector counts them


class Flops(msgspec.Struct, frozen=True, kw_only=True):
    """The work of an eager step; a multiply-add counts as two operations."""

    total: Count
    by_operator: dict[str, dict[str, Count]]  # and dtype of operands: {"aten::mm": {"float32": 1024}}
    without_formula: dict[str, Count] = {}  # calls of expensive operators without a formula, by operator
    bytes_moved: Count | None = None  # operands and results of all operators, as unfused kernels read and write them
    product_bytes: Count | None = None  # operands and results of the operators that `by_operator` names
    #: Calls of fused attention in the forward pass, by operator and arguments. None: not counted.
    attention: dict[str, Count] | None = None


class CommunicationStep(msgspec.Struct, frozen=True, array_like=True):
    """A profiled step of a rank."""

    wall_s: PositiveSeconds
    total_s: Seconds  # time in which a collective runs
    exposed_s: Seconds  # time in which a collective runs and nothing computes


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """The collectives of one kind in a step, over all ranks."""

    name: str  # nccl-tests' name: all_reduce, all_gather, reduce_scatter, ...
    calls: Count
    bytes: Count | None  # of all calls, as nccl-tests counts them; None: not in the profile
    step_s: tuple[Seconds, ...]  # by profiled step: sum over calls of the shortest time of a rank


class VariantResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a variant: of eager, or of the candidate."""

    first_step_s: Seconds  # wall time, compilation included; other workers share the cores if `jobs` is above 1
    first_step_cpu_s: Seconds  # CPU time of the same step, the compilers' own processes included
    first_step_peak_bytes: Count | None = None  # of the device, compiling included; None on the CPU, or not known
    conversion_s: Seconds | None = None  # part of `first_step_s` before the step; None: not part of it
    warmup_s: Annotated[tuple[Seconds, ...], Meta(min_length=1)]
    memory: Memory
    alone: Alone | None = None  # of a candidate, if requested and successful
    why_not_alone: Skipped | Failed | None = None  # reason if `alone` was requested and failed
    back_to_back: Annotated[tuple[BackToBack, ...], Meta(min_length=1)]
    result_is_finite: bool  # of the loss (train) or outputs (eval) after warm-up
    device_active_s: Seconds | None = None  # time in which the device works in one step; None on the CPU, or not known
    device_kernels: Count | None = None  # kernels of that step; None on the CPU, or not known
    #: The part of the time until that step returns in which the host does not wait for the device. None: not known.
    issuing_share: Annotated[float, Meta(ge=0, le=1)] | None = None
    counts: StepCounts | None = None
    compilation: Compilation | None = None
    coverage: Coverage | None = None  # of a candidate behind Dynamo
    breakdown: Breakdown | None = None
    operator_shapes: OperatorShapes | None = None
    energy: Energy | None = None  # of the devices of all ranks
    growth: Growth | None = None
    collectives: tuple[Collective, ...] = ()  # of a case with several ranks


class DeviceState(msgspec.Struct, frozen=True, kw_only=True):
    """NVML's view of the device at one moment."""

    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    temperature_c: Int64 | None = None
    power_w: Amount | None = None
    throttle_reasons: Count | None = None  # NVML's bit mask
    throttled_s: dict[str, Seconds] = {}  # by NVML's reason, since the driver was loaded
    foreign_processes: Count | None = None  # processes of other runs that compute on the device


class HostWatch(msgspec.Struct, frozen=True, kw_only=True):
    """The observations and actions of the wait for a fast host (`torchzoo.measure.host`)."""

    undisturbed_s: PositiveSeconds | None  # the loop's time on an undisturbed core, before the run; None: not known
    looks_s: tuple[PositiveSeconds, ...]  # the loop's time at each timed block and run, of the slowest thread
    waited_s: Seconds  # time of waiting for a fast host, and of choosing cores
    fast_cores: tuple[Count, ...]  # cores that the case (all its ranks) was pinned to in the end; empty: all
    one_core: bool = False  # whether the two threads of a training step shared a core
    matters: bool = True  # whether steps wait for the host; if not, nothing is repeated
    was_slow: bool  # whether slow blocks count, without time left to repeat them
    redone: tuple[Block, ...] = ()  # slow blocks that were repeated, and don't count


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of a rank, in cases with several."""

    step_s: dict[str, PositiveSeconds]  # by variant, the median of the rank's timed steps
    memory: dict[str, Memory]  # by variant
    communication: dict[str, tuple[CommunicationStep, ...]] = {}  # by variant
    device_state_before: DeviceState | None = None
    device_state_after: DeviceState | None = None


class Measured(msgspec.Struct, frozen=True, kw_only=True, tag="measured"):
    """The raw results of a case. `blocks` are in the order of execution: A A A for eager, A B B A or B A A B."""

    blocks: tuple[Block, ...]
    stop_reason: StopReason
    variants: dict[str, VariantResult]  # "eager", and "candidate" for another backend
    samples_per_step: PositiveCount
    sample_unit: Annotated[str, Meta(max_length=100)]
    bytes_read_per_step: PositiveCount | None = None  # weights and caches, each once, for models that generate
    parameters: Count
    operator_dtypes: dict[str, Count]  # number of floating results of an eager step's operators, by dtype
    precision_flags: dict[str, str]
    host_syncs: str | None = None  # the declared reason why a step waits for its accelerator; None on the CPU
    threads: PositiveCount
    device_name: str
    device_state_before: DeviceState | None = None
    device_state_after: DeviceState | None = None
    #: The time that the timing waited for the device to finish kernels that other workers had queued before they were
    #: stopped. None on the CPU, or not known.
    device_wait_s: Seconds | None = None
    #: Whether others used the device of a rank when the timing began, despite the wait. None: not known.
    device_was_busy: bool | None = None
    host_loop_s: tuple[PositiveSeconds, ...] = ()  # `facts.host_loop_s`, before and after the latency pass
    host: HostWatch | None = None  # None: the host was not watched
    ranks: tuple[RankResult, ...] = ()  # in cases with several; other fields are of rank 0
    #: Settings that were restored because importing the libraries or building the model changed them. None: not known.
    put_back: tuple[str, ...] | None = None
    #: Wall time by stage, including the time in which the worker was stopped, or waited for device memory.
    stage_seconds: dict[str, Seconds] = {}
    stage_cpu_seconds: dict[str, Seconds] = {}  # of the worker and of its compilers' processes
    window_seconds: dict[str, Seconds] = {}  # of the parts of the measuring window, by name
    flops: Flops | None = None
    candidate_flops: Flops | None = None  # of the candidate's graphs, as captured by Dynamo
    unequal_work: str = ""  # the metadata's reason why the work of the variants may differ
    api: ApiSurface | None = None
    check: Check | None = None
    #: The failure that ended the case after its timing. The failed pass and all later ones are missing.
    cut_short: Failed | None = None

    @property
    def is_incorrect(self) -> bool:
        """Whether the results were checked and are wrong. The figures are then shown, but count in no mean."""
        return self.check is not None and self.check.status is CheckStatus.INCORRECT


class Checked(msgspec.Struct, frozen=True, kw_only=True, tag="checked"):
    """The results of a case that was checked and not timed. The fields are those of `Measured`."""

    check: Check
    graphs: Count | None  # captured by Dynamo; None for backends without it
    parameters: Count
    operator_dtypes: dict[str, Count]
    precision_flags: dict[str, str]
    threads: PositiveCount
    device_name: str
    put_back: tuple[str, ...] = ()
    stage_seconds: dict[str, Seconds] = {}
    stage_cpu_seconds: dict[str, Seconds] = {}

    @property
    def is_incorrect(self) -> bool:
        return self.check.status is CheckStatus.INCORRECT


class Took(msgspec.Struct, frozen=True, kw_only=True, tag="took"):
    """The result of a fresh process of a userbenchmark, in a form that the userbenchmark knows."""

    result: dict[str, Any]


class Skipped(msgspec.Struct, frozen=True, kw_only=True, tag="skipped"):
    reason: str


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag="failed"):
    kind: FailureKind
    stage: Stage
    message: str  # one line
    traceback: str = ""  # its end
    log: str = ""  # path of the worker's output


Outcome = Measured | Checked | Took | Skipped | Failed


#: The identity of a record in its run: its case, and the role and number of a fresh process.
RecordKey = tuple[Case, str, int]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """A case and its outcome. The times of day are UTC, in ISO 8601."""

    case: Case
    outcome: Outcome
    started_at: str
    finished_at: str
    lane: str | None = None  # device of the case, with its index; None if it never ran
    paused_s: Seconds = 0.0  # time in which the worker was stopped for others' measurements
    batch_curve: dict[PositiveCount, Amount] | None = None  # with `--bs auto`: eager's samples/s by batch size
    role: str = ""  # the work of a fresh process of a userbenchmark; empty: the whole case
    number: Count = 0  # counts the processes of a role

    @property
    def key(self) -> RecordKey:
        """The key of the record: a later record with the same key replaces an earlier one."""
        return self.case, self.role, self.number

    @property
    def failure(self) -> Failed | None:
        """The failure of the case, or of a pass after its timing; None without a failure."""
        if isinstance(self.outcome, Measured):
            return self.outcome.cut_short
        return self.outcome if isinstance(self.outcome, Failed) else None


class BatchCurve(msgspec.Struct, frozen=True, kw_only=True):
    """The batch sizes that `--bs auto` tried for a tuning case."""

    case: Case  # at the chosen batch size
    samples_per_s: dict[PositiveCount, Amount]  # of eager, by batch size


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `run.json`: the request of a run, and its machine."""

    schema_version: int = SCHEMA_VERSION
    torchzoo_version: str
    command: tuple[str, ...]
    created_at: str
    environment: Environment
    settings: Settings
    cases: tuple[Case, ...]
    domains: dict[str, Domain] = {}  # by model, if its metadata can be read
    device_indices: tuple[Count, ...] | None = None  # the accelerators that a `cuda` without index is spread over
    undisturbed_loop_s: PositiveSeconds | None = None  # `facts.host_loop_s` before the run; None: not known
    models_dirs: tuple[str, ...] = ()  # the user's own model folders
    batch_curves: tuple[BatchCurve, ...] = ()
    hosts: tuple[Host, ...] = ()  # of a run on several hosts; `environment` is of the first
    turns: Count = 0  # planned fresh processes of a userbenchmark; 0: each case is measured as a whole


class MeasuredPeaks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The best measured rates of one device, or between several of one kind."""

    tflop_per_s: dict[str, PositiveAmount] = {}  # by arithmetic: "fp32", "tf32", "bf16", ...
    gb_per_s: PositiveAmount | None = None  # bytes read and bytes written together; None: between several devices
    bus_gb_per_s: dict[str, PositiveAmount] = {}  # between several devices, by collective: "all_reduce", ...
    torch: str
    date: str


class DecodeError(TorchzooError):
    """Bytes are not a valid record or manifest. The message is one line."""


class _Versioned(msgspec.Struct):
    schema_version: int


_manifests, _records = msgspec.json.Decoder(Manifest), msgspec.json.Decoder(Record)
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # errors of msgspec, and of this module


def decode_record(line: bytes) -> Record:
    """Decode a line of `records.jsonl`.

    Raises:
        DecodeError: the line is no record, or its parts contradict each other.
    """
    try:
        record = _records.decode(line)
        _check_times(record.started_at, record.finished_at)
        if isinstance(record.outcome, Measured):
            _check_measured(record, record.outcome)
        if isinstance(record.outcome, Checked) and record.case.batch_size is None:
            raise DecodeError("it was checked without a batch size")
    except _UNREADABLE as error:
        raise DecodeError(str(error)) from error
    return record


def decode_manifest(content: bytes) -> Manifest:
    """Decode the content of `run.json`.

    Raises:
        DecodeError: the content is no manifest, or has another schema.
    """
    try:
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise DecodeError(f"it was written by a newer torchzoo (schema {version}): update torchzoo to read it")
        if version < SCHEMA_VERSION:
            raise DecodeError(f"it is of schema {version}, rewrite it with python tools/migrate_schema_1.py")
        manifest = _manifests.decode(content)
        _check_times(manifest.created_at)
    except _UNREADABLE as error:
        raise DecodeError(str(error)) from error
    return manifest


def _check_times(*times: str) -> None:
    for time in times:
        if datetime.fromisoformat(time).tzinfo is None:
            raise DecodeError(f"the time {time} has no offset from UTC")


def _check_measured(record: Record, measured: Measured) -> None:
    """Check that the variants are those of the case, and their blocks are in turns: A A A, or A B B A, B A A B."""
    a, b = EAGER_VARIANT, CANDIDATE_VARIANT
    rounds = [(a,)] if record.case.backend == EAGER else [(a, b, b, a), (b, a, a, b)]
    if set(measured.variants) != set(rounds[0]):
        raise DecodeError(f"its variants are not those of a case with the backend {record.case.backend}")
    named, length = tuple(block.variant for block in measured.blocks), len(rounds[0])
    if len(named) < length or not all(
        any(named[at : at + length] == one[: len(named) - at] for one in rounds) for at in range(0, len(named), length)
    ):
        raise DecodeError("its blocks are not in turns")
    if record.case.batch_size is None:
        raise DecodeError("it was measured without a batch size")
    flops, host = measured.flops, measured.host
    if flops is not None and flops.total != sum(sum(by_dtype.values()) for by_dtype in flops.by_operator.values()):
        raise DecodeError("its FLOPs are not the sum of its operators'")
    if host is not None and (host.was_slow or host.redone) and not (host.looks_s and host.undisturbed_s):
        raise DecodeError("its host was slow, but nothing says how slow")
