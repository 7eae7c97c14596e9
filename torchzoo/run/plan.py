"""Models x axes -> a `Plan`: fully resolved cases, and the cases that can't run, with reasons. Pure functions."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from torchzoo import backends
from torchzoo.backends import BackendInfo
from torchzoo.case import EAGER, Axes, Backend, Case, Mode, Parallel, Precision
from torchzoo.errors import UsageError, unknown
from torchzoo.machine.facts import MachineInfo
from torchzoo.measure.fresh_turns import Turn
from torchzoo.record import Failed, FailureKind, RecordKey, Skipped
from torchzoo.settings import CacheMode, Pass, Settings, Stage
from torchzoo.zoo.spec import ModelSpec, SpecError

SMOKE = "smoke"
SERVING = "serving"
DEFAULT = "default"
AUTO = "auto"
BATCH_WORDS = (DEFAULT, SERVING, AUTO, SMOKE)

QUANTIZER = "torchao"  # the package that quantizes


class Before(enum.Enum):
    """A process that runs before the one that measures the case. It has no record of its own."""

    ALONE = "alone"  # reads the memory of the candidate: eager never runs in it
    PRIME = "prime"  # compiles the case, and so fills the caches; it ends before its measuring window


class PlannedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A process of a case, with the spec of the model. A process that can't run has its outcome already."""

    case: Case
    spec: ModelSpec | None = None
    resolved: Skipped | Failed | None = None
    environment: str = ""  # the name of the software that it runs in, where there are several
    turn: Turn | None = None  # of the fresh process that runs; None: a worker measures the whole case
    before: Before | None = None  # the work of a process that comes before that worker

    @property
    def key(self) -> RecordKey:
        """What `Record.key` of its record will be."""
        return (self.case, "", 0) if self.turn is None else (self.case, self.turn.role, self.turn.number)

    @property
    def holds_others(self) -> bool:
        """Whether the later processes of the case wait until this one has ended."""
        return self.turn is not None or self.before is not None


Plan = tuple[PlannedCase, ...]


def processes_of(planned: PlannedCase, settings: Settings) -> Plan:
    """The processes of a planned case in their order; the one that is planned comes last."""
    if planned.turn is not None or planned.resolved is not None or planned.case.backend == EAGER:
        return (planned,)
    first = []
    if Pass.MEMORY_ALONE in settings.passes and why_never_alone(planned.case) is None:
        first.append(Before.ALONE)
    if settings.cache is CacheMode.WARM:
        first.append(Before.PRIME)
    return (*(msgspec.structs.replace(planned, before=before) for before in first), planned)


def why_never_alone(case: Case) -> str | None:
    """Return why the candidate of such a case can't have a process without eager, or None if it can."""
    if case.world > 1:
        return "a case of several ranks has none"
    if not backends.info(case.backend.name).uses_dynamo:
        return f"{case.backend} does not compile in its first step: an eager step comes before it"
    return None


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
    combinations = list(axes.combinations())
    planned: dict[Case, PlannedCase] = {}
    for model in models:
        modes = _modes_of(model, axes.modes)
        for values in combinations:
            if values["mode"] not in modes:
                continue
            case = _case(model, values, tuned or {})
            if values["batch_size"] == AUTO:
                found = (auto or {}).get(case.tuning_case(), case.batch_size)
                case = msgspec.structs.replace(case, batch_size=found)
            planned[case] = plan_case(case, model, missing)  # equal batch sizes, or eager in two scopes: one case
    if axes.folds_eager:
        for one in [one for one in planned.values() if one.case.backend != EAGER and one.resolved is None]:
            planned.pop(one.case.in_eager(), None)
    return tuple(planned.values())


def _case(model: ModelSpec | tuple[str, SpecError], values: dict[str, Any], tuned: dict[str, dict[str, int]]) -> Case:
    """The case with these values of the axes, at the batch size of the model that they ask for."""
    if not isinstance(model, ModelSpec):
        case = Case(model=model[0], **{**values, "batch_size": None})
    else:
        batch_size = _batch_size(model, values["mode"], values["batch_size"], tuned.get(values["device"], {}))
        case = Case(model=model.name, **{**values, "batch_size": batch_size})
    return case.in_eager() if case.backend == EAGER else case


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
    if not backend.takes(case):
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
    """Return `inductor:reduce-overhead` as a `Backend`. Whether Dynamo has an unlisted name is checked later.

    Raises:
        UsageError: the backend does not have that option.
    """
    name, _, option = text.partition(":")
    backend, options = Backend(name, option or None), backends.info(name).options
    if option and option not in options:
        known = ", ".join(options) or "none"
        raise UsageError(_hint_at_userbenchmark(backend) or f"backend {name} has no mode '{option}': it has {known}")
    return backend


def _hint_at_userbenchmark(backend: Backend) -> str:
    """Return the message for the name of a userbenchmark's backend without that of the userbenchmark; else ''."""
    for qualified in backends.of_userbenchmarks():
        userbenchmark, _, name = qualified.partition("/")
        if name == backend.name:
            return f"backend {name} is part of the userbenchmark {userbenchmark}: --backend {userbenchmark}/{backend}"
    return ""


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
                f"no {kind} device: PyTorch {machine.environment.torch} sees only {present} here; "
                "`torchzoo doctor` shows more of this machine"
            )
        if kind != "cpu" and max(axes.worlds) > count:
            raise UsageError(f"--world {max(axes.worlds)}: there are {count} of {kind}")
        if index and int(index) >= count:
            raise UsageError(f"no device {device}: there are {count} of {kind}, counted from 0")
    known = {*backends.BACKENDS, *machine.dynamo_backends}
    for backend in axes.backends:
        if backend.name not in known and backend.name not in backends.of_userbenchmarks():
            # Those for the tests of Dynamo itself can be used, but are not proposed.
            proposed = sorted(name for name in known if not name.endswith("TESTING_ONLY"))
            raise UsageError(_hint_at_userbenchmark(backend) or unknown("backend", backend.name, proposed))
