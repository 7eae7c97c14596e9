"""Define a case, the thing that is measured: its axes, and the kinds of results of its step."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator
from typing import Any

import msgspec

from torchzoo.bounds import Count, Int64, PositiveCount


class Mode(enum.StrEnum):
    """The kind of a step. Each mode has a method of `torchzoo.model.Model`: `train_step`, `eval_step`, ..."""

    TRAIN = "train"
    EVAL = "eval"
    PREFILL = "prefill"  # models that generate: read a prompt, fill the cache, give the first token
    DECODE = "decode"  # models that generate: one more token for each sequence, with a filled cache

    @property
    def generates(self) -> bool:
        """Whether only models that generate have this mode."""
        return self in (Mode.PREFILL, Mode.DECODE)


class Precision(enum.StrEnum):
    """A precision label. `torchzoo.measure.precision` applies it to a model and checks that it was reached."""

    DEFAULT = "default"  # PyTorch's defaults: fp32, TF32 in convolutions only
    FP32 = "fp32"  # no TF32 anywhere
    TF32 = "tf32"  # TF32 in matrix products and convolutions
    FP16 = "fp16"  # weights and inputs cast
    BF16 = "bf16"
    AMP = "amp"  # autocast at the device's default dtype
    AMP_FP16 = "amp_fp16"
    AMP_BF16 = "amp_bf16"
    FP64 = "fp64"
    FP8 = "fp8"  # bf16, but Linear layers multiply weights, activations and gradients in float8
    INT8WO = "int8wo"  # bf16, but the weights of Linear layers are stored in 8 bits; inference only
    INT4WO = "int4wo"  # as INT8WO, in 4 bits

    @property
    def is_weight_only(self) -> bool:
        """Whether weights are stored in fewer bits than the products use."""
        return self in (Precision.INT8WO, Precision.INT4WO)

    @property
    def is_quantized(self) -> bool:
        """Whether torchao quantizes Linear layers. Other layers are as with `bf16`."""
        return self is Precision.FP8 or self.is_weight_only


class MemoryFormat(enum.StrEnum):
    CONTIGUOUS = "contiguous"
    CHANNELS_LAST = "channels_last"


class CompileScope(enum.StrEnum):
    NETWORK = "network"  # each network, as by torch.compile(model)
    BLOCK = "block"  # each repeated block by itself: blocks of one class share their code
    STEP = "step"  # the whole step, with loss, backward and optimizer


class Parallel(enum.StrEnum):
    """The way in which the ranks of a case share its step."""

    NONE = "none"  # one rank
    DDP = "ddp"  # DistributedDataParallel: each rank has all weights and its own batch
    FSDP2 = "fsdp2"  # fully_shard: each rank has a part of the weights and its own batch
    TP = "tp"  # tensor parallelism: each rank has a part of the weights, all have the same batch


class Domain(enum.StrEnum):
    COMPUTER_VISION = "computer_vision"
    NLP = "nlp"
    RECOMMENDATION = "recommendation"
    REINFORCEMENT_LEARNING = "reinforcement_learning"
    SPEECH = "speech"
    OTHER = "other"


class NativeDtype(enum.StrEnum):
    """The dtype in which a model computes without a cast."""

    FP32 = "fp32"
    FP64 = "fp64"


class ResultKind(enum.StrEnum):
    """A kind of result of a step, which is compared with another run of the step."""

    LOSS = "loss"
    OUTPUTS = "outputs"  # the floating outputs of an evaluation
    INTEGERS = "integers"  # outputs and buffers that are whole numbers: token indices, counters
    DETECTIONS = "detections"  # sets of boxes
    GRADIENTS = "gradients"
    PARAMETERS = "parameters"  # changes of the parameters by the step
    OPTIMIZER = "optimizer"  # the optimizer's state, such as moments
    BUFFERS = "buffers"  # running statistics
    STATE = "state"  # changes of buffers and caches by a step that does not train


class Backend(msgspec.Struct, frozen=True):
    """A backend and its mode: `Backend("inductor", "reduce-overhead")`, written `inductor:reduce-overhead`."""

    name: str
    option: str | None = None

    def __str__(self) -> str:
        return self.name if self.option is None else f"{self.name}:{self.option}"


EAGER = Backend("eager")


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A case, fully resolved. Its fields are its identity: no label is ever parsed back.

    Each field but `model` is an axis, which `AXES` declares.
    """

    model: str
    mode: Mode
    device: str
    backend: Backend = EAGER
    precision: Precision = Precision.DEFAULT
    memory_format: MemoryFormat = MemoryFormat.CONTIGUOUS
    compile_scope: CompileScope = CompileScope.NETWORK
    #: None only if nothing can run: without metadata, or in a mode that the model does not have.
    batch_size: PositiveCount | None  # of each rank; with tensor parallelism, of all ranks together
    world: PositiveCount = 1  # number of ranks, each a process with a device of its own
    parallel: Parallel = Parallel.NONE
    seed: Int64 = 0
    repeat: Count = 0  # number, from 0, of the process that measures the case

    def label(self) -> str:
        """The case in words, for people: `resnet18 train cuda inductor fp32 bs16`. Defaults are left out."""
        parts = [self.model, self.mode, self.device, self.axes_label()]
        if self.batch_size is not None:
            parts.append(f"bs{self.batch_size}")
        if self.repeat:
            parts.append(f"repeat {self.repeat}")
        return " ".join(parts)

    def axes_label(self) -> str:
        """The axes that cases must share to be averaged, except the device: `inductor amp`. Defaults are left out."""
        return " ".join([str(self.backend), *self.variations()])

    def variations(self) -> list[str]:
        """The axes, other than the backend, that are not at their defaults: `amp`, `scope=block`, `ddp x4`."""
        named = (axis for axis in AXES if axis.label and not axis.is_default(self))
        return [axis.label.format(axis.of(self), case=self) for axis in named]

    def comparison_group(self) -> str:
        """The label of all axes that cases must share to be averaged: `inductor on cuda at amp`."""
        found = (axis.phrase.format(axis.of(self), case=self) for axis in AXES if not axis.is_default(self))
        return f"{self.backend} on {self.device}{''.join(found)}"

    def compiled_by(self) -> str:
        """The backend, and its scope unless that is each network: `inductor`, `inductor scope=step`."""
        given = [axis.label.format(axis.of(self)) for axis in AXES if axis.of_compiler and not axis.is_default(self)]
        return " ".join([str(self.backend), *given])

    def ranks_label(self) -> str:
        """The kind of parallelism and the number of ranks: `ddp x4`."""
        return f"{self.parallel} x{self.world}"

    @property
    def device_type(self) -> str:
        """The device without its index: `cuda` for `cuda:1`."""
        return self.device.partition(":")[0]

    def first_repeat(self) -> Case:
        """The case with repeat 0, which represents all its repeats."""
        return msgspec.structs.replace(self, repeat=0)

    def tuning_case(self) -> Case:
        """The eager case whose throughput determines this case's batch size with `--bs auto`."""
        return self.first_repeat().in_eager()

    def in_eager(self) -> Case:
        """The case with eager alone, which every backend is compared with."""
        given = {axis.name: axis.default for axis in AXES if axis.of_compiler}
        return msgspec.structs.replace(self, backend=EAGER, **given)


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """A way in which cases differ, declared once. Commands, plans, labels, tables, filters and indexes read `AXES`.

    To add an axis, add its field to `Case` and to `Axes`, its entry to `AXES`, and the code that applies it.
    """

    name: str  # the field of `Case`, and the keyword of `torchzoo.run`
    plural: str  # the field of `Axes`
    kind: type[Any]  # of a value: an enum, `Backend`, `int` or `str`
    default: Any = None  # omitted in labels and commands; None: every case names its value
    options: tuple[str, ...] = ()  # of the command line
    metavar: str
    help: str  # of the option; {known} stands for the known values
    column: str  # description of a table's column
    heading: str  # of a narrow column
    label: str = ""  # a format of the value in `Case.axes_label`; empty: not part of it
    phrase: str = ""  # a format of the value in `Case.comparison_group`
    of_compiler: bool = False  # whether the axis does not apply to eager
    is_filter: bool = False  # whether pages have a filter for it

    def of(self, case: Case) -> Any:
        """The value of a case."""
        return getattr(case, self.name)

    def is_default(self, case: Case) -> bool:
        """Whether the value of a case is left out of labels."""
        return self.default is not None and bool(self.of(case) == self.default)

    def text(self, case: Case) -> str:
        """The value of a case as on the command line."""
        return str(self.of(case))

    def value(self, text: str) -> Any:
        """Parse a value: the inverse of `text`.

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
        help="{known}; the last two are for models that generate",
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

    Each of `batch_sizes` is a number, `smoke`, `default` (the batch in metadata.yaml), `serving` (the batch of a busy
    server for modes that generate, else the default), `auto` (the default, doubled until throughput stops rising), or
    None (in evaluation the batch tuned for this class of device if there is one, else the default). Eager compiles
    nothing, so it has one case for all of `compile_scopes`, and no case of its own if another backend of the case can
    run, which eager is measured in turns with. `repeats` is the number of processes that measure each case.
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
    eager_alone: bool = False  # whether eager is measured alone, too, despite other backends

    @property
    def folds_eager(self) -> bool:
        """Whether eager was requested, and is measured only in turns with other backends if these can run."""
        return EAGER in self.backends and len(self.backends) > 1 and not self.eager_alone

    def ranks(self) -> tuple[tuple[int, Parallel], ...]:
        """The combinations of the number of ranks and the kind of parallelism."""
        one = [(1, Parallel.NONE)] if 1 in self.worlds else []
        several = [world for world in self.worlds if world > 1]
        return (*one, *itertools.product(several, self.parallels))

    def combinations(self) -> Iterator[dict[str, Any]]:
        """The fields of `Case` but `model` for each combination; `batch_size` is still the requested one."""
        independent = [axis for axis in AXES if axis.name not in ("world", "parallel", "seed")]
        values = [getattr(self, axis.plural) for axis in independent]
        for *chosen, (world, parallel), repeat in itertools.product(*values, self.ranks(), range(self.repeats)):
            named = dict(zip((axis.name for axis in independent), chosen, strict=True))
            yield {**named, "world": world, "parallel": parallel, "seed": self.seed, "repeat": repeat}

    def only(self, case: Case) -> Axes:
        """The axes with the values of one case, which is measured once."""
        values = {axis.plural: axis.of(case) if axis.name == "seed" else (axis.of(case),) for axis in AXES}
        return msgspec.structs.replace(self, **values, repeats=1)
