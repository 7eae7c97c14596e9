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
from torchzoo.case import Case
from torchzoo.environments.parsing import clean_variables, run_without_input
from torchzoo.errors import attempt, one_line
from torchzoo.history.blame import Found
from torchzoo.history.candidates import package_of, short_name
from torchzoo.history.confirm import Decided
from torchzoo.history.nights import Confirmed
from torchzoo.record import Manifest
from torchzoo.report import run_comparison
from torchzoo.report.document import Block, Code, Heading, Items, Marked, Text, table
from torchzoo.report.markdown import FITS_GITHUB, code, escape, render, software
from torchzoo.report.units import first_few
from torchzoo.store import write_whole

# --- the text of an issue ---

#: A part of a SPEC that names no package and no other Python: `this`, or a setting of it.
_OF_THIS = re.compile(r"this|(?!python=)[A-Za-z_]\w*=(?!=).*", re.DOTALL)
LONGEST_TITLE = 200  # characters: GitHub takes 256
PATIENCE_S = 120.0  # for gh


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A metric or a status of a case that became worse."""

    case: Case
    what: str  # latency, device memory, failing ...
    change: str  # `10.0 ms -> 11.0 ms, 1.100x [1.090, 1.110]`
    short: str  # `1.10x`; empty if there is no ratio


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """The facts of an issue."""

    night: str
    effects: tuple[Effect, ...]  # the clearest first; at least one
    base: str  # SPECs: the last good version and the first bad one, or the software of two nights
    candidate: str
    version: str = ""  # the first bad version in short; empty if it is not known
    sure: str = ""  # `97%`
    about: str = ""  # of a commit: who made it, when, and its subject
    others: tuple[str, ...] = ()  # SPECs that could not be judged: one of them may be the first bad one
    inside: tuple[str, ...] = ()  # the part of inductor that did it, and variables that leave it out (or "")
    remarks: tuple[str, ...] = ()
    comparison: RunComparison  # of both sides, over all cases that were measured


def title(issue: Issue) -> str:
    """Return `resnet18 eval cpu eager bs4: latency 1.10x since timm 0123456789 (and 3 more)`."""
    first = issue.effects[0]
    more = f" (and {len(issue.effects) - 1} more)" if len(issue.effects) > 1 else ""
    since = f" since {issue.version}" if issue.version else f", found in the night {issue.night}"
    line = " ".join(f"{first.case.label()}: {first.what} {first.short}".split())
    return f"{line}{since}{more}"[:LONGEST_TITLE]


def as_markdown(issue: Issue) -> str:
    """Return the issue in Markdown: the title as its first line, then the body."""
    return render([Heading(title(issue), level=1), *_body(issue)], longest=FITS_GITHUB)


def _body(issue: Issue) -> list[Block]:
    first = issue.effects[0]
    rows = [(one.case.label(), one.what, one.change) for one in issue.effects]
    sides = (
        "from the last good version to the first bad one" if issue.version else "from the first of these to the second"
    )
    comparison = msgspec.structs.replace(
        issue.comparison,
        base=_side(issue.base, issue.comparison.base_manifest),
        candidate=_side(issue.candidate, issue.comparison.candidate_manifest),
    )
    night = (
        f"Found by `torchzoo watch` in the night {code(issue.night)}. Both versions were measured in turns on one "
        "machine, process by process."
    )
    return [
        Text(Marked(f"**{escape(first.case.label())}**: {escape(first.what)}, {escape(first.change)}.")),
        *_since(issue),
        table(("case", "what became worse", sides), rows),
        Text("One command that shows it again:"),
        Code((reproduce(issue),)),
        *([Items(issue.remarks)] if issue.remarks else []),
        Text("Both environments, and all cases that were measured:"),
        *run_comparison.document(comparison),
        Text(Marked(night)),
    ]


def reproduce(issue: Issue) -> str:
    """Return the command that measures the first case of the issue with both versions."""
    case = words(issue.effects[0].case, issue.comparison.candidate_manifest)
    return shell_line(["torchzoo", "ab", "--base", issue.base, "--candidate", issue.candidate, *case])


def _side(spec: str, manifest: Manifest) -> str:
    """Return a SPEC, with versions if it is `this`, which is another environment for a reader of the issue."""
    is_this = all(_OF_THIS.fullmatch(part) for part in re.split(r"(?<!\\),", spec))
    return f"{spec} ({software(manifest)})" if is_this else spec


def _since(issue: Issue) -> list[Block]:
    base = code(_side(issue.base, issue.comparison.base_manifest))
    candidate = code(_side(issue.candidate, issue.comparison.candidate_manifest))
    if not issue.version:
        between = Items((Marked(f"{base} and"), Marked(f"{candidate}.")))
        return [Text("The first bad version is not known. The change lies between"), between]
    first = "First bad version" if not issue.others else "The first bad version is this one or one of those below"
    sure = f" ({issue.sure} sure)" if issue.sure else ""
    about = f"; {escape(issue.about)}" if issue.about else ""
    items = [f"{first}: {candidate}{sure}{about}"]
    items += [f"could not be judged: {code(other)}" for other in issue.others]
    if issue.inside:
        words, without_it = issue.inside
        items.append(f"in inductor: {escape(words)}")
        items += [f"without that part of inductor: {code(without_it)}"] if without_it else []
    return [Items(tuple(map(Marked, [*items, f"last good version: {base}"])))]


# --- the files ---


def write_issues(
    folder: Path,
    found: Sequence[Found],
    decided: Sequence[Decided],
    remarks: Sequence[str],
) -> list[tuple[Path, str]]:
    """Write an issue for each culprit, and one for the other changes of each A/B. Return files and titles."""
    issues = [_issue_of_culprit(folder.name, one) for one in found if one.blamed.explains]
    explained = [change for one in found for change in one.blamed.explains]
    for one in decided:
        rest = [change for change in one.confirmed if change not in explained]
        if rest:
            issues.append(_issue_without_culprit(folder.name, one, rest, remarks))
    written = []
    for number, issue in enumerate(issues, start=1):
        path = folder / f"issue-{number}.md"
        write_whole(path, as_markdown(issue).encode())
        written.append((path, title(issue)))
    return written


def _issue_of_culprit(night: str, found: Found) -> Issue:
    blamed = found.blamed
    return Issue(
        night=night,
        effects=_effects(found.effects),
        base=blamed.before,
        candidate=blamed.specs[-1],
        version=f"{package_of(blamed.specs[-1])} {short_name(blamed.specs[-1])}",
        sure=f"{math.floor(100 * blamed.probability)}%" if blamed.probability < 1 else "",
        about=blamed.about,
        others=blamed.specs[:-1],
        inside=() if blamed.inside is None else (blamed.inside.words, blamed.inside.without_it),
        comparison=found.comparison,
    )


def _issue_without_culprit(night: str, decided: Decided, rest: Sequence[Confirmed], remarks: Sequence[str]) -> Issue:
    sides = decided.sides
    also = (f"these differ, too, and no SPEC brings them back: {first_few(sides.rest, 30)}",) if sides.rest else ()
    return Issue(
        night=night,
        effects=_effects(rest),
        base=sides.base,
        candidate=sides.candidate,
        remarks=(*remarks, *also),
        comparison=decided.comparison,
    )


def _effects(confirmed: Sequence[Confirmed]) -> tuple[Effect, ...]:
    """Return the changes as an issue shows them, the largest first."""
    ordered = sorted(confirmed, key=lambda one: -one.ratio.value if one.ratio is not None else -math.inf)
    return tuple(
        Effect(
            case=one.case,
            what=one.kind.words,
            change=one.words,
            short=f"{one.ratio.value:.2f}x" if one.ratio is not None else "",
        )
        for one in ordered
    )


# --- posting ---


def address_of(path: Path) -> str:
    """Return the address of the posted issue in the file at `path`; empty if it was not posted."""
    file = path.with_suffix(".url")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def post(path: Path, title: str, repository: str | None) -> str:
    """Post an issue with `gh issue create`, unless it was posted.

    Args:
        path: of the whole issue. Its first line, the title, is no part of the body.
        title: of the issue.
        repository: OWNER/NAME; None: that of the current folder, as gh finds it.

    Returns:
        A line that says why the issue was not posted; empty if it was.
    """
    if address_of(path):
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
