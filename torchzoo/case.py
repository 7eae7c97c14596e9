"""What is measured: a case with its axes, and the kinds of results that its step has."""

from __future__ import annotations

import enum

import msgspec

from torchzoo.bounds import Count, Int64, PositiveCount


class Mode(enum.StrEnum):
    """What a step does. Each mode has a method of `torchzoo.model.Model`: `train_step`, `eval_step`, ..."""

    TRAIN = "train"
    EVAL = "eval"
    PREFILL = "prefill"  # of models that generate: read a prompt, fill the cache, give the first token
    DECODE = "decode"  # one more token for each sequence, with the cache that is there

    @property
    def generates(self) -> bool:
        """Whether only models that generate have this mode."""
        return self in (Mode.PREFILL, Mode.DECODE)


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
    FP8 = "fp8"  # bf16, and Linear layers multiply in float8: weights and activations, in training gradients too
    INT8WO = "int8wo"  # bf16, and the weights of Linear layers are stored in 8 bits; inference only
    INT4WO = "int4wo"  # the same in 4 bits

    @property
    def is_weight_only(self) -> bool:
        """Whether weights are stored in fewer bits than they are multiplied in."""
        return self in (Precision.INT8WO, Precision.INT4WO)

    @property
    def is_quantized(self) -> bool:
        """Whether torchao quantizes Linear layers. All else is as with `bf16`."""
        return self is Precision.FP8 or self.is_weight_only


class MemoryFormat(enum.StrEnum):
    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"


class CompileScope(enum.StrEnum):
    NETWORK = "network"  # what a user does with torch.compile(model)
    BLOCK = "block"  # each repeated block by itself: blocks of one class share their code, and less is compiled
    STEP = "step"  # the whole step: loss, backward and optimizer too


class Parallel(enum.StrEnum):
    """How the ranks of a case share its step."""

    NONE = "none"  # there is one rank
    DDP = "ddp"  # DistributedDataParallel: each has all weights and its own batch
    FSDP2 = "fsdp2"  # fully_shard: each has a part of the weights and its own batch
    TP = "tp"  # tensor parallelism: each has a part of the weights, all have the same batch


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


class ResultKind(enum.StrEnum):
    """A kind of result of a step: what can be compared with another run of the same step."""

    LOSS = "loss"
    OUTPUTS = "outputs"  # the floating outputs of an evaluation
    INTEGERS = "integers"  # outputs and buffers that are whole numbers: token indices, counters
    DETECTIONS = "detections"  # sets of boxes
    GRADIENTS = "gradients"
    PARAMETERS = "parameters"  # what the step added to the parameters
    OPTIMIZER = "optimizer"  # moments and the like that an optimizer keeps
    BUFFERS = "buffers"  # running statistics
    STATE = "state"  # what a step that does not train changed in buffers and caches


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
    #: None only where nothing can run: no metadata, or a mode that the model does not have.
    batch_size: PositiveCount | None  # of each rank; with tensor parallelism, of all together
    world: PositiveCount = 1  # how many ranks, each a process with a device of its own
    parallel: Parallel = Parallel.NONE
    seed: Int64 = 0
    repeat: Count = 0  # counted from 0: the same case may be measured in several processes

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
        return f"{self.backend} {self.way_label()}".rstrip()

    def way_label(self) -> str:
        """Those of them that all backends of a run have: `amp`. Empty where all are defaults."""
        parts: list[str] = []
        if self.precision is not Precision.DEFAULT:
            parts.append(self.precision)
        if self.memory_format is not MemoryFormat.CONTIGUOUS:
            parts.append(self.memory_format)
        if self.compile_scope is not CompileScope.NETWORK:
            parts.append(f"scope={self.compile_scope}")
        if self.world > 1:
            parts.append(self.gang_label())
        return " ".join(parts)

    def compiled_by(self) -> str:
        """The backend, and what it is given unless that is each network: `inductor`, `inductor scope=step`."""
        is_usual = self.compile_scope is CompileScope.NETWORK
        return str(self.backend) if is_usual else f"{self.backend} scope={self.compile_scope}"

    def gang_label(self) -> str:
        """`ddp x4`: how many ranks there are, and what they share."""
        return f"{self.parallel} x{self.world}"

    @property
    def device_type(self) -> str:
        """The device without its index: `cuda` for `cuda:1`."""
        return self.device.partition(":")[0]

    def first_repeat(self) -> Case:
        """The case with the number of its repeat set to 0: it stands for all of its repeats."""
        return msgspec.structs.replace(self, repeat=0)

    def tuning_case(self) -> Case:
        """The eager case whose throughput decides on this one's batch size with `--bs auto`."""
        return self.first_repeat().in_eager()

    def in_eager(self) -> Case:
        """The case with eager alone. A backend has that beside it."""
        return msgspec.structs.replace(self, backend=EAGER, compile_scope=CompileScope.NETWORK)
