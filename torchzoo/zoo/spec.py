"""What must be known about a model before its code is imported: `metadata.yaml` as a `ModelSpec`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchzoo.case import Case, CompileScope, Domain, MemoryFormat, Mode, NativeDtype, Precision
from torchzoo.errors import TorchzooError
from torchzoo.record import ResultKind


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The cases that a rule of `metadata.yaml` is about, and why. A field that is left out matches every case."""

    reason: str
    mode: Mode | None = None
    device: tuple[str, ...] = ()  # device types: cpu, cuda, ...
    backend: tuple[str, ...] = ()  # with or without its option: inductor, inductor:max-autotune
    precision: tuple[Precision, ...] = ()

    def matches(self, case: Case) -> bool:
        """Whether all given fields match the case."""
        return (
            self.mode in (None, case.mode)
            and (not self.device or case.device_type in self.device)
            and (not self.backend or bool({case.backend.name, str(case.backend)} & set(self.backend)))
            and (not self.precision or case.precision in self.precision)
        )


class ToleranceRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tolerance of the check that a model needs in place of the precision's."""

    tolerance: float  # relative error; of `integers` and `detections` the share that may differ
    what: tuple[ResultKind, ...] = ()


class SkipRule(Rule, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cases that a model can't run."""

    memory_format: MemoryFormat | None = None
    compile_scope: CompileScope | None = None

    def matches(self, case: Case) -> bool:
        return (
            Rule.matches(self, case)
            and self.memory_format in (None, case.memory_format)
            and self.compile_scope in (None, case.compile_scope)
        )

    def holds_for_all(self, mode: Mode, device: str | None = None) -> bool:
        """Whether it means every case of `mode` (on devices of type `device`, or on all), whatever the other axes."""
        has_no_other_axis = self == SkipRule(reason=self.reason, mode=self.mode, device=self.device)
        return has_no_other_axis and self.mode in (None, mode) and (not self.device or device in self.device)


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model folder's `metadata.yaml`.

    `batch_size` has one entry per mode the model runs in; a mode without one needs a skip that says why.
    `large` says why the contract is tested on the meta device and on a GPU only: a CPU's memory or patience.
    `device_memory_gib` says what a case at the default batch size needs of a device, where that is much.
    `parameters` counts the elements of all parameters of `Model.networks()`, frozen and target copies included.
    `detection_rows` says that evaluation gives detections as rows of x1, y1, x2, y2, score and class, a set per image.
    """

    domain: Domain
    task: str
    paper: str
    source: str  # the library that has the model, or "written here after <paper>"
    requirements: tuple[str, ...]  # pip requirements beyond torch
    parameters: int
    batch_size: dict[Mode, int]
    smoke_batch_size: int
    skips: tuple[SkipRule, ...] = ()
    native_dtype: NativeDtype = NativeDtype.FP32
    device_memory_gib: dict[Mode, float] = {}
    large: str | None = None
    syncs: dict[Mode, str] = {}  # steps that wait for the device or copy to the host by nature, and why
    unchanged_parameters: dict[str, str] = {}  # glob of "network.parameter" names a train step leaves alone: why
    tolerances: tuple[ToleranceRule, ...] = ()
    detection_rows: bool = False
    name: str = ""
    folder: str = ""

    def modes(self) -> tuple[Mode, ...]:
        return tuple(mode for mode in Mode if mode in self.batch_size)


class SpecError(TorchzooError):
    """A `metadata.yaml` that can't be used; the message is one line and names the file."""


def read_spec(folder: Path) -> ModelSpec:
    """The spec of one model folder.

    Raises:
        SpecError: no `metadata.yaml`, bad YAML, or fields that are missing, unknown or of the wrong type.
    """
    import yaml

    path = folder / "metadata.yaml"
    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        fields = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  a safe loader, the fast one
        if not isinstance(fields, dict):
            raise SpecError(f"{path}: expected a mapping of fields, found {type(fields).__name__}")
        spec = msgspec.convert({**fields, "name": folder.name, "folder": str(folder)}, ModelSpec)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{path}: not UTF-8 text: {error.reason}") from error
    except yaml.YAMLError as error:
        where = getattr(error, "problem_mark", None)
        line = f" in line {where.line + 1}" if where else ""
        raise SpecError(f"{path}: not valid YAML{line}: {getattr(error, 'problem', None) or error}") from error
    except msgspec.ValidationError as error:
        raise SpecError(f"{path}: {error}") from error
    _check(spec, path)
    return spec


def _check(spec: ModelSpec, path: Path) -> None:
    for what, size in [*spec.batch_size.items(), ("smoke", spec.smoke_batch_size)]:
        if size < 1:
            raise SpecError(f"{path}: the {what} batch size must be at least 1, found {size}")
    for rule in spec.tolerances:
        if not (0 <= rule.tolerance < 1 and rule.reason.strip()):
            raise SpecError(f"{path}: an entry of tolerances needs a reason and a tolerance in [0, 1)")
    for mode in Mode:
        has_reason = any(rule.holds_for_all(mode) for rule in spec.skips)
        if mode not in spec.batch_size and not has_reason:
            raise SpecError(f"{path}: batch_size has no '{mode}', and no entry of skips says why")
