"""Studies: userbenchmarks that answer a published one. Their documents show the published figures beside ours.

The folder of a study has `published.yaml` (`torchzoo.report.beside.Published`), and these functions:
- `plan(choice)`: what to run, as any userbenchmark has it;
- `rows(run)`: the measured figures, each with the name of its table and its own in `published.yaml`;
- `report(run)`: the rest of the document's body.
With `SEVERAL_MACHINES = True` the last two take a run of each machine: `rows(*runs)`.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import read_report_data
from torchzoo.case import EAGER, Case, CompileScope, Mode
from torchzoo.errors import UsageError
from torchzoo.files import FileError, read_yaml
from torchzoo.provenance import machine_kind
from torchzoo.record import EAGER_VARIANT, Measured
from torchzoo.report import beside, markdown
from torchzoo.report.beside import Published, Reason, Row
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
        StoreError: a run can't be read or has no records, or there are several machines and the study is about one.
    """
    alike: dict[object, list[Path]] = {}
    for path in dict.fromkeys(paths):
        kind = machine_kind(read_run(path).manifest.environment) if study.several_machines else None
        alike.setdefault(kind, []).append(path)
    return tuple(joined(some) for some in alike.values())


def joined(paths: Sequence[Path]) -> Run:
    """Runs of one machine as one run. The first one's manifest stands for all, with the cases of all.

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
    return Run(path=data.runs[0].path, manifest=manifest, records=data.records)


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


def part_of(request: RunRequest, number: int, count: int) -> RunRequest:
    """Every `count`th of the request's models, from the one of that number on (counted from 1).

    Raises:
        UsageError: there are fewer models than parts.
    """
    catalog = find_models(map(Path, request.models_dirs))
    names = catalog.select(request.patterns, request.suites)
    if len(names) < count:
        raise UsageError(f"--part {number}/{count}: the plan has only {len(names)} models")
    return msgspec.structs.replace(request, patterns=tuple(names[number - 1 :: count]), suites=())


def planned(request: RunRequest) -> Plan:
    """The cases of a request as far as they are known without asking a machine."""
    catalog = find_models(map(Path, request.models_dirs))
    models = read_models(catalog, catalog.select(request.patterns, request.suites))
    axes = msgspec.structs.replace(request.axes, devices=request.axes.devices or (SOME_DEVICE,))
    return make_plan(models, axes, missing(models, axes.backends))


def beside_the_plan(study: Study, run: Run) -> tuple[Run, list[str]]:
    """The run without models that the plan does not have, and a paragraph on what else it lacks or has.

    If all of its models are others, it is a trial, and they stay. Evaluation may have the batch that was tuned for some
    device.
    """
    with tempfile.TemporaryDirectory() as scratch:
        plan = planned(study.plan(Choice(folder=Path(scratch))))
    asked = {_identity(one.case): one.case.batch_size for one in plan}
    halves: set[Case] = set()
    if {one.case.backend for one in plan} == {EAGER}:
        run, halves = _of_eager(run)
    tuned = {(name, one.batch_size) for models in read_tuned(default_file()).values() for name, one in models.items()}
    lines = []
    models = {one.case.model for one in plan} & {case.model for case in run.manifest.cases}
    others = {case.model for case in run.manifest.cases} - models
    if models and others:
        lines = [f"The run has {len(others)} more models, which are left out here.", ""]
        cases = tuple(case for case in run.manifest.cases if case.model in models)
        manifest = msgspec.structs.replace(run.manifest, cases=cases)
        records = tuple(record for record in run.records if record.case.model in models)
        run = msgspec.structs.replace(run, manifest=manifest, records=records)
    ran = {case for case in run.manifest.cases if case.repeat == 0}
    if count := len(halves & ran):
        lines += [f"Eager of {count} of these cases was measured beside a backend, in turns in one process.", ""]
    of_plan = {
        case
        for case in ran
        if _identity(case) in asked
        and (
            case.batch_size == asked[_identity(case)]
            or (case.mode is Mode.EVAL and (case.model, case.batch_size) in tuned)
        )
    }
    if len(of_plan) < len(asked) or of_plan != ran:
        lines += [
            f"**This is a part of the study, or a trial: {len(of_plan)} of the plan's {len(asked)} cases are in the "
            f"run, and {len(ran - of_plan)} cases that the plan does not have (other models, batches or backends).**",
            "",
        ]
    return run, lines


def _eagers(case: Case) -> Case:
    return msgspec.structs.replace(case, backend=EAGER, compile_scope=CompileScope.NETWORK)


def _of_eager(run: Run) -> tuple[Run, set[Case]]:
    """The run as one of eager, and the cases of which it has eager's half beside a backend.

    Where eager was measured alone, too, that counts.
    """
    alone = {record.case: record for record in run.records if record.case.backend == EAGER}
    halves = {
        case: msgspec.structs.replace(record, case=case, outcome=_eagers_half(record.outcome))
        for record in run.records
        if (case := _eagers(record.case)) not in alone and isinstance(record.outcome, Measured)
    }
    if not halves:
        return run, set()
    manifest = msgspec.structs.replace(run.manifest, cases=tuple(dict.fromkeys(map(_eagers, run.manifest.cases))))
    records = (*alone.values(), *halves.values())
    return msgspec.structs.replace(run, manifest=manifest, records=records), {*halves}


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
    found = [beside_the_plan(study, run) for run in runs]
    runs = [run for run, _ in found]
    for run, about in found:
        lines += [what_ran(run), "", *about]
    rows = study.rows(*runs)
    lines += ["## Published and measured", "", *beside.source_lines(study.published), "", READING, ""]
    lines += [*beside.tables(study.published, rows, reasons), *map(str, study.report(*runs)), ""]
    machines = "; ".join(dict.fromkeys(markdown.machine(run.manifest) for run in runs))
    versions = "; ".join(dict.fromkeys(markdown.software(run.manifest) for run in runs))
    lines += ["## What differs", "", *beside.differences(study.published, machines, versions), ""]
    lines += ["## Do it again", "", *markdown.code_block(_commands(study, runs)), "", "## Measured on", ""]
    for run in runs:
        lines += [*markdown.provenance(run.manifest), ""]
    return "\n".join(lines)


READING = """An interval [low, high] holds at 95% unless it says otherwise; of a mean it is a bootstrap over models. A
difference has a reason only where a measurement found one."""


def _commands(study: Study, runs: Sequence[Run]) -> list[str]:
    kept = " ".join(shlex.quote(str(run.path)) for run in runs)
    return [
        f"torchzoo study {study.name}",
        f"torchzoo study {study.name} --from {kept}  # only this document, from the kept records",
    ]
