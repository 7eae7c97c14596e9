"""Studies: userbenchmarks that answer a published one. Their documents show the published figures beside ours.

The folder of a study has `published.yaml` (`torchzoo.report.beside.Published`), and these functions:
- `plan(choice)`: what to run, as any userbenchmark has it;
- `rows(run)`: the measured figures, each with the name of its table and its own in `published.yaml`;
- `report(run)`: the rest of the document's body.
With `SEVERAL_MACHINES = True` the last two take a run of each machine: `rows(*runs)`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import read_report_data
from torchzoo.analysis.reproduce import of_run, shell_line
from torchzoo.case import EAGER, Case, CompileScope, Mode
from torchzoo.files import FileError, read_yaml
from torchzoo.provenance import DifferenceKind, machine_differences, machine_kind, machine_names
from torchzoo.record import EAGER_VARIANT, Measured, Skipped
from torchzoo.report import beside, markdown
from torchzoo.report.beside import Published, Reason, Row
from torchzoo.report.remarks import not_measured_line
from torchzoo.run.batches import default_file, read_tuned
from torchzoo.run.plan import Plan, make_plan
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import missing, read_models
from torchzoo.store import Run, StoreError, read_run
from torchzoo.userbenchmark import PUBLISHED, Choice, called, load_module, what_ran
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.folders import CatalogError

REASONS = "reasons.yaml"
SOME_DEVICE = "cuda"  # that a plan is made for where no machine is asked


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """One loaded study."""

    name: str
    doc: str
    published: Published
    several_machines: bool
    plan: Callable[[Choice], RunRequest]
    rows: Callable[..., list[Row]]
    report: Callable[..., list[str]]


def load(name: str) -> Study:
    """Import one study and read its published figures.

    Raises:
        CatalogError: there is none of that name, its code fails, or `published.yaml` can't be read.
    """
    folder, module = load_module(name, ("plan", "rows", "report"), studies=True)
    try:
        published = read_yaml(folder / PUBLISHED, Published)
    except FileError as error:
        raise CatalogError(f"can't read {error}") from error
    return Study(
        name=name,
        doc=module.__doc__ or "",
        published=published,
        several_machines=bool(getattr(module, "SEVERAL_MACHINES", False)),
        plan=partial(called, f"the plan of {folder}", module.plan, RunRequest),
        rows=partial(called, f"the rows of {folder}", module.rows, list),
        report=partial(called, f"the report of {folder}", module.report, list),
    )


# --- runs ---


def read_runs(study: Study, paths: Sequence[Path]) -> tuple[Run, ...]:
    """The kept runs. Those of one machine and its software are joined: where several have a case, the last one counts.

    Raises:
        StoreError: a run can't be read or has no records; there are several machines and the study is about one; or
            runs of one machine have unlike software, so that they would count as two.
    """
    alike: dict[object, list[Path]] = {}
    for path in dict.fromkeys(paths):
        kind = machine_kind(read_run(path).manifest.environment) if study.several_machines else None
        alike.setdefault(kind, []).append(path)
    runs = tuple(joined(some) for some in alike.values())
    for one, other in combinations(runs, 2):
        unlike = machine_differences(one.manifest, other.manifest)
        if all(difference.kind is not DifferenceKind.HARDWARE for difference in unlike):
            facts = "; ".join(f"{fact.name} is {fact.base} and {fact.candidate}" for fact in unlike)
            raise StoreError(
                f"{one.path} and {other.path} would count as two machines, but have the same hardware and unlike "
                f"software: {facts}. Measure one of them again"
            )
    return runs


def at_home(study: Study, run: Run) -> Run:
    """The run with the model folders of the study's plan in place of those that are gone, as after it was moved."""
    there = [one for one in run.manifest.models_dirs if Path(one).is_dir()]
    if len(there) == len(run.manifest.models_dirs):
        return run
    own = study.plan(Choice(folder=run.path.resolve())).models_dirs
    manifest = msgspec.structs.replace(run.manifest, models_dirs=tuple(dict.fromkeys((*own, *there))))
    return msgspec.structs.replace(run, manifest=manifest)


def joined(paths: Sequence[Path]) -> Run:
    """Runs of like machines as one run. The first one's manifest stands for all, with the cases of all.

    Raises:
        StoreError: as `read_report_data`.
    """
    data = read_report_data(paths)
    cases: dict[Case, None] = {}
    domains = {}
    for run in data.runs:
        cases.update(dict.fromkeys(run.manifest.cases))
        domains.update(run.manifest.domains)
    manifest = msgspec.structs.replace(data.manifest, cases=tuple(cases), domains=domains)
    parts = data.runs if len(data.runs) > 1 else ()
    return Run(path=data.runs[0].path, manifest=manifest, records=data.records, joined=parts)


def read_reasons(paths: Iterable[Path]) -> list[Reason]:
    """The reasons that measurements found, kept beside the runs that they are about.

    Raises:
        StoreError: a file of them can't be read, or a reason has no evidence.
    """
    found: list[Reason] = []
    for file in (path / REASONS for path in paths):
        if not file.exists():
            continue
        try:
            found += read_yaml(file, list[Reason])
        except FileError as error:
            raise StoreError(f"can't read {error}") from error
    for reason in found:
        if not reason.evidence.strip():
            raise StoreError(f"{REASONS}: the reason of '{reason.figure}' has no evidence: say what was measured")
    return found


# --- the plan ---


def planned(request: RunRequest) -> Plan:
    """The cases of a request as far as they are known without asking a machine."""
    catalog = find_models(map(Path, request.models_dirs))
    models = read_models(catalog, catalog.select(request.patterns, request.suites))
    axes = msgspec.structs.replace(request.axes, devices=request.axes.devices or (SOME_DEVICE,))
    return make_plan(models, axes, missing(models, axes.backends))


def own_cases(study: Study) -> tuple[Case, ...]:
    """The cases of the study's own plan, those that can't run, too."""
    with tempfile.TemporaryDirectory() as scratch:
        return tuple(one.case for one in planned(study.plan(Choice(folder=Path(scratch)))))


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

    models, ways = {case.model for case in own}, {case.way_label() for case in own}
    keep_if(lambda case: case.model in models, lambda case: case.model, "models")
    keep_if(lambda case: case.way_label() in ways, Case.first_repeat, "cases at other precisions")
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


def kinds(study: Study, own: Sequence[Case], runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs by what cases of one mean must share: the precision and the like, the batch of a model, the device.

    All precisions of the study's plan are one kind, for the study keeps them apart itself. Nearly always there is one
    kind, without a name.
    """
    ways = {case.way_label() for case in own}
    cases = [case for run in runs for case in run.manifest.cases]
    batches: dict[Case, set[int | None]] = {}
    for case in cases:
        batches.setdefault(msgspec.structs.replace(case.first_repeat(), batch_size=None), set()).add(case.batch_size)
    has_batches = any(len(some) > 1 for some in batches.values())
    has_devices = not study.several_machines and len({case.device for case in cases}) > 1

    def kind(case: Case) -> str:
        parts = [] if case.way_label() in ways else [case.way_label() or "default precision"]
        parts += [f"batch {case.batch_size}"] if has_batches else []
        return ", ".join([*parts, case.device] if has_devices else parts)

    names = dict.fromkeys(map(kind, cases))
    if len(names) < 2:
        return {"": list(runs)}
    return {
        name: [_of_cases(run, (case for case in run.manifest.cases if kind(case) == name)) for run in runs]
        for name in names
    }


def _eagers(case: Case) -> Case:
    return msgspec.structs.replace(case, backend=EAGER, compile_scope=CompileScope.NETWORK)


def _of_eager(run: Run) -> tuple[Run, set[Case]]:
    """The run as one of eager, and the cases of which it has eager's half beside a backend.

    Where eager was measured alone, too, that counts. Where nothing was measured, the reason is kept.
    """
    if all(case.backend == EAGER for case in run.manifest.cases):
        return run, set()
    found = {record.case: record for record in run.records if record.case.backend == EAGER}
    halves: set[Case] = set()
    for record in run.records:
        case, outcome = _eagers(record.case), record.outcome
        if isinstance(outcome, Measured) and (case not in found or isinstance(found[case].outcome, Skipped)):
            found[case] = msgspec.structs.replace(record, case=case, outcome=_eagers_half(outcome))
            halves.add(case.first_repeat())
        elif not isinstance(outcome, Measured) and case not in found:
            why = f"with the backend {record.case.backend}, {not_measured_line(outcome)}"
            found[case] = msgspec.structs.replace(record, case=case, outcome=Skipped(reason=why))
    manifest = msgspec.structs.replace(run.manifest, cases=tuple(dict.fromkeys(map(_eagers, run.manifest.cases))))
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


# --- the document ---


def document(study: Study, runs: Sequence[Run], reasons: Sequence[Reason] = ()) -> str:
    """The whole document: the question, both figures side by side, the details, what differs, how to do it again.

    Raises:
        BesideError, CatalogError: the study's data or its code do not fit together.
    """
    title, _, question = study.doc.strip().partition("\n")
    lines = [f"# {markdown.escape(study.name)}: {title}", "", question.strip(), ""]
    own = own_cases(study)
    found = [beside_the_plan(own, run) for run in runs]
    runs = [run for run, _ in found]
    machines = _machines(study, runs)
    for name, (run, about) in zip(machines, found, strict=True):
        ran = what_ran(run, f"study {study.name}")
        lines += [f"**{name}**: {ran}" if name else ran, "", *about]
    by_kind = kinds(study, own, runs)
    if len(by_kind) > 1:
        lines += [f"The run has cases of several kinds, and no mean mixes them: {'; '.join(by_kind)}.", ""]
    rows = [row for name, some in by_kind.items() for row in _named(study.published, study.rows(*some), name)]
    lines += ["## Published and measured", "", *beside.source_lines(study.published), "", READING, ""]
    lines += [*beside.tables(study.published, rows, reasons)]
    for name, some in by_kind.items():
        lines += [*([f"**{markdown.escape(name)}**", ""] if name else []), *map(str, study.report(*some)), ""]
    of_parts = [[part.manifest for part in run.parts] for run in runs]
    hardware = _of_each([markdown.machines(manifests) for manifests in of_parts])
    versions = _of_each([markdown.software(*manifests) for manifests in of_parts])
    lines += ["## What differs", "", *beside.differences(study.published, hardware, versions), ""]
    lines += ["## Do it again", "", *markdown.code_block(_commands(study, runs)), "", "## Measured on", ""]
    for name, manifests in zip(machines, of_parts, strict=True):
        lines += [*([f"**{name}**", ""] if name else []), *markdown.provenance(*manifests), ""]
    return "\n".join(lines)


def _named(published: Published, rows: Sequence[Row], kind: str) -> list[Row]:
    """The rows with the kind of their cases in their names, beside the same published figures."""
    if not kind:
        return list(rows)
    return [
        msgspec.structs.replace(
            row,
            figure=f"{row.figure}, {kind}",
            beside=row.beside or (row.figure if row.figure in published.tables[row.table].figures else ""),
        )
        for row in rows
    ]


READING = """An interval [low, high] holds at 95% unless it says otherwise. That of a mean is Student's t over what is
averaged: models, or the steps of one model. A difference has a reason only where a measurement found one."""


def _machines(study: Study, runs: Sequence[Run]) -> list[str]:
    """`Machine 1, NVIDIA H200` for each run of a study of several machines; empty names in another one."""
    if not study.several_machines:
        return [""] * len(runs)
    names = enumerate(machine_names(runs), start=1)
    return [f"Machine {number}, {markdown.escape(name)}" for number, name in names]


def _of_each(texts: Sequence[str]) -> str:
    """What is the same for all runs once; else by machine."""
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"machine {number}: {one}" for number, one in enumerate(texts, start=1))


def _commands(study: Study, runs: Sequence[Run]) -> list[str]:
    """The commands that made these very runs, and the one that makes the document of them."""
    names = machine_names(runs) if len(runs) > 1 else [""]
    made = [
        of_run(part.manifest) + (f"  # on {name}" if name else "")
        for name, run in zip(names, runs, strict=True)
        for part in run.parts
    ]
    kept = shell_line(
        ["torchzoo", "study", study.name, "--from", *(str(part.path) for run in runs for part in run.parts)]
    )
    return [*dict.fromkeys(made), f"{kept}  # only this document, from the kept records"]
