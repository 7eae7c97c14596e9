"""What is measured: a case with its axes, the stages it goes through, and the settings of a run."""

from __future__ import annotations

import enum
import math

import msgspec


class Mode(enum.StrEnum):
    TRAIN = "train"
    EVAL = "eval"


class Precision(enum.StrEnum):
    """A precision label. `torchzoo.measure.precision` applies it to a model and checks that it was reached."""

    DEFAULT = "default"  # what PyTorch does out of the box: fp32, TF32 in convolutions only
    FP32 = "fp32"  # no TF32 anywhere
    TF32 = "tf32"  # TF32 in matrix products and convolutions
    FP16 = "fp16"  # weights and inputs cast
    BF16 = "bf16"
    AMP = "amp"  # autocast at the device's default dtype
    AMP_FP16 = "amp_fp16"
    AMP_BF16 = "amp_bf16"
    FP64 = "fp64"


class MemoryFormat(enum.StrEnum):
    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"


class CompileScope(enum.StrEnum):
    NETWORK = "network"  # what a user does with torch.compile(model)
    STEP = "step"  # the whole step: loss, backward and optimizer too


class Domain(enum.StrEnum):
    COMPUTER_VISION = "computer_vision"
    NLP = "nlp"
    RECOMMENDATION = "recommendation"
    REINFORCEMENT_LEARNING = "reinforcement_learning"
    SPEECH = "speech"
    OTHER = "other"


class NativeDtype(enum.StrEnum):
    """The dtype that a model computes in when nothing is cast."""

    FP32 = "fp32"
    FP64 = "fp64"


class Backend(msgspec.Struct, frozen=True):
    """A backend and its mode: `Backend("inductor", "reduce-overhead")`, written `inductor:reduce-overhead`."""

    name: str
    option: str | None = None

    def __str__(self) -> str:
        return self.name if self.option is None else f"{self.name}:{self.option}"


EAGER = Backend("eager")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to measure, fully resolved. Its fields are its identity: no label is ever parsed back."""

    model: str
    mode: Mode
    device: str
    backend: Backend = EAGER
    precision: Precision = Precision.DEFAULT
    memory_format: MemoryFormat = MemoryFormat.CONTIGUOUS
    compile_scope: CompileScope = CompileScope.NETWORK
    batch_size: int | None  # None only where nothing can run: no metadata, or a mode that the model does not have
    seed: int = 0
    repeat: int = 0  # counted from 0: the same case may be measured in several processes

    def label(self) -> str:
        """The case in words, for people: `resnet18 train cuda inductor fp32 bs16`. Defaults are left out."""
        parts = [self.model, self.mode, self.device, self.axes_label()]
        if self.batch_size is not None:
            parts.append(f"bs{self.batch_size}")
        if self.repeat:
            parts.append(f"repeat {self.repeat}")
        return " ".join(parts)

    def axes_label(self) -> str:
        """The axes that cases must share to be averaged, whatever the device: `inductor amp`. Defaults are left out."""
        parts = [str(self.backend)]
        if self.precision is not Precision.DEFAULT:
            parts.append(self.precision)
        if self.memory_format is not MemoryFormat.CONTIGUOUS:
            parts.append(self.memory_format)
        if self.compile_scope is not CompileScope.NETWORK:
            parts.append(f"scope={self.compile_scope}")
        return " ".join(parts)

    @property
    def device_type(self) -> str:
        """The device without its index: `cuda` for `cuda:1`."""
        return self.device.partition(":")[0]

    def tuning_case(self) -> Case:
        """The eager case whose throughput decides on this one's batch size with `--bs auto`."""
        return msgspec.structs.replace(self, backend=EAGER, compile_scope=CompileScope.NETWORK, repeat=0)


class Stage(enum.StrEnum):
    """What a worker is doing; on a failure, what it was doing."""

    PLAN = "plan"
    START = "start"
    PRIME = "prime"  # a process before this one fills the compile caches
    IMPORT = "import"
    BUILD = "build"
    PREPARE = "prepare"
    WARM_UP = "warm_up"
    COMPILE = "compile"
    WAIT = "wait"  # for the window in which the case is measured alone
    MEASURE = "measure"
    EXAMINE = "examine"  # what needs no quiet machine: growth of memory, operations, the API surface, the check


class Pass(enum.StrEnum):
    """What a run may ask for beside time and memory. Each pass has steps of its own, after the timing."""

    BREAKDOWN = "breakdown"
    ENERGY = "energy"
    FLOPS = "flops"
    API = "api"
    LEAK_CHECK = "leak_check"
    CHECK = "check"


class StageLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How long a stage may take."""

    build_s: float = 600.0  # each stage that is not named below
    compile_s: float = 900.0  # compiling with its warm-up, filling caches, and examining
    measure_s: float = 300.0  # the window

    def of(self, stage: Stage) -> float:
        """The limit of a stage in seconds. Waiting for the window has none: it is not the worker's fault."""
        if stage is Stage.WAIT:
            return math.inf
        limits = {
            Stage.COMPILE: self.compile_s,
            Stage.PRIME: self.compile_s,
            Stage.MEASURE: self.measure_s,
            Stage.EXAMINE: self.compile_s,  # a check compiles once more
        }
        return limits.get(stage, self.build_s)


class CacheMode(enum.StrEnum):
    """What the compilers' caches hold when a case begins to compile."""

    COLD = "cold"  # nothing: each case has an empty folder of its own
    WARM = "warm"  # what one earlier compilation of the same case left, in a process of its own
    SHARED = "shared"  # what earlier cases, of this run and of others, left in one folder


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How every case of a run is measured."""

    target_half_width: float = 0.01  # of the 95% interval of the figure, relative to the figure
    min_samples: int = 10
    min_time_s: float = 0.5
    time_limit_s: float = 10.0  # of the interleaved latency pass
    block_s: float = 0.02  # one variant runs this long (or one step), then the other has its turn
    warmup_min_steps: int = 3
    warmup_max_steps: int = 10
    warmup_limit_s: float = 10.0
    compiling_max_steps: int = 40  # of the warm-up, while its steps still compile
    compiling_limit_s: float = 120.0
    memory_steps: int = 3  # fewer (at least one) where they would take more than two seconds
    threads: int | None = None  # None: PyTorch's own choice
    jobs: int = 1  # workers alive at once, over all lanes
    compile_threads: int | None = None  # of inductor, in each worker; None: PyTorch's own choice
    host_memory_limit_bytes: int | None = None
    limits: StageLimits = StageLimits()
    cache: CacheMode = CacheMode.COLD
    cache_dir: str | None = None  # of `shared`
    passes: tuple[Pass, ...] = ()
    trace_dir: str | None = None  # where the breakdown's Chrome traces are kept
