"""Collections: many models of one library, made by one factory, such as `timm:resnet50`.

A collection is a folder with three files:

- `metadata.yaml` has the fields that its models share, and the differences of some models.
- `models.csv` has a line for each model: name, parameters, batches. `benchmarks/collection_table.py` writes it.
- `__init__.py` has the factory, `model_class(name)`.

So a plan needs no import of a library.
"""

from __future__ import annotations

import csv
import fnmatch
import io
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from torchzoo.case import Domain, Mode, NativeDtype
from torchzoo.errors import attempt, one_line
from torchzoo.files import FileError, read_file, read_yaml
from torchzoo.zoo.folders import find_folders
from torchzoo.zoo.rules import Line, SkipRule, ToleranceRule
from torchzoo.zoo.spec import MOST_PARAMETERS, BatchSize, ModelSpec, SpecError, Tokens, completed

_Key = TypeVar("_Key")

#: The most bytes of a table that are read: some hundred for each model.
MOST_BYTES = 4 * 2**20

#: Models are `large` if a training step takes more host memory than this: weights, gradients, Adam's two moments
#: and activations at the smoke batch size.
LARGE_BYTES = 3 * 2**30

#: Device memory up to this need not be declared: every case is assumed to need it.
USUAL_GIB = 8.0

Gib = Annotated[float, Meta(ge=0, le=2**20)]

#: The reason why a parameter that the table lists as unused is not trained.
UNUSED = "the class has it, but the loss of this step does not depend on it"


class VariantRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The differences of models whose name matches one of `names` (globs). Tuples and dictionaries are added."""

    names: tuple[str, ...]
    paper: Line | None = None
    limits: tuple[str, ...] = ()
    skips: tuple[SkipRule, ...] = ()
    syncs: dict[Mode, Line] = {}
    unchanged_parameters: dict[str, str] = {}
    tolerances: tuple[ToleranceRule, ...] = ()

    def is_about(self, member: str) -> bool:
        """Whether a glob matches the name."""
        return any(fnmatch.fnmatchcase(member, glob) for glob in self.names)


class Shared(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A collection's `metadata.yaml`. The fields have the meaning of those of `ModelSpec`.

    In `preload`, `{class}` stands for the part of a model's name before its first colon. `waits` is the reason why the
    steps wait that the table marks as waiting for the device.
    """

    domain: Domain
    task: Line
    paper: Line
    source: Line
    requirements: tuple[Line, ...]
    batch_size: dict[Mode, BatchSize]
    smoke_batch_size: BatchSize
    native_dtype: NativeDtype = NativeDtype.FP32
    limits: tuple[str, ...] = ()
    skips: tuple[SkipRule, ...] = ()
    preload: tuple[Line, ...] = ()
    waits: Line = "its library reads values of tensors on the host"
    differences: tuple[VariantRule, ...] = ()


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line of `models.csv`. Empty cells are ignored, and so are other columns, which are for people.

    A mode has the batch of its column, else the collection's. `no_train` and `no_eval` say why a model has no such
    step. `train_gib` and so on are the device memory of a case at this batch. `unused` has globs, between spaces, of
    parameters that the loss does not depend on; `waits` has the modes whose step waits for the device.
    """

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    parameters: Annotated[int, Meta(ge=0, le=MOST_PARAMETERS)]
    domain: Domain | None = None
    task: Line | None = None
    train: BatchSize | None = None
    eval: BatchSize | None = None
    prefill: BatchSize | None = None
    decode: BatchSize | None = None
    prompt: int | None = None
    cache: int | None = None
    no_train: Line = ""
    no_eval: Line = ""
    train_gib: Gib = 0.0
    eval_gib: Gib = 0.0
    prefill_gib: Gib = 0.0
    decode_gib: Gib = 0.0
    unused: str = ""
    waits: str = ""

    def batch_size(self, shared: dict[Mode, BatchSize]) -> dict[Mode, BatchSize]:
        """The batch of each mode that the model has."""
        batches = {mode: getattr(self, mode.value) or shared.get(mode) for mode in Mode}
        return {mode: batch for mode, batch in batches.items() if batch and mode not in self.without}

    @property
    def without(self) -> dict[Mode, str]:
        """The reasons why the model has no train or eval step."""
        reasons = {Mode.TRAIN: self.no_train, Mode.EVAL: self.no_eval}
        return {mode: reason for mode, reason in reasons.items() if reason}

    def modes_that_wait(self) -> list[Mode]:
        """The modes whose step waits for the device."""
        return [mode for mode in Mode if mode.value in self.waits.split()]

    def host_bytes(self, train_batch: int, smoke_batch: int) -> float:
        """The host memory of a training step at the smoke batch size, from the device memory at the default one."""
        fixed = 16.0 * self.parameters
        activations = max(0.0, self.train_gib * 2**30 - fixed)
        return fixed + activations * smoke_batch / train_batch


class Collection:
    """A collection's folder. Its files are read on first use.

    Properties and methods raise `SpecError` if a file can't be used; the message is one line and names the file.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder

    @property
    def members(self) -> list[str]:
        """The names of the models without the collection's, in the order of the table."""
        return list(self._rows)

    @property
    def names(self) -> list[str]:
        """The full names of the models: `timm:resnet18`, ..."""
        return [f"{self.name}:{member}" for member in self._rows]

    def __contains__(self, member: object) -> bool:
        return member in self._rows

    def spec(self, member: str) -> ModelSpec:
        """The spec of a model. Raises `KeyError` if there is no model of that name."""
        row, shared = self._rows[member], self._shared
        batches = row.batch_size(shared.batch_size)
        differences = [one for one in shared.differences if one.is_about(member)]
        unused = {f"network.{glob}": UNUSED for glob in row.unused.split()}
        gib = {mode: getattr(row, f"{mode}_gib") for mode in batches}
        host_bytes = row.host_bytes(batches.get(Mode.TRAIN, 1), shared.smoke_batch_size)
        spec = ModelSpec(
            name=f"{self.name}:{member}",
            folder=str(self.folder),
            collection=self.name,
            domain=row.domain or shared.domain,
            task=row.task or shared.task,
            paper=next((one.paper for one in differences if one.paper), shared.paper),
            source=shared.source,
            requirements=shared.requirements,
            parameters=row.parameters,
            batch_size=batches,
            smoke_batch_size=shared.smoke_batch_size,
            tokens=Tokens(prompt=row.prompt, cache=row.cache) if row.prompt and row.cache else None,
            native_dtype=shared.native_dtype,
            device_memory_gib={mode: need for mode, need in gib.items() if need > USUAL_GIB},
            large=f"a training step takes {host_bytes / 1e9:.0f} GB of host memory"
            if host_bytes > LARGE_BYTES
            else None,
            limits=(*shared.limits, *(limit for one in differences for limit in one.limits)),
            skips=(
                *(SkipRule(mode=mode, reason=reason) for mode, reason in row.without.items()),
                *shared.skips,
                *(skip for one in differences for skip in one.skips),
            ),
            syncs=merged(dict.fromkeys(row.modes_that_wait(), shared.waits), *(one.syncs for one in differences)),
            unchanged_parameters=merged(unused, *(one.unchanged_parameters for one in differences)),
            tolerances=tuple(rule for one in differences for rule in one.tolerances),
            preload=tuple(one.replace("{class}", member.partition(":")[0]) for one in shared.preload),
        )
        return completed(spec, self._table)

    @property
    def _table(self) -> Path:
        return self.folder / "models.csv"

    @cached_property
    def _shared(self) -> Shared:
        try:
            return read_yaml(self.folder / "metadata.yaml", Shared)
        except FileError as error:
            raise SpecError(str(error)) from error

    @cached_property
    def _rows(self) -> dict[str, ModelRow]:
        try:
            text = read_file(self._table, MOST_BYTES).decode(errors="backslashreplace")
        except FileError as error:
            raise SpecError(str(error)) from error
        rows: dict[str, ModelRow] = {}
        reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        lines = attempt(lambda: list(reader))
        if isinstance(lines, Exception):
            raise SpecError(f"{self._table}: line {reader.line_num}: {one_line(lines)}") from lines
        for number, cells in enumerate(lines, 2):
            row = self._row(number, cells)
            if row.name in rows:
                raise SpecError(f"{self._table}: line {number}: a second model of the name '{row.name}'")
            rows[row.name] = row
        return rows

    def _row(self, number: int, cells: dict[str, Any]) -> ModelRow:
        given = {name: cell for name, cell in cells.items() if isinstance(name, str) and cell}
        row = attempt(lambda: msgspec.convert(given, ModelRow, strict=False))
        if isinstance(row, Exception):
            raise SpecError(f"{self._table}: line {number}: {one_line(row)}") from row
        return row


def merged(*parts: dict[_Key, str]) -> dict[_Key, str]:
    """Merge dictionaries. Of equal keys, the last counts."""
    return {key: text for part in parts for key, text in part.items()}


def find_collections() -> dict[str, Collection]:
    """Collections by name: torchzoo's own, and those under `TORCHZOO_COLLECTIONS_PATH`.

    Raises:
        CatalogError: a folder that the variable names does not exist.
    """
    folders = find_folders("collections", "TORCHZOO_COLLECTIONS_PATH", ())
    return {name: Collection(name, folder) for name, folder in folders.items()}
