"""What is measured: a case with its axes, and the kinds of results that its step has."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from typing import Any

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
    """One thing to measure, fully resolved. Its fields are its identity: no label is ever parsed back.

    Each field but `model` is an axis: `AXES` declares them.
    """

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
        return " ".join([str(self.backend), *self.variations()])

    def variations(self) -> list[str]:
        """The axes, other than the backend, that are not at their defaults: `amp`, `scope=block`, `ddp x4`."""
        named = (axis for axis in AXES if axis.label and not axis.is_default(self))
        return [axis.label.format(axis.of(self), case=self) for axis in named]

    def comparison_group(self) -> str:
        """What the case must share with others to be averaged with them: `inductor on cuda at amp`."""
        found = (axis.phrase.format(axis.of(self), case=self) for axis in AXES if not axis.is_default(self))
        return f"{self.backend} on {self.device}{''.join(found)}"

    def compiled_by(self) -> str:
        """The backend, and what it is given unless that is each network: `inductor`, `inductor scope=step`."""
        given = [axis.label.format(axis.of(self)) for axis in AXES if axis.of_compiler and not axis.is_default(self)]
        return " ".join([str(self.backend), *given])

    def ranks_label(self) -> str:
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
        """The case with eager alone: every backend is measured beside that."""
        given = {axis.name: axis.default for axis in AXES if axis.of_compiler}
        return msgspec.structs.replace(self, backend=EAGER, **given)


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """A way in which cases differ, declared once. Commands, plans, labels, tables, filters and indexes read `AXES`.

    To add one, add its field to `Case` and to `Axes`, its entry to `AXES`, and the code that applies it.
    """

    name: str  # the field of `Case`, and the keyword of `torchzoo.run`
    plural: str  # the field of `Axes`
    kind: type[Any]  # of a value: an enum, `Backend`, `int` or `str`
    default: Any = None  # left out of labels and commands; None: every case names its value
    options: tuple[str, ...] = ()  # of the command line
    metavar: str
    help: str  # of the option; {known} stands for what the kind, or the registry of backends, has
    column: str  # what the column of a table holds
    heading: str  # of a narrow column
    label: str = ""  # a format of the value in `Case.axes_label`; empty: not part of it
    phrase: str = ""  # likewise, in `Case.comparison_group`
    of_compiler: bool = False  # whether eager has no such thing
    is_filter: bool = False  # whether a page lets its reader choose by it

    def of(self, case: Case) -> Any:
        """The value of a case."""
        return getattr(case, self.name)

    def is_default(self, case: Case) -> bool:
        """Whether the value of a case is left out of labels."""
        return self.default is not None and bool(self.of(case) == self.default)

    def text(self, case: Case) -> str:
        """The value of a case as the command line takes it."""
        return str(self.of(case))

    def value(self, text: str) -> Any:
        """The value that `text` stands for; the inverse of `text`.

        Raises:
            ValueError: the axis has no such value.
        """
        if self.kind is Backend:
            name, _, option = text.partition(":")
            return Backend(name, option or None)
        return self.kind(text)


AXES = (
    Axis(
        name="mode",
        plural="modes",
        kind=Mode,
        options=("-t", "--mode"),
        metavar="M[,M]",
        help="{known}; the last two of models that generate",
        column="train or eval",
        heading="mode",
        is_filter=True,
    ),
    Axis(
        name="device",
        plural="devices",
        kind=str,
        options=("-d", "--device"),
        metavar="D[,D]",
        help="cpu, cuda, cuda:1 ...",
        column="device as asked for: cpu, cuda, cuda:1",
        heading="device",
        is_filter=True,
    ),
    Axis(
        name="backend",
        plural="backends",
        kind=Backend,
        default=EAGER,
        options=("--backend",),
        metavar="B[,B]",
        help="{known}, or any that Dynamo has registered; modes as in inductor:reduce-overhead and torchscript:script",
        column="backend and its option, such as inductor:reduce-overhead",
        heading="backend",
        is_filter=True,
    ),
    Axis(
        name="precision",
        plural="precisions",
        kind=Precision,
        default=Precision.DEFAULT,
        options=("--precision",),
        metavar="P[,P]",
        help="{known}",
        column="precision; default is PyTorch out of the box",
        heading="precision",
        label="{}",
        phrase=" at {}",
        is_filter=True,
    ),
    Axis(
        name="memory_format",
        plural="memory_formats",
        kind=MemoryFormat,
        default=MemoryFormat.CONTIGUOUS,
        options=("--memory-format",),
        metavar="F[,F]",
        help="{known}",
        column="contiguous or channels_last",
        heading="format",
        label="{}",
        phrase=" in {}",
    ),
    Axis(
        name="compile_scope",
        plural="compile_scopes",
        kind=CompileScope,
        default=CompileScope.NETWORK,
        options=("--compile-scope",),
        metavar="S[,S]",
        help="{known}: a backend is given each network, as by torch.compile(model); each repeated block of the "
        "networks by itself; or the whole step",
        column="what the backend was given: network, block or step",
        heading="scope",
        label="scope={}",
        phrase=" (scope {})",
        of_compiler=True,
    ),
    Axis(
        name="batch_size",
        plural="batch_sizes",
        kind=int,
        options=("--bs", "--batch-size"),
        metavar="N[,N]",
        help="numbers; smoke; default: each model's own; serving: a busy server's, for prefill and decode; auto: the "
        "default, doubled until throughput stops rising",
        column="samples in a batch",
        heading="batch",
    ),
    Axis(
        name="world",
        plural="worlds",
        kind=int,
        default=1,
        options=("--world",),
        metavar="N[,N]",
        help="how many ranks share a step, each with a device of its own; the batch is each rank's",
        column="ranks: processes with a device each that take one step together",
        heading="ranks",
    ),
    Axis(
        name="parallel",
        plural="parallels",
        kind=Parallel,
        default=Parallel.NONE,
        options=("--parallel",),
        metavar="P[,P]",
        help="what ranks do: {known}; with tp all of them have the same batch",
        column="what ranks share: none, ddp, fsdp2 or tp",
        heading="parallel",
        label="{} x{case.world}",
        phrase=" by {} x{case.world}",
    ),
    Axis(
        name="seed",
        plural="seed",
        kind=int,
        default=0,
        options=("--seed",),
        metavar="N",
        help="of weights and data",
        column="of weights and data",
        heading="seed",
    ),
)


class Axes(msgspec.Struct, frozen=True, kw_only=True):
    """The axes of a run. The plan has a case for each combination.

    Each of `batch_sizes` is a number, `smoke`, `default` (the batch in metadata.yaml), `serving` (that of a busy server
    for modes that generate, the default for others), `auto` (the default, doubled until throughput stops rising), or
    None (in evaluation the batch tuned for this class of device if there is one, else the default). Eager compiles
    nothing, so it has one case for all of `compile_scopes`, and none where another backend of the same case can run:
    that has eager beside it. `repeats` is how many processes measure each case.
    """

    modes: tuple[Mode, ...]
    devices: tuple[str, ...]
    backends: tuple[Backend, ...]
    precisions: tuple[Precision, ...] = (Precision.DEFAULT,)
    memory_formats: tuple[MemoryFormat, ...] = (MemoryFormat.CONTIGUOUS,)
    compile_scopes: tuple[CompileScope, ...] = (CompileScope.NETWORK,)
    batch_sizes: tuple[int | str | None, ...] = (None,)
    worlds: tuple[int, ...] = (1,)
    parallels: tuple[Parallel, ...] = ()  # of the cases with several ranks
    seed: int = 0
    repeats: int = 1
    eager_alone: bool = False  # whether eager is measured alone, too, where another backend has it beside it

    @property
    def folds_eager(self) -> bool:
        """Whether eager was asked for and is measured beside other backends only, where these can run."""
        return EAGER in self.backends and len(self.backends) > 1 and not self.eager_alone

    def ranks(self) -> tuple[tuple[int, Parallel], ...]:
        """How many ranks there are, and what they share: each combination once."""
        one = [(1, Parallel.NONE)] if 1 in self.worlds else []
        several = [world for world in self.worlds if world > 1]
        return (*one, *itertools.product(several, self.parallels))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The fields of `Case` for each combination, but for `model`; `batch_size` is still what was asked for."""
        independent = [axis for axis in AXES if axis.name not in ("world", "parallel", "seed")]
        values = [getattr(self, axis.plural) for axis in independent]
        for *chosen, (world, parallel), repeat in itertools.product(*values, self.ranks(), range(self.repeats)):
            named = dict(zip((axis.name for axis in independent), chosen, strict=True))
            yield {**named, "world": world, "parallel": parallel, "seed": self.seed, "repeat": repeat}

    def only(self, case: Case) -> Axes:
        """These axes with the values of one case, which is measured once."""
        values = {axis.plural: axis.of(case) if axis.name == "seed" else (axis.of(case),) for axis in AXES}
        return msgspec.structs.replace(self, **values, repeats=1)
