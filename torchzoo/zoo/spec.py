"""What must be known about a model before its code is imported: `metadata.yaml` as a `ModelSpec`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchzoo.case import Domain, Mode, NativeDtype
from torchzoo.errors import TorchzooError, unknown
from torchzoo.zoo.rules import SkipRule, ToleranceRule, known_limits


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One model folder's `metadata.yaml`.

    - `parameters` counts the elements of all parameters of `Model.networks()`, with frozen networks and target copies.
    - `batch_size` has an entry for each mode that the model runs in. A mode without one needs a skip that says why.
    - `limits` names limits of `limits.yaml`. `read_spec` adds their rules to `skips` and their reasons to `syncs`.
    - `device_memory_gib` says how much memory a case at the default batch size needs. It is given where that is much.
    - `large` says why a CPU has too little memory or is too slow for the contract's test. Such a model is tested on the
      meta device, and fully on a GPU.
    - `detection_rows` says that an eval step returns detections: for each image, rows of x1, y1, x2, y2, score, class.
    """

    domain: Domain
    task: str
    paper: str
    source: str  # the library that has the model, or "written here after <paper>"
    requirements: tuple[str, ...]  # pip requirements beyond torch
    parameters: int
    batch_size: dict[Mode, int]
    smoke_batch_size: int
    limits: tuple[str, ...] = ()
    skips: tuple[SkipRule, ...] = ()
    native_dtype: NativeDtype = NativeDtype.FP32
    device_memory_gib: dict[Mode, float] = {}
    large: str | None = None
    syncs: dict[Mode, str] = {}  # modes whose step must wait for the device or copy to the host, and why
    unchanged_parameters: dict[str, str] = {}  # globs of `network.parameter` that a train step does not change, and why
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
        SpecError: there is no `metadata.yaml`, it is not YAML, or a field is missing, unknown or of the wrong type.
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
    spec = _with_limits(spec, path)
    _check(spec, path)
    return spec


def _with_limits(spec: ModelSpec, path: Path) -> ModelSpec:
    """`spec` with the rules of the limits that it names."""
    skips, syncs = spec.skips, spec.syncs
    for name in spec.limits:
        if name not in known_limits():
            raise SpecError(f"{path}: {unknown('limit', name, known_limits())}")
        skips += known_limits()[name].skips
        syncs = known_limits()[name].syncs | syncs
    return msgspec.structs.replace(spec, skips=skips, syncs=syncs)


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
