"""Load and report userbenchmarks: folders with a plan (what to run) and a report (a document from records).

Most userbenchmarks measure cases as `torchzoo run` does. With a third function, `turns(case, spec, repeats)`, a
userbenchmark measures in fresh processes instead (`torchzoo.measure.fresh_turns`), each of which has a record. With
`SEVERAL_AT_ONCE = True`, several of these processes may run at once, each with cores of its own (`--jobs`,
`--devices`); with `ONE_A_DEVICE = True`, too, only one on a device.
"""

from __future__ import annotations

import ast
import contextlib
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import msgspec

from torchzoo.analysis.cases import CaseResult, Status, by_case, case_results
from torchzoo.analysis.command_lines import shell_line
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import Case, Domain, Mode
from torchzoo.errors import TorchzooError, attempt, nearest, one_line, written
from torchzoo.files import parse_python
from torchzoo.measure.fresh_turns import TurnsOf
from torchzoo.record import Took
from torchzoo.report import markdown, terminal, units
from torchzoo.report.document import Block, Heading, Marked, Text, section, table
from torchzoo.report.remarks import not_measured_line, what_failed
from torchzoo.report.summary import run_counts
from torchzoo.run.request import RunRequest
from torchzoo.store import RECORDS, Run, StoreError, write_whole
from torchzoo.zoo.folders import CatalogError, find_userbenchmarks, import_folder

ALL = "all"
REPORT = "report.md"
PUBLISHED = "published.yaml"  # a userbenchmark with this file is a study: see `torchzoo.studies.study`
_Value = TypeVar("_Value")


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The user's choice for a plan. Options for axes and settings replace the plan's own afterwards."""

    patterns: tuple[str, ...] = ()  # MODELs
    suites: tuple[str, ...] = ()
    models_dirs: tuple[str, ...] = ()
    folder: Path  # folder of the run, where a plan may write its own model folders

    @property
    def names_models(self) -> bool:
        return bool(self.patterns or self.suites)

    def suites_or(self, *suites: str) -> tuple[str, ...]:
        """The chosen suites, or `suites` if the user named no model and no suite."""
        return self.suites if self.names_models else suites


class UserBenchmark(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded userbenchmark. `plan(choice)` is the request; `report(run)` is the body of the document.

    With `turns`, each case is measured in the fresh processes that it returns.
    """

    name: str
    doc: str
    plan: Callable[[Choice], RunRequest]
    report: Callable[[Run], list[Block | str]]
    turns: TurnsOf | None = None
    several_at_once: bool = False  # whether processes of different cases may run at the same time
    one_a_device: bool = False  # whether each of these needs a device of its own


def find(*, studies: bool) -> dict[str, Path]:
    """The folders by name of the studies, or of the other userbenchmarks."""
    found = sorted(find_userbenchmarks().items())
    return {name: folder for name, folder in found if (folder / PUBLISHED).is_file() == studies}


def summaries(*, studies: bool = False) -> dict[str, str]:
    """The first line of each docstring, by name. Nothing is imported."""
    return {name: _docstring(folder).partition("\n")[0] for name, folder in find(studies=studies).items()}


def _docstring(folder: Path) -> str:
    tree = parse_python(folder / "__init__.py")
    return "can't be read: it has no __init__.py with Python" if tree is None else ast.get_docstring(tree) or ""


def load(name: str) -> UserBenchmark:
    """Import a userbenchmark.

    Raises:
        CatalogError: there is no such userbenchmark (the message suggests the nearest), or its code fails, now or when
            its plan or its report is called.
    """
    folder, module = load_module(name, ("plan", "report"), studies=False)
    return UserBenchmark(
        name=name,
        doc=module.__doc__ or "",
        plan=partial(called, f"the plan of {folder}", module.plan, RunRequest),
        report=partial(called, f"the report of {folder}", module.report, list),
        turns=partial(called, f"the turns of {folder}", module.turns, list) if hasattr(module, "turns") else None,
        several_at_once=bool(getattr(module, "SEVERAL_AT_ONCE", False)),
        one_a_device=bool(getattr(module, "ONE_A_DEVICE", False)),
    )


def load_module(name: str, functions: Iterable[str], *, studies: bool) -> tuple[Path, ModuleType]:
    """Import the folder of that name, which must have these functions.

    Raises:
        CatalogError: as `load`.
    """
    folders, what = find(studies=studies), "study" if studies else "userbenchmark"
    if name not in folders:
        if name in find(studies=not studies):
            raise CatalogError(f"{name} is no {what}: `torchzoo {'userbenchmark' if studies else 'study'} {name}`")
        known = f"known: {', '.join(folders)}"
        raise CatalogError(f"no {what} '{name}': {nearest(name, folders, otherwise=known)}")
    refusal = f"{folders[name]} is no {what}"
    module = _from_its_code(refusal, partial(import_folder, folders[name], f"torchzoo_userbenchmarks.{name}"))
    for function in functions:
        if not callable(getattr(module, function, None)):
            raise CatalogError(f"{refusal}: it has no function {function}")
    return folders[name], module


def called(what: str, function: Callable[..., Any], kind: type, *arguments: Any) -> Any:
    """Call a function of a userbenchmark, which must return a `kind`.

    Raises:
        CatalogError: the result has another type, or the function fails.
    """
    found = _from_its_code(what, partial(function, *arguments))
    if not isinstance(found, kind):
        raise CatalogError(f"{what}: it must return a {kind.__name__}, and returned a {type(found).__name__}")
    return found


def _from_its_code(what: str, action: Callable[[], _Value]) -> _Value:
    """Call a userbenchmark's own code, and turn its errors into one line, with the place if that is known.

    Raises:
        CatalogError: the code raised an error or exited. Errors for the user (`TorchzooError`) propagate.
    """
    found: _Value | Exception | SystemExit
    try:
        with contextlib.redirect_stdout(sys.stderr):  # standard output is for the report
            found = attempt(action)
    except SystemExit as error:
        found = error
    if isinstance(found, TorchzooError):
        raise found
    if isinstance(found, Exception | SystemExit):
        last = traceback.extract_tb(found.__traceback__)[-1]
        place = "" if isinstance(found, SyntaxError | ImportError) else f" ({last.filename}, line {last.lineno})"
        raise CatalogError(f"{what}: {type(found).__name__}: {one_line(found)}{place}") from found
    return found


def document(benchmark: UserBenchmark, run: Run) -> str:
    """The whole document in Markdown: the question, what was measured and what was not, the body, the machine."""
    run = with_own_names(run, benchmark.name)
    ran = (what_ran if benchmark.turns is None else processes_that_ran)(run, f"userbenchmark {benchmark.name}")
    made = markdown.provenance(*(part.manifest for part in run.parts))
    asked = question(benchmark.name, benchmark.doc)
    return markdown.render([*asked, Text(Marked(ran)), *body(benchmark.report(run)), Heading("Measured on"), made])


def question(name: str, docstring: str) -> list[Block]:
    """The beginning of a document: the name, and the docstring of the module, which is Markdown."""
    title, _, text = docstring.strip().partition("\n")
    heading = Heading(Marked(f"{markdown.escape(name)}: {title}"), level=1)
    return [heading, *([Text(Marked(text.strip()))] if text.strip() else [])]


def body(parts: Iterable[Block | str]) -> list[Block]:
    """The blocks of a report, in which strings are lines of Markdown."""
    blocks: list[Block] = []
    lines: list[str] = []
    for part in (*parts, None):
        if isinstance(part, str):
            lines.append(part)
            continue
        if text := "\n".join(lines).strip():
            blocks.append(Text(Marked(text)))
        lines = []
        blocks += [part] if part is not None else []
    return blocks


def with_own_names(run: Run, userbenchmark: str) -> Run:
    """Return the run with this userbenchmark's backends under their own names, as its report knows them."""
    cases = tuple(with_own_name(case, userbenchmark) for case in run.manifest.cases)
    records = (msgspec.structs.replace(one, case=with_own_name(one.case, userbenchmark)) for one in run.records)
    manifest = msgspec.structs.replace(run.manifest, cases=cases)
    return msgspec.structs.replace(run, manifest=manifest, records=tuple(records))


def with_own_name(case: Case, userbenchmark: str) -> Case:
    """Return the case with this userbenchmark's backend as `NAME`, not as `USERBENCHMARK/NAME`."""
    name = case.backend.name.removeprefix(f"{userbenchmark}/")
    return msgspec.structs.replace(case, backend=msgspec.structs.replace(case.backend, name=name))


def what_ran(run: Run, command: str) -> str:
    """The numbers of measured and other cases, and the command with `--resume` that continues."""
    counts = run_counts(run)
    unmeasured = counts.found.skipped + counts.found.failed
    line = f"{counts.cases} cases: {counts.found.measured} measured"
    if unmeasured:
        line += f", {unmeasured} skipped or failed (at the end)"
    if counts.missing:
        unfinished = [part.path for part in run.parts if run_counts(part).missing]
        line += f", {_not_run_yet(counts.missing, command, unfinished)}"
    if damaged := sum(part.damaged_lines for part in run.parts):
        line += f", {damaged} records that can't be read"
    if counts.repeats > 1:
        line += f"; each in {counts.repeats} processes"
    return f"{line}."


def _not_run_yet(count: int, command: str, unfinished: Iterable[Path]) -> str:
    again = (shell_line(["torchzoo", *command.split(), "--resume", str(path)]) for path in unfinished)
    return f"{count} not run yet: go on with {', '.join(map(markdown.code, again))}"


def processes_that_ran(run: Run, command: str) -> str:
    """The numbers of successful and other processes, and the command with `--resume` that continues."""
    took = sum(isinstance(record.outcome, Took) for record in run.records)
    other = len(run.records) - took
    line = f"{len(by_case(run.records))} cases: {took} results of fresh processes"
    if other:
        line += f", {other} skipped or failed (at the end)"
    if unfinished := {part.path: left for part in run.parts if (left := part.manifest.turns - len(part.records)) > 0}:
        line += f", {_not_run_yet(sum(unfinished.values()), command, unfinished)}"
    if damaged := sum(part.damaged_lines for part in run.parts):
        line += f", {damaged} records that can't be read"
    return f"{line}. Every result is a line of {RECORDS}, with its raw figures."


def without_result(run: Run) -> list[Block]:
    """The section of skipped and failed processes, by reason; empty if there are none."""
    found: dict[str, list[str]] = {}
    for record in run.records:
        if not isinstance(record.outcome, Took):
            why = not_measured_line(record.outcome)
            found.setdefault(why, []).append(f"{record.case.label()} {record.role}".strip())
    rows = [(why, str(len(some)), units.first_few(list(dict.fromkeys(some)), most=4)) for why, some in found.items()]
    return section("Without a result", table(("why", "processes", "which"), rows))


def not_measured(run: Run, where: str = "") -> list[Block]:
    """The section of skipped and failed cases, by reason; empty if there are none.

    `where` names the machine in a document about several.
    """
    cases: dict[str, list[str]] = {}
    for result in case_results(run):
        if result.figures is None:
            cases.setdefault("; ".join(what_failed(result)), []).append(result.case.label())
    rows = [(why, str(len(some)), units.first_few(some, most=4)) for why, some in cases.items()]
    return section(f"Not measured on {where}" if where else "Not measured", table(("why", "cases", "which"), rows))


def measured(run: Run) -> list[tuple[CaseResult, CaseFigures]]:
    """The cases with figures (over all repeats), those with wrong results included."""
    return [(result, result.figures) for result in case_results(run) if result.figures is not None]


def counted(results: Iterable[CaseResult]) -> str:
    """`70 of 77 counted, 6 unsteady, 1 failed`: the cases in a mean, of those that could run, and the reasons."""
    statuses = Counter(result.status for result in results if result.could_run)
    words = [f"{statuses[Status.PASSED]} of {statuses.total()} counted"]
    others = (Status.REFUSED, Status.UNSTEADY, Status.INCORRECT, Status.FAILED)
    return ", ".join([*words, *(f"{statuses[status]} {status}" for status in others if statuses[status])])


def speedup_of(result: CaseResult, figures: CaseFigures) -> str:
    """`1.250x [1.240, 1.260]`, and the status of a case that is in no mean; empty without a backend."""
    if figures.speedup is None:
        return ""
    return units.speedup(figures.speedup) + ("" if result.passed else f" ({result.status})")


def beside_eager(
    run: Run,
    title: str,
    headings: Sequence[str],
    line: Callable[[CaseResult, CaseFigures], Sequence[str]],
    reading: str,
) -> list[Block]:
    """A report's body: a table of the cases with a backend, its explanation `reading` in Markdown, and other cases."""
    found = [(result, figures) for result, figures in measured(run) if result.has_candidate]
    shown = section(title, table(headings, (line(*one) for one in found)))
    shown = shown or [Text("No case of this run has a backend beside eager.")]
    return [*shown, Text(Marked(reading)), *not_measured(run)]


def by_domain(run: Run, values: Iterable[tuple[str, _Value]]) -> dict[str, list[_Value]]:
    """Values of models by domain, in the order of `Domain`, and all values under `all` at the end.

    Args:
        run: the run, whose manifest has the models' domains.
        values: pairs of a model's name and a value.
    """
    found: dict[str, list[_Value]] = {}
    for model, value in values:
        for domain in (run.manifest.domains.get(model), ALL):
            if domain is not None:
                found.setdefault(domain, []).append(value)
    return {domain: found[domain] for domain in [*Domain, ALL] if domain in found}


def by_domain_and_mode(run: Run, values: Iterable[tuple[Case, _Value]]) -> dict[tuple[str, Mode], list[_Value]]:
    """Values of cases by domain and mode in a picture's order: by domain, with `all` at the end, then by mode."""
    found = by_domain(run, [(case.model, (case.mode, value)) for case, value in values])
    return {
        (domain.replace("_", " "), mode): of_mode
        for domain, some in found.items()
        for mode in Mode
        if (of_mode := [value for one, value in some if one is mode])
    }


def percent(share: float) -> str:
    """The share as a percentage: `12.3%`."""
    return f"{100 * share:.1f}%"


def write(path: Path, text: str) -> None:
    """Write a report atomically, and print its path.

    Raises:
        OSError: the file can't be written.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, written(text).encode())
    terminal.say(f"report written to {path}")


def print_or_write(text: str, folder: Path | None) -> None:
    """Print a report, or write it into a folder.

    Raises:
        StoreError: the file can't be written.
    """
    if folder is None:
        sys.stdout.write(text)
        return
    try:
        write(folder / REPORT, text)
    except OSError as error:
        raise StoreError(f"can't write {folder / REPORT}: {error.strerror}") from error
