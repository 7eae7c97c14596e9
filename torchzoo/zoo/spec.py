"""Read `metadata.yaml`, the facts of a model that must be known before its code is imported, as a `ModelSpec`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from torchzoo.bounds import Amount
from torchzoo.case import Domain, Mode, NativeDtype
from torchzoo.errors import TorchzooError, attempt, unknown, written
from torchzoo.files import FileError, read_yaml
from torchzoo.zoo.requirements import parse_requirement
from torchzoo.zoo.rules import Line, Rule, SkipRule, ToleranceRule, known_limits

#: The largest batch size, and the most parameters, that a model may declare.
LARGEST_BATCH, MOST_PARAMETERS = 2**31 - 1, 10**15
BatchSize = Annotated[int, Meta(ge=1, le=LARGEST_BATCH)]


class Tokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The lengths of a model that generates."""

    prompt: Annotated[int, Meta(ge=1, le=2**31)]
    cache: Annotated[int, Meta(ge=1, le=2**31)]


class ModelSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `metadata.yaml` of a model folder.

    Batch sizes go up to 2**31 - 1, parameters to 10**15, texts to 1,000 characters.

    - `parameters` counts the elements of all parameters of `Model.networks()`, with frozen networks and target copies.
    - `batch_size` has an entry for each mode that the model runs in. Without one for `train` or `eval`, a skip must say
      why. Only models that generate have `prefill` and `decode`.
    - `serving_batch_size` has the batch of a busy server for `prefill` and `decode` (`--bs serving`).
    - `tokens` has the length of the prompts that `prefill` reads, and the number of tokens in the cache of a sequence
      at the end of a `decode` step.
    - `limits` names limits of `limits.yaml`. `read_spec` adds their rules to `skips` and their reasons to `syncs`.
    - `gflop_per_step` has the operations of a step at the default batch in 1e9. `torchzoo check-model` counts them.
    - `device_memory_gib` has the memory of a case at the default batch size, if more than 8.
    - `large` says why a CPU has too little memory or is too slow for the test of the contract. The model is then tested
      on the meta device, and fully on a GPU.
    - `unequal_work` names cases in which a compiled step does other work than eager's by nature, and why. Other cases
      with unequal work are refused.
    - `detection_rows` says that an eval step returns detections: for each image, rows of x1, y1, x2, y2, score, class.
    - `preload` names attributes that the files' imports don't name, to import once for all cases: `module:attribute`.

    `read_spec` fills `name` and `folder`. `collection` is the name of a model's collection; empty for a folder.
    """

    domain: Domain
    task: Line
    paper: Line
    source: Line  # the library that has the model, or "written here after <paper>"
    requirements: Annotated[
        tuple[Annotated[str, Meta(max_length=200)], ...], Meta(max_length=100)
    ]  # pip requirements beyond torch
    parameters: Annotated[int, Meta(ge=0, le=MOST_PARAMETERS)]
    batch_size: dict[Mode, BatchSize]
    smoke_batch_size: BatchSize
    serving_batch_size: dict[Mode, BatchSize] = {}
    tokens: Tokens | None = None
    limits: tuple[str, ...] = ()
    skips: tuple[SkipRule, ...] = ()
    native_dtype: NativeDtype = NativeDtype.FP32
    gflop_per_step: dict[Mode, Amount] = {}
    device_memory_gib: dict[Mode, Annotated[float, Meta(ge=0, le=2**20)]] = {}
    large: Line | None = None
    syncs: dict[Mode, Line] = {}  # modes whose step must wait for the device or copy to the host, and why
    unchanged_parameters: dict[str, str] = {}  # globs of `network.parameter` that a train step does not change, and why
    tolerances: tuple[ToleranceRule, ...] = ()
    unequal_work: tuple[Rule, ...] = ()  # cases in which a compiled step does other work than eager's, and why
    detection_rows: bool = False
    preload: tuple[Line, ...] = ()
    name: str = ""
    folder: str = ""
    collection: str = ""

    def modes(self) -> tuple[Mode, ...]:
        return tuple(mode for mode in Mode if mode in self.batch_size)


#: Fields that a new folder may omit: `torchzoo check-model --write` determines them.
COMPUTED = ("parameters", "batch_size", "smoke_batch_size")


class SpecError(TorchzooError):
    """A `metadata.yaml` that can't be used; the message is one line and names the file."""


def read_spec(folder: Path) -> ModelSpec:
    """The spec of one model folder.

    Raises:
        SpecError: there is no `metadata.yaml`, it is not YAML, or a field is missing, unknown, of the wrong type or too
            large.
    """
    path = folder / "metadata.yaml"
    try:
        spec = read_yaml(path, ModelSpec)
    except FileError as error:
        computed = any(f"missing required field `{name}`" in str(error) for name in COMPUTED)
        hint = f": `torchzoo check-model {shlex.quote(str(folder))} --write` fills it in" if computed else ""
        raise SpecError(f"{error}{hint}") from error
    spec = msgspec.structs.replace(spec, name=written(folder.name), folder=str(folder), collection="")
    return completed(spec, path)


def completed(spec: ModelSpec, path: Path) -> ModelSpec:
    """`spec` with the rules of the limits that it names, after a check.

    Raises:
        SpecError: there is no such limit, or fields contradict each other; the message begins with `path`.
    """
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
    for rule in spec.tolerances:
        if not (0 <= rule.tolerance < 1 and rule.reason.strip()):
            raise SpecError(f"{path}: an entry of tolerances needs a reason and a tolerance in [0, 1)")
    for versions in [rule.torch for rule in spec.skips if rule.torch is not None]:
        wanted = attempt(lambda: parse_requirement(f"torch{versions}"))  # noqa: B023  called at once
        if isinstance(wanted, Exception) or wanted.name != "torch" or not wanted.specifier:
            raise SpecError(
                f"{path}: an entry of skips needs versions of torch such as '>=2.11,<2.16', not {versions!r}"
            )
    generates = any(mode.generates for mode in spec.batch_size)
    if generates != (spec.tokens is not None):
        raise SpecError(
            f"{path}: tokens (prompt and cache) belong to models with a prefill or decode batch, to no others"
        )
    if not set(spec.serving_batch_size) <= {mode for mode in spec.batch_size if mode.generates}:
        raise SpecError(f"{path}: serving_batch_size has a mode that is no prefill or decode, or has no batch_size")
    for mode in (Mode.TRAIN, Mode.EVAL):
        has_reason = any(rule.holds_for_all(mode) for rule in spec.skips)
        if mode not in spec.batch_size and not has_reason:
            raise SpecError(f"{path}: batch_size has no '{mode}', and no entry of skips says why")
