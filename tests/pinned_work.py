"""The work of each model's step, pinned: its operations and the bytes it moves, in `pinned_work.csv`.

    python tests/pinned_work.py resnet18 'hf_*'        # or `all`

counts the steps of these models again and writes their lines. The file is committed, so that a figure changes by a
decision that is seen in the commit, and not by accident.

A step is the first one of a new model. At the smoke batch size it is taken on the CPU (a model that is too large for
that: on the meta device) inside the contract's test. At the default batch size it is counted on the meta device, where
tensors have shapes and no values. Questions that a step asks of its data are answered there where that can be checked
(`torchzoo/measure/without_data.py`). Where a step can't be counted, its line has no figures, and says why.
"""

from __future__ import annotations

import contextlib
import csv
import enum
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from counting import count_fully, count_step_of, matrix_products_in_bf16
from torchzoo.case import Mode
from torchzoo.errors import one_line
from torchzoo.measure.without_data import true_answers
from torchzoo.record import Flops
from torchzoo.zoo.catalog import NEEDS_DATA, Catalog, find_models, load_model_class
from torchzoo.zoo.requirements import is_installed
from torchzoo.zoo.spec import ModelSpec

COMMITTED = Path(__file__).with_name("pinned_work.csv")
HEADINGS = ("model", "mode", "batch", "batch_size", "flops", "bytes", "note")

#: How far a figure may be from the pinned one where it depends on values: there the last digit of a product decides how
#: many boxes are kept, for example, and processors differ in that digit.
TOLERANCE_WITH_VALUES = 0.1
DEPENDS_ON_VALUES = "depends on values"

#: The same where a library keeps what a first step made, as DINOv3's places of patches. Which step of the process is
#: the first one differs between the test and the command.
TOLERANCE_WITH_A_CACHE = 1e-4
FILLS_A_CACHE = "the first step fills a cache of the library"

TOLERANCES = {DEPENDS_ON_VALUES: TOLERANCE_WITH_VALUES, FILLS_A_CACHE: TOLERANCE_WITH_A_CACHE}


class Batch(enum.StrEnum):
    SMOKE = "smoke"
    DEFAULT = "default"

    def size(self, spec: ModelSpec, mode: Mode) -> int:
        return spec.smoke_batch_size if self is Batch.SMOKE else spec.batch_size[mode]


@dataclass(frozen=True, order=True)
class Step:
    model: str
    mode: Mode
    batch: Batch


@dataclass(frozen=True, kw_only=True)
class Work:
    """What is pinned of a step. `flops` and `bytes` are None where they can't be counted; the note says why."""

    batch_size: int
    flops: int | None = None
    bytes: int | None = None
    note: str = ""


Table = Mapping[Step, Work]


def steps_of(spec: ModelSpec) -> list[Step]:
    """What is pinned of a model."""
    return [Step(spec.name, mode, batch) for mode in spec.modes() for batch in Batch]


def differences(spec: ModelSpec, batch: Batch, found: Mapping[Mode, Flops], table: Table) -> list[str]:
    """What is not as pinned, one line for each step and figure; how to accept it is in the last line.

    Args:
        found: the work of the steps that could be counted.
        table: steps that it does not have are not compared.
    """
    lines = []
    for mode in spec.modes():
        pinned = table.get(Step(spec.name, mode, batch))
        if pinned is None:
            continue
        work = found.get(mode)
        now = {
            "batch size": batch.size(spec, mode),
            "FLOPs": None if work is None else work.total,
            "bytes": None if work is None else work.bytes_moved,
        }
        before = {"batch size": pinned.batch_size, "FLOPs": pinned.flops, "bytes": pinned.bytes}
        tolerance = TOLERANCES.get(pinned.note, 0.0)
        lines += [
            f"{spec.name} {mode} at its {batch} batch: {what} {_change(before[what], now[what])}"
            for what in before
            if not _same(before[what], now[what], tolerance if what != "batch size" else 0.0)
        ]
    if lines:
        lines.append(f"to accept it, run `python tests/{Path(__file__).name} {spec.name}` and commit {COMMITTED.name}")
    return lines


def _same(before: int | None, now: int | None, tolerance: float) -> bool:
    if before is None or now is None:
        return before is now
    return abs(now - before) <= tolerance * before


def _change(before: int | None, now: int | None) -> str:
    """`1,000 -> 1,100 (+10%)`."""
    share = f" ({now / before - 1:+.2%})" if before and now is not None else ""
    return f"{_figure(before)} -> {_figure(now)}{share}"


def _figure(value: int | None) -> str:
    return "not counted" if value is None else f"{value:,}"


# --- counting ---


def count_model(spec: ModelSpec) -> dict[Step, Work]:
    """The lines of one model."""
    found = {}
    fills_a_cache = _fills_a_cache(spec)
    for mode in spec.modes():
        at_smoke = _smoke_work(spec, mode)
        at_default, why_not = _default_work(spec, mode, None if at_smoke is None else at_smoke.total)
        note = "" if at_smoke is not None else why_not or spec.syncs[mode]
        if at_default is None and at_smoke is not None and _differs(at_smoke, _smoke_work(spec, mode, seed=1)):
            note = DEPENDS_ON_VALUES
        elif fills_a_cache and at_smoke is not None:
            note = FILLS_A_CACHE
        found[Step(spec.name, mode, Batch.SMOKE)] = _work(Batch.SMOKE.size(spec, mode), at_smoke, note)
        found[Step(spec.name, mode, Batch.DEFAULT)] = _work(Batch.DEFAULT.size(spec, mode), at_default, why_not)
    return found


def _smoke_work(spec: ModelSpec, mode: Mode, *, seed: int = 0) -> Flops | None:
    """As the contract's test steps; None where it does not."""
    device = "meta" if spec.large else "cpu"
    with matrix_products_in_bf16():
        model = load_model_class(spec)(mode, device, spec.smoke_batch_size, seed=seed)
        try:
            with true_answers(spec, mode) if spec.large else contextlib.nullcontext():
                return count_fully(model)
        except NEEDS_DATA:
            if spec.large and mode in spec.syncs:
                return None
            raise


def _fills_a_cache(spec: ModelSpec) -> bool:
    """Whether the first step of a process has other work than the next one, of a model that is made anew."""
    first, second = (_smoke_work(spec, spec.modes()[0]) for _ in range(2))
    return first is not None and not spec.large and _differs(first, second)


def _default_work(spec: ModelSpec, mode: Mode, smoke_flops: int | None) -> tuple[Flops | None, str]:
    """The work, or why it can't be counted."""
    try:
        with matrix_products_in_bf16(), true_answers(spec, mode, smoke_flops):
            return count_step_of(spec)(load_model_class(spec)(mode, "meta", spec.batch_size[mode])), ""
    except NEEDS_DATA as error:
        return None, spec.syncs.get(mode) or f"not on the meta device: {one_line(error)}"


def _differs(work: Flops, other: Flops | None) -> bool:
    assert other is not None
    return (work.total, work.bytes_moved) != (other.total, other.bytes_moved)


def _work(batch_size: int, counted: Flops | None, note: str) -> Work:
    if counted is None:
        return Work(batch_size=batch_size, note=note)
    return Work(batch_size=batch_size, flops=counted.total, bytes=counted.bytes_moved, note=note)


# --- the file ---


def read(path: Path = COMMITTED) -> dict[Step, Work]:
    """The table, empty if there is no file."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {
            Step(row["model"], Mode(row["mode"]), Batch(row["batch"])): Work(
                batch_size=int(row["batch_size"]),
                flops=int(row["flops"]) if row["flops"] else None,
                bytes=int(row["bytes"]) if row["bytes"] else None,
                note=row["note"],
            )
            for row in csv.DictReader(file)
        }


def write(table: Table, path: Path = COMMITTED) -> None:
    """One line for each step, sorted."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(HEADINGS)
        for step, work in sorted(table.items(), key=lambda item: item[0]):
            writer.writerow(
                [step.model, step.mode, step.batch, work.batch_size, _cell(work.flops), _cell(work.bytes), work.note]
            )


def _cell(value: int | None) -> str:
    return "" if value is None else str(value)


def main(patterns: Iterable[str], catalog: Catalog, path: Path = COMMITTED) -> None:
    """Count the models that the patterns name. The table is written after each; it forgets models that are gone."""
    for name in catalog.select(list(patterns), []):
        spec = catalog.spec(name)
        missing = [requirement for requirement in spec.requirements if not is_installed(requirement)]
        if missing:
            print(f"{name}: left as it is, since {', '.join(missing)} is not installed")
            continue
        before = read(path)
        counted = count_model(spec)
        for step, work in counted.items():
            old = before.get(step)
            if old is None or work != old:
                flops, moved = (_change(getattr(old, what, None), getattr(work, what)) for what in ("flops", "bytes"))
                print(f"{step.model} {step.mode} at its {step.batch} batch: FLOPs {flops}, bytes {moved} {work.note}")
        kept = {step: work for step, work in before.items() if step.model in catalog.names and step.model != name}
        write(kept | counted, path)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: python {sys.argv[0]} MODEL... (names, globs, or all)")
    main(sys.argv[1:], find_models())
