"""Models x axes -> a `Plan`: fully resolved cases, and the cases that can't run, with reasons. Pure functions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import msgspec

from torchzoo import backends
from torchzoo.backends import BackendInfo
from torchzoo.case import EAGER, Backend, Case, CompileScope, MemoryFormat, Mode, Parallel, Precision
from torchzoo.errors import UsageError, unknown
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.settings import Stage
from torchzoo.zoo.spec import ModelSpec, SpecError

SMOKE = "smoke"
SERVING = "serving"
DEFAULT = "default"
AUTO = "auto"
BATCH_WORDS = (DEFAULT, SERVING, AUTO, SMOKE)

AUTOCAST = (Precision.AMP, Precision.AMP_FP16, Precision.AMP_BF16)
QUANTIZER = "torchao"  # the package that quantizes


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

    def gangs(self) -> tuple[tuple[int, Parallel], ...]:
        """How many ranks there are, and what they share: each combination once."""
        alone = [(1, Parallel.NONE)] if 1 in self.worlds else []
        several = [world for world in self.worlds if world > 1]
        return (*alone, *itertools.product(several, self.parallels))


class PlannedCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case of a plan: its spec, or, where it can't run, the outcome that it already has."""

    case: Case
    spec: ModelSpec | None = None
    resolved: Skipped | Failed | None = None
    agent: str = ""  # who runs it, where a run has several agents (`torchzoo.run.agents`)


Plan = tuple[PlannedCase, ...]


def make_plan(
    models: Iterable[ModelSpec | tuple[str, SpecError]],
    axes: Axes,
    missing: dict[str, str],
    tuned: dict[str, dict[str, int]] | None = None,
    auto: dict[Case, int] | None = None,
) -> Plan:
    """Every combination of `models` and `axes`. All cases of one model stand together.

    Of a model that does not generate, the modes prefill and decode are left out where it has cases in another mode.

    Args:
        models: specs. Of a folder whose spec can't be read, its name and the error: its cases fail with that error.
        axes: already checked by `check_axes`.
        missing: the reason why a model (by name) or a backend's package (by package) can't be used on this machine.
        tuned: evaluation batches by device (as in `axes`) and model.
        auto: the batches that `auto` found, by tuning case at the default batch; without one, the default is taken.
    """
    combinations = list(
        itertools.product(
            axes.modes,
            axes.devices,
            axes.precisions,
            axes.memory_formats,
            axes.backends,
            axes.compile_scopes,
            axes.batch_sizes,
            axes.gangs(),
            range(axes.repeats),
        )
    )
    planned: dict[Case, PlannedCase] = {}
    for model in models:
        modes = _modes_of(model, axes.modes)
        for mode, device, precision, memory_format, backend, scope, batch_size, gang, repeat in combinations:
            if mode not in modes:
                continue
            name = model.name if isinstance(model, ModelSpec) else model[0]
            case = Case(
                model=name,
                mode=mode,
                device=device,
                backend=backend,
                precision=precision,
                memory_format=memory_format,
                compile_scope=scope if backend != EAGER else CompileScope.NETWORK,
                batch_size=_batch_size(model, mode, batch_size, (tuned or {}).get(device, {}))
                if isinstance(model, ModelSpec)
                else None,
                world=gang[0],
                parallel=gang[1],
                seed=axes.seed,
                repeat=repeat,
            )
            if batch_size == AUTO:
                found = (auto or {}).get(case.tuning_case(), case.batch_size)
                case = msgspec.structs.replace(case, batch_size=found)
            planned[case] = plan_case(case, model, missing)  # equal batch sizes, or eager in two scopes: one case
    if axes.folds_eager:
        for one in [one for one in planned.values() if one.case.backend != EAGER and one.resolved is None]:
            planned.pop(one.case.in_eager(), None)
    return tuple(planned.values())


def _modes_of(model: ModelSpec | tuple[str, SpecError], asked: tuple[Mode, ...]) -> tuple[Mode, ...]:
    """Those of the modes that the model has cases in: without prefill and decode if it does not generate."""
    if not isinstance(model, ModelSpec):
        return asked
    others = tuple(mode for mode in asked if mode in model.batch_size or not mode.generates)
    return others or asked


def to_tune(models: Iterable[ModelSpec | tuple[str, SpecError]], axes: Axes, missing: dict[str, str]) -> Plan:
    """The cases that `auto` must tune, at the default batch: each tuning case once, if any of its cases can run."""
    if AUTO not in axes.batch_sizes:
        return ()
    cases = make_plan(models, msgspec.structs.replace(axes, batch_sizes=(AUTO,)), missing)
    runnable = {one.case.tuning_case(): one.spec for one in cases if one.resolved is None}
    return tuple(PlannedCase(case=case, spec=spec) for case, spec in runnable.items())


def plan_case(case: Case, model: ModelSpec | tuple[str, SpecError], missing: dict[str, str]) -> PlannedCase:
    """The case with its spec; with an outcome where it can't run."""
    if not isinstance(model, ModelSpec):
        return PlannedCase(case=case, resolved=Failed(kind=FailureKind.ERROR, stage=Stage.PLAN, message=str(model[1])))
    reason = skip_reason(case, model, missing)
    resolved = None if reason is None else Skipped(reason=" ".join(reason.split()))  # YAML may have several lines
    return PlannedCase(case=case, spec=model, resolved=resolved)


def _batch_size(spec: ModelSpec, mode: Mode, asked: int | str | None, tuned: dict[str, int]) -> int | None:
    if mode not in spec.batch_size:
        return None
    if isinstance(asked, int):
        return asked
    if asked == SMOKE:
        return spec.smoke_batch_size
    if asked == SERVING:
        return spec.serving_batch_size.get(mode, spec.batch_size[mode])
    default = spec.batch_size[mode]
    return tuned.get(spec.name, default) if asked is None and mode is Mode.EVAL else default


def skip_reason(case: Case, spec: ModelSpec, missing: dict[str, str]) -> str | None:
    """The reason why `case` can't run here, or None. The model's own rules come first, then what the machine lacks.

    This is where every skip before a run is decided. (A worker skips only what it finds by running: `NotRunnable`.)
    """
    for rule in spec.skips:
        if rule.matches(case) or (case.precision.is_quantized and rule.matches(_at_bf16(case))):
            return rule.reason
    if case.mode not in spec.batch_size and case.mode.generates:
        return f"{spec.name} has no {case.mode} step: it does not generate"
    if case.parallel is Parallel.DDP and case.mode is not Mode.TRAIN:
        return "under DDP, ranks that evaluate have nothing to do with each other"
    backend = backends.info(case.backend.name)
    if (
        case.mode not in backend.modes
        or case.compile_scope not in backend.scopes
        or (backend.devices and case.device_type not in backend.devices)
        or (backend.models and case.model not in backend.models)
        or (case.precision in AUTOCAST and not backend.takes_autocast)
        or (case.world > 1 and not backend.takes_ranks)
    ):
        return f"{case.backend}: {backend.why_limited}"
    if backend.package in missing:
        return missing[backend.package]
    if case.precision.is_quantized:
        reason = _why_not_quantized(case, backend) or missing.get(QUANTIZER)
        if reason is not None:
            return reason
    return missing.get(spec.name)


def _at_bf16(case: Case) -> Case:
    """The case with the weights and data that quantized precisions start from."""
    return msgspec.structs.replace(case, precision=Precision.BF16)


def _why_not_quantized(case: Case, backend: BackendInfo) -> str | None:
    if case.precision.is_weight_only and case.mode is Mode.TRAIN:
        return f"{case.precision} stores weights for inference: weights in whole numbers can't be trained"
    if case.world > 1:
        return f"{case.precision}: torchzoo quantizes on one device only"
    if not backend.takes_quantized:
        return f"{case.backend} does not take the quantized tensors of torchao"
    return None


def parse_backend(text: str) -> Backend:
    """`inductor:reduce-overhead` as a `Backend`. Whether Dynamo knows an unlisted name is checked with the machine.

    Raises:
        UsageError: an option that a listed backend does not have.
    """
    name, _, option = text.partition(":")
    options = backends.info(name).options
    if option and option not in options:
        known = ", ".join(options) or "none"
        raise UsageError(f"backend {name} has no mode '{option}': it has {known}")
    return Backend(name, option or None)


def axes_on(axes: Axes, machine: MachineInfo) -> Axes:
    """The axes with the machine's own device where they name none.

    Raises:
        UsageError: as `check_axes`.
    """
    chosen = axes if axes.devices else msgspec.structs.replace(axes, devices=(machine.default_device,))
    check_axes(chosen, machine)
    return chosen


def check_axes(axes: Axes, machine: MachineInfo) -> None:
    """Check that the machine has the devices and that PyTorch has the backends.

    Raises:
        UsageError: one is missing; the message says what there is.
    """
    for device in axes.devices:
        kind, _, index = device.partition(":")
        count = machine.devices.get(kind, 0)
        if count == 0:
            present = ", ".join(machine.devices)
            raise UsageError(
                f"no {kind} device: PyTorch {machine.environment.get('torch')} sees only {present} here; "
                "`torchzoo doctor` shows more of this machine"
            )
        if kind != "cpu" and max(axes.worlds) > count:
            raise UsageError(f"--world {max(axes.worlds)}: there are {count} of {kind}")
        if index and int(index) >= count:
            raise UsageError(f"no device {device}: there are {count} of {kind}, counted from 0")
    known = {*backends.BACKENDS, *machine.dynamo_backends}
    for backend in axes.backends:
        if backend.name not in known:
            # Those for the tests of Dynamo itself can be used, but are not proposed.
            proposed = sorted(name for name in known if not name.endswith("TESTING_ONLY"))
            raise UsageError(unknown("backend", backend.name, proposed))
