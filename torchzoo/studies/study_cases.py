"""The cases of a study's run beside those of its plan: what is left out of its figures, and what no mean may mix."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from torchzoo.case import EAGER, Case, Mode
from torchzoo.record import EAGER_VARIANT, Measured, Skipped
from torchzoo.report.remarks import not_measured_line
from torchzoo.run.batches import default_file, read_tuned
from torchzoo.store import Run


def beside_the_plan(own: Sequence[Case], run: Run) -> tuple[Run, list[str]]:
    """The run without cases that would be mixed with those of the study's plan, and paragraphs on what it lacks or has.

    Left out are models that the plan does not have; precisions (and the like) that it does not have; and a case at
    another batch, where the plan's own ran. If nothing would be left, it is a trial, and they stay. Evaluation may have
    the batch that was tuned for some device.
    """
    asked = {_identity(case): case.batch_size for case in own}
    halves: set[Case] = set()
    if {case.backend for case in own} == {EAGER}:
        run, halves = _of_eager(run)
    tuned = {(name, one.batch_size) for models in read_tuned(default_file()).values() for name, one in models.items()}
    lines: list[str] = []

    def distance(case: Case) -> int:
        """0 or 1: the plan's batch, or the one tuned for a device; 2: the plan does not have the case."""
        if _identity(case) not in asked:
            return 2
        if case.batch_size == asked[_identity(case)]:
            return 0
        return 1 if case.mode is Mode.EVAL and (case.model, case.batch_size) in tuned else 2

    def keep_if(keeps: Callable[[Case], bool], name: Callable[[Case], object], what: str) -> None:
        nonlocal run
        kept = tuple(case for case in run.manifest.cases if keeps(case))
        out = {name(case) for case in run.manifest.cases if not keeps(case)}
        if kept and out:
            lines.extend([f"The run has {len(out)} more {what}, which are left out here.", ""])
            run = _of_cases(run, kept)

    models, ways = {case.model for case in own}, {" ".join(case.variations()) for case in own}
    keep_if(lambda case: case.model in models, lambda case: case.model, "models")
    keep_if(lambda case: " ".join(case.variations()) in ways, Case.first_repeat, "cases at other precisions")
    nearest: dict[tuple[str, ...], int] = {}
    for case in run.manifest.cases:
        nearest[_identity(case)] = min(distance(case), nearest.get(_identity(case), 2))
    keep_if(lambda case: distance(case) == nearest[_identity(case)], Case.first_repeat, "cases at other batches")
    ran = {record.case.first_repeat() for record in run.records}
    if count := len(halves & ran):
        lines += [f"Eager of {count} of these cases was measured beside a backend, in turns in one process.", ""]
    of_plan = {case for case in ran if distance(case) < 2}
    if len(of_plan) < len(asked) or of_plan != ran:
        lines += [
            f"**This is a part of the study, or a trial: {len(of_plan)} of the plan's {len(asked)} cases are in the "
            f"run, and {len(ran - of_plan)} cases that the plan does not have (other models, batches, precisions or "
            "backends).**",
            "",
        ]
    return run, lines


def _of_cases(run: Run, cases: Iterable[Case]) -> Run:
    """The run as if it had only these cases."""
    kept = dict.fromkeys(cases)
    manifest = msgspec.structs.replace(run.manifest, cases=tuple(kept))
    records = tuple(record for record in run.records if record.case in kept)
    return msgspec.structs.replace(run, manifest=manifest, records=records)


def kinds(own: Sequence[Case], runs: Sequence[Run], *, several_machines: bool) -> dict[str, list[Run]]:
    """The runs by what cases of one mean must share: the precision and the like, the batch of a model, the device.

    All precisions of the study's plan are one kind, for the study keeps them apart itself. Nearly always there is one
    kind, without a name.
    """
    ways = {" ".join(case.variations()) for case in own}
    cases = [case for run in runs for case in run.manifest.cases]
    batches: dict[Case, set[int | None]] = {}
    for case in cases:
        batches.setdefault(msgspec.structs.replace(case.first_repeat(), batch_size=None), set()).add(case.batch_size)
    has_batches = any(len(some) > 1 for some in batches.values())
    has_devices = not several_machines and len({case.device for case in cases}) > 1

    def kind(case: Case) -> str:
        parts = [] if " ".join(case.variations()) in ways else [" ".join(case.variations()) or "default precision"]
        parts += [f"batch {case.batch_size}"] if has_batches else []
        return ", ".join([*parts, case.device] if has_devices else parts)

    names = dict.fromkeys(map(kind, cases))
    if len(names) < 2:
        return {"": list(runs)}
    return {
        name: [_of_cases(run, (case for case in run.manifest.cases if kind(case) == name)) for run in runs]
        for name in names
    }


def _of_eager(run: Run) -> tuple[Run, set[Case]]:
    """The run as one of eager, and the cases of which it has eager's half beside a backend.

    Where eager was measured alone, too, that counts. Where nothing was measured, the reason is kept.
    """
    if all(case.backend == EAGER for case in run.manifest.cases):
        return run, set()
    found = {record.case: record for record in run.records if record.case.backend == EAGER}
    halves: set[Case] = set()
    for record in run.records:
        case, outcome = record.case.in_eager(), record.outcome
        if isinstance(outcome, Measured) and (case not in found or isinstance(found[case].outcome, Skipped)):
            found[case] = msgspec.structs.replace(record, case=case, outcome=_eagers_half(outcome))
            halves.add(case.first_repeat())
        elif not isinstance(outcome, Measured) and case not in found:
            why = f"with the backend {record.case.backend}, {not_measured_line(outcome)}"
            found[case] = msgspec.structs.replace(record, case=case, outcome=Skipped(reason=why))
    manifest = msgspec.structs.replace(
        run.manifest, cases=tuple(dict.fromkeys(case.in_eager() for case in run.manifest.cases))
    )
    return msgspec.structs.replace(run, manifest=manifest, records=tuple(found.values())), halves


def _eagers_half(measured: Measured) -> Measured:
    return msgspec.structs.replace(
        measured,
        blocks=tuple(block for block in measured.blocks if block.variant == EAGER_VARIANT),
        variants={EAGER_VARIANT: measured.variants[EAGER_VARIANT]},
        check=None,  # of the backend's results
    )


def _identity(case: Case) -> tuple[str, ...]:
    return (case.model, case.mode, case.axes_label())
