"""Write issues on regressions of a night: the cases, the first bad version, and a command that reproduces it.

An issue is posted to GitHub by its own command line, `gh`. Its address is kept beside the file `issue-1.md`, in
`issue-1.url`.
"""

from __future__ import annotations

import math
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchzoo.analysis.command_lines import shell_line, words
from torchzoo.analysis.compare import RunComparison
from torchzoo.environments.parsing import clean_variables, run_without_input
from torchzoo.errors import attempt, one_line
from torchzoo.history.candidates import package_of, short_name
from torchzoo.history.changes import Confirmed
from torchzoo.history.confirm import Decided
from torchzoo.history.nights import Blamed, NightWork
from torchzoo.record import Manifest
from torchzoo.report import run_comparison
from torchzoo.report.document import Block, Code, Heading, Items, Marked, Text, table
from torchzoo.report.markdown import FITS_GITHUB, code, escape, render, software
from torchzoo.report.units import first_few
from torchzoo.store import write_whole

#: A part of a SPEC that names no package and no other Python: `this`, or a setting of it.
_OF_THIS = re.compile(r"this|(?!python=)[A-Za-z_]\w*=(?!=).*", re.DOTALL)
LONGEST_TITLE = 200  # characters: GitHub takes 256
PATIENCE_S = 120.0  # for gh
_SIDES_OF_CULPRIT = "from the last good version to the first bad one"


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an issue: changes for the worse between two SPECs, and the version that caused them, if known."""

    night: str
    changes: tuple[Confirmed, ...]  # at least one
    base: str  # SPECs: the last good version and the first bad one, or the software of two nights
    candidate: str
    blamed: Blamed | None = None
    remarks: tuple[str, ...] = ()
    comparison: RunComparison  # of both sides, over all cases that were measured

    @property
    def ordered(self) -> list[Confirmed]:
        """The changes: those of an outcome, then the metrics with the largest ratio first."""
        return sorted(self.changes, key=lambda one: -math.inf if one.ratio is None else -one.ratio.value)


def title(issue: Issue) -> str:
    """Return `resnet18 eval cpu eager bs4: latency 1.10x since timm 0123456789 (and 3 more)`."""
    first = issue.ordered[0]
    size = f" {first.ratio.value:.2f}x" if first.ratio is not None else ""
    since = f", found in the night {issue.night}"
    if issue.blamed is not None:
        since = f" since {package_of(issue.candidate)} {short_name(issue.candidate)}"
    more = f" (and {len(issue.changes) - 1} more)" if len(issue.changes) > 1 else ""
    return f"{first.label}{size}{since}{more}"[:LONGEST_TITLE]


def as_markdown(issue: Issue) -> str:
    """Return the issue in Markdown: the title as its first line, then the body."""
    return render([Heading(title(issue), level=1), *_body(issue)], longest=FITS_GITHUB)


def _body(issue: Issue) -> list[Block]:
    first, comparison = issue.ordered[0], issue.comparison
    base = _side(issue.base, comparison.base_manifest)
    candidate = _side(issue.candidate, comparison.candidate_manifest)
    sides = "from the first of these to the second" if issue.blamed is None else _SIDES_OF_CULPRIT
    rows = [(one.case.label(), one.kind.words, one.words) for one in issue.ordered]
    case = words(first.case, comparison.candidate_manifest)
    command = ["torchzoo", "ab", "--base", issue.base, "--candidate", issue.candidate, *case]
    night = (
        f"Found by `torchzoo watch` in the night {code(issue.night)}. Both versions were measured in turns on one "
        "machine, process by process."
    )
    return [
        Text(Marked(f"**{escape(first.case.label())}**: {escape(first.kind.words)}, {escape(first.words)}.")),
        *_since(issue.blamed, code(base), code(candidate)),
        table(("case", "what became worse", sides), rows),
        Text("One command that shows it again:"),
        Code((shell_line(command),)),
        *([Items(issue.remarks)] if issue.remarks else []),
        Text("Both environments, and all cases that were measured:"),
        *run_comparison.document(msgspec.structs.replace(comparison, base=base, candidate=candidate)),
        Text(Marked(night)),
    ]


def _side(spec: str, manifest: Manifest) -> str:
    """Return a SPEC, with versions if it is `this`, which is another environment for a reader of the issue."""
    is_this = all(_OF_THIS.fullmatch(part) for part in re.split(r"(?<!\\),", spec))
    return f"{spec} ({software(manifest)})" if is_this else spec


def _since(blamed: Blamed | None, base: Marked, candidate: Marked) -> list[Block]:
    if blamed is None:
        between = Items((Marked(f"{base} and"), Marked(f"{candidate}.")))
        return [Text("The first bad version is not known. The change lies between"), between]
    others = blamed.specs[:-1]
    first = "First bad version" if not others else "The first bad version is this one or one of those below"
    sure = f" ({math.floor(100 * blamed.probability)}% sure)" if blamed.probability < 1 else ""
    about = f"; {escape(blamed.about)}" if blamed.about else ""
    items = [f"{first}: {candidate}{sure}{about}", *(f"could not be judged: {code(other)}" for other in others)]
    if blamed.inside is not None:
        items.append(f"in inductor: {escape(blamed.inside.words)}")
        if blamed.inside.without_it:
            items.append(f"without that part of inductor: {code(blamed.inside.without_it)}")
    return [Items(tuple(map(Marked, [*items, f"last good version: {base}"])))]


# --- the files ---


def write_issues(work: NightWork, found: Sequence[Issue], decided: Sequence[Decided]) -> list[str]:
    """Write the issues of culprits and of the other changes of each A/B, and post them if asked. Return the places."""
    issues = list(found)
    explained = [change for one in found if one.blamed is not None for change in one.blamed.explains]
    for one in decided:
        rest = tuple(change for change in one.confirmed if change not in explained)
        if rest:
            also = f"these differ, too, and no SPEC brings them back: {first_few(one.sides.rest, 30)}"
            issues.append(
                Issue(
                    night=work.folder.name,
                    changes=rest,
                    base=one.sides.base,
                    candidate=one.sides.candidate,
                    remarks=(*work.remarks, *([also] if one.sides.rest else [])),
                    comparison=one.comparison,
                )
            )
    places = []
    for number, issue in enumerate(issues, start=1):
        path = work.folder / f"issue-{number}.md"
        write_whole(path, as_markdown(issue).encode())
        work.options.show(f"issue: {title(issue)}")
        if work.options.posts and (problem := post(path, title(issue), work.options.repository)):
            work.remark(f"{path.name} was not posted: {problem}")
        address = _address(path)
        work.options.show(f"  {address or path}")
        places.append(address or path.name)
    return places


def _address(path: Path) -> str:
    """Return the address of the posted issue in the file at `path`; empty if it was not posted."""
    file = path.with_suffix(".url")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def post(path: Path, title: str, repository: str | None) -> str:
    """Post an issue with `gh issue create`, unless it was posted. Return why it was not posted, or an empty text."""
    if _address(path):
        return ""
    where = ["--repo", repository] if repository is not None else []
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8") as body:
        body.write(path.read_text(encoding="utf-8").partition("\n")[2].lstrip("\n"))
        body.flush()
        command = ["gh", "issue", "create", *where, "--title", title, "--body-file", body.name]
        variables = {**clean_variables(), "GH_PROMPT_DISABLED": "1"}
        done = attempt(lambda: run_without_input(command, variables, PATIENCE_S))
    match done:
        case FileNotFoundError():
            return "gh is not installed (https://cli.github.com)"
        case subprocess.TimeoutExpired():
            return f"gh took longer than {PATIENCE_S:g} s"
        case Exception():
            return f"gh can't be run: {one_line(done)}"
    if done.returncode != 0:
        return f"gh failed: {one_line(done.stderr) if done.stderr.strip() else f'status {done.returncode}'}"
    write_whole(path.with_suffix(".url"), (done.stdout.split() or ["posted"])[-1].encode())
    return ""
