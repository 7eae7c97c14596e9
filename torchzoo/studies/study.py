"""Load and report studies: userbenchmarks whose documents show published figures next to the measured ones.

The folder of a study has `published.yaml` (`torchzoo.report.beside.Published`), and these functions:
- `plan(choice)`: the cases, as in any userbenchmark;
- `rows(run)`: the measured figures, each with the names of its table and figure in `published.yaml`;
- `report(run)`: the rest of the document's body.
- `panels(run)`, optional: the charts of the document's picture (`torchzoo.report.dots`).
With `SEVERAL_MACHINES = True` the last three functions take a run of each machine: `rows(*runs)`. The document of a
study with `SHOWS_TIMES = False`, whose figures do not depend on time, has no section on the conditions of timing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchzoo.analysis.cases import read_report_data
from torchzoo.analysis.command_lines import of_run, shell_line
from torchzoo.case import Case, Mode
from torchzoo.files import FileError, read_yaml
from torchzoo.machine.differences import DifferenceKind, machine_differences, machine_kind, machine_names
from torchzoo.record import Measured
from torchzoo.report import beside, dots, markdown
from torchzoo.report.beside import Published, Reason, Row
from torchzoo.report.document import Block, Code, Document, Heading, Marked, Picture, Text, section
from torchzoo.report.dots import Panel
from torchzoo.run.batches import default_file, read_tuned
from torchzoo.run.plan import Plan, make_plan
from torchzoo.run.request import RunRequest
from torchzoo.run.resources import missing, models_of
from torchzoo.store import Run, StoreError, read_run
from torchzoo.studies.userbenchmark import (
    PUBLISHED,
    Choice,
    body,
    called,
    load_module,
    question,
    what_ran,
    with_own_name,
    with_own_names,
)
from torchzoo.zoo.folders import CatalogError

REASONS = "reasons.yaml"
SOME_DEVICE = "cuda"  # device of plans that are made without a machine


class Study(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded study."""

    name: str
    doc: str
    published: Published
    several_machines: bool
    shows_times: bool
    plan: Callable[[Choice], RunRequest]
    rows: Callable[..., list[Row]]
    report: Callable[..., list[Block | str]]
    panels: Callable[..., list[Panel]]


def load(name: str) -> Study:
    """Import one study and read its published figures.

    Raises:
        CatalogError: there is no such study, its code fails, or `published.yaml` can't be read.
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
        shows_times=bool(getattr(module, "SHOWS_TIMES", True)),
        plan=partial(called, f"the plan of {folder}", module.plan, RunRequest),
        rows=partial(called, f"the rows of {folder}", module.rows, list),
        report=partial(called, f"the report of {folder}", module.report, list),
        panels=partial(called, f"the panels of {folder}", getattr(module, "panels", _no_panels), list),
    )


def _no_panels(*_: Run) -> list[Panel]:
    return []


# --- runs ---


def read_runs(study: Study, paths: Sequence[Path]) -> tuple[Run, ...]:
    """Read kept runs, and join those of one machine and its software. If several have a case, the last counts.

    Raises:
        StoreError: a run can't be read or has no records; the runs are of several machines and the study is about one;
            or runs of one machine differ in software, so that they would count as two.
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
    """The run with the plan's model folders in place of missing ones, as after the run was moved."""
    there = [one for one in run.manifest.models_dirs if Path(one).is_dir()]
    if len(there) == len(run.manifest.models_dirs):
        return run
    own = study.plan(Choice(folder=run.path.resolve())).models_dirs
    manifest = msgspec.structs.replace(run.manifest, models_dirs=tuple(dict.fromkeys((*own, *there))))
    return msgspec.structs.replace(run, manifest=manifest)


def joined(paths: Sequence[Path], *, in_turns: bool = False) -> Run:
    """Join runs of like machines, which `read_run` reads. The manifest is the first run's, with the cases of all.

    Raises:
        StoreError: as `read_report_data`.
    """
    data = read_report_data(paths, in_turns=in_turns)
    cases: dict[Case, None] = {}
    domains = {}
    for run in data.runs:
        cases.update(dict.fromkeys(run.manifest.cases))
        domains.update(run.manifest.domains)
    manifest = msgspec.structs.replace(data.manifest, cases=tuple(cases), domains=domains)
    parts = data.runs if len(data.runs) > 1 else ()
    return Run(path=data.runs[0].path, manifest=manifest, records=data.records, joined=parts)


def read_reasons(paths: Iterable[Path]) -> list[Reason]:
    """Read the reasons for differences, which are kept in the folders of the runs.

    Raises:
        StoreError: a file of reasons can't be read, or a reason has no evidence.
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
    """The cases of a request, as far as they are known without a machine."""
    models = models_of(request)
    axes = msgspec.structs.replace(request.axes, devices=request.axes.devices or (SOME_DEVICE,))
    return make_plan(models, axes, missing(models, axes.backends))


def own_cases(study: Study) -> tuple[Case, ...]:
    """The cases of the study's own plan without repeats, including those that can't run."""
    with tempfile.TemporaryDirectory() as scratch:
        plan = planned(study.plan(Choice(folder=Path(scratch))))
    return tuple(dict.fromkeys(with_own_name(one.case.first_repeat(), study.name) for one in plan))


def is_of_the_plan(study: Study, run: Run) -> bool:
    """Whether the study's plan has every case of the run, and the run has one device and one batch of each model."""
    cases = with_own_names(run, study.name).manifest.cases
    return all(map(_is_in(own_cases(study)), cases)) and not _is_mixed(cases)


def of_the_plan(study: Study, run: Run) -> Run:
    """Return the run without cases outside the study's plan.

    Raises:
        StoreError: no case is left, or the cases have several devices, or several batches of a model.
    """
    run = with_own_names(run, study.name)
    has = _is_in(own_cases(study))
    cases = tuple(filter(has, run.manifest.cases))
    if not cases:
        raise StoreError(f"{run.path} has no case of the plan of {study.name}: `torchzoo report` shows the run")
    if _is_mixed(cases):
        raise StoreError(f"{run.path} has several devices, or several batches of a model: {study.name} is about one")
    manifest = msgspec.structs.replace(run.manifest, cases=cases)
    return msgspec.structs.replace(run, manifest=manifest, records=tuple(one for one in run.records if has(one.case)))


def _is_mixed(cases: Iterable[Case]) -> bool:
    """Whether the cases have several devices, or several batches of a model."""
    different = {case.first_repeat() for case in cases}
    return len({case.device for case in different}) > 1 or len(set(map(_without_batch, different))) < len(different)


def _is_in(plan: Sequence[Case]) -> Callable[[Case], bool]:
    """Return a test for cases of the plan, on any device. In evaluation, tuned batches count, too."""
    batches = {_without_batch(case): case.batch_size for case in plan}
    tuned = {(name, one.batch_size) for models in read_tuned(default_file()).values() for name, one in models.items()}

    def is_in(case: Case) -> bool:
        is_tuned = case.mode is Mode.EVAL and (case.model, case.batch_size) in tuned
        key = _without_batch(case)
        return key in batches and (is_tuned or case.batch_size == batches[key])

    return is_in


def _without_batch(case: Case) -> tuple[str, ...]:
    return (case.model, case.mode, case.axes_label())


# --- the document ---


class Rendered(NamedTuple):
    """The document of a study in Markdown, and its picture as SVG, or None without one."""

    text: str
    picture: str | None


def document(study: Study, runs: Sequence[Run], reasons: Sequence[Reason] = ()) -> Rendered:
    """The whole document: the question, both figures, the details, the differences, and how to repeat the study.

    Raises:
        BesideError, CatalogError: the study's data and its code contradict each other.
    """
    runs = [with_own_names(run, study.name) for run in runs]
    blocks = question(study.name, study.doc)
    machines, total = _machines(study, runs), len(own_cases(study))
    for name, run in zip(machines, runs, strict=True):
        ran = what_ran(run, f"study {study.name}")
        blocks.append(Text(Marked(f"**{name}**: {ran}" if name else ran)))
        if (count := len({record.case.first_repeat() for record in run.records})) < total:
            part = f"This is a part of the study: {count} of the plan's {total} cases are in the run."
            blocks.append(Text(Marked(f"**{part}**")))
    blocks += [Heading("Published and measured"), *beside.source(study.published), Text(Marked(READING))]
    blocks += beside.tables(study.published, study.rows(*runs), reasons)
    panels = study.panels(*runs)
    if panels:
        blocks.append(Picture(picture_name(study), "; ".join(panel.title for panel in panels)))
    blocks += body(study.report(*runs))
    blocks += _conditions(machines, runs) if study.shows_times else []
    of_parts = [[part.manifest for part in run.parts] for run in runs]
    hardware = _of_each([markdown.machines(manifests) for manifests in of_parts])
    versions = _of_each([markdown.software(*manifests) for manifests in of_parts])
    blocks += [Heading("What differs"), beside.differences(study.published, hardware, versions)]
    blocks += [Heading("Do it again"), Code(tuple(_commands(study, runs))), Heading("Measured on")]
    for name, manifests in zip(machines, of_parts, strict=True):
        blocks += _part(name, [markdown.provenance(*manifests)])
    return Rendered(markdown.render(blocks), _picture(panels, runs) if panels else None)


def picture_name(study: Study) -> str:
    """The name of the picture's file, next to the document."""
    return f"{study.name}.svg"


def _picture(panels: Sequence[Panel], runs: Sequence[Run]) -> str:
    outcomes = (record.outcome for run in runs for record in run.records)
    devices = {one.device_name for one in outcomes if isinstance(one, Measured)}
    return dots.picture(
        panels, markdown.provenance_line([part.manifest for run in runs for part in run.parts], devices)
    )


READING = """An interval [low, high] holds at 95% unless it says otherwise. That of a mean is Student's t over what is
averaged: models, or the steps of one model. A difference has a reason only where a measurement found one."""


def _machines(study: Study, runs: Sequence[Run]) -> list[str]:
    """`Machine 1, NVIDIA H200` for each run of a study of several machines; empty names in other studies."""
    if not study.several_machines:
        return [""] * len(runs)
    names = enumerate(machine_names(runs), start=1)
    return [f"Machine {number}, {markdown.escape(name)}" for number, name in names]


def _conditions(machines: Sequence[str], runs: Sequence[Run]) -> list[Block]:
    """The section on the conditions of each run; empty if nothing was timed."""
    found = [(name, beside.conditions(run)) for name, run in zip(machines, runs, strict=True)]
    parts = [block for name, blocks in found if blocks for block in _part(name, blocks)]
    return section("Conditions of the measured cases", *parts)


def _part(name: str, blocks: Document) -> list[Block]:
    """A part of a section, with its name above it if it has one."""
    return [*([Text(Marked(f"**{name}**"))] if name else []), *blocks]


def _of_each(texts: Sequence[str]) -> str:
    """A text that is equal for all runs, once; else the text of each machine."""
    if len(set(texts)) == 1:
        return texts[0]
    return "; ".join(f"machine {number}: {one}" for number, one in enumerate(texts, start=1))


def _commands(study: Study, runs: Sequence[Run]) -> list[str]:
    """The commands that made these runs, and the command that makes their document."""
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
