"""The issue on a regression: what became worse, since which version, where, and the command that shows it again."""

from __future__ import annotations

import re

import msgspec

from torchzoo.analysis.compare import RunComparison
from torchzoo.analysis.reproduce import shell_line, words
from torchzoo.case import Case
from torchzoo.record import Manifest
from torchzoo.report import run_comparison
from torchzoo.report.document import Block, Code, Heading, Items, Marked, Text, table
from torchzoo.report.markdown import FITS_GITHUB, code, escape, render, software

#: A part of a SPEC that names no package and no other Python: `this`, or a setting of it.
_OF_THIS = re.compile(r"this|(?!python=)[A-Za-z_]\w*=(?!=).*", re.DOTALL)
LONGEST_TITLE = 200  # characters: GitHub takes 256


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """A metric or a status of a case that became worse."""

    case: Case
    what: str  # latency, device memory, failing ...
    change: str  # `10.0 ms -> 11.0 ms, 1.100x [1.090, 1.110]`
    short: str  # `1.10x`; empty where it has no ratio


class Issue(msgspec.Struct, frozen=True, kw_only=True):
    """All that an issue says."""

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
    """`resnet18 eval cpu eager bs4: latency 1.10x since timm 0123456789 (and 3 more)`."""
    first = issue.effects[0]
    more = f" (and {len(issue.effects) - 1} more)" if len(issue.effects) > 1 else ""
    since = f" since {issue.version}" if issue.version else f", found in the night {issue.night}"
    line = " ".join(f"{first.case.label()}: {first.what} {first.short}".split())
    return f"{line}{since}{more}"[:LONGEST_TITLE]


def markdown(issue: Issue) -> str:
    """The whole issue in Markdown: the title as its first line, then the body."""
    return render([Heading(title(issue), level=1), *body(issue)], longest=FITS_GITHUB)


def body(issue: Issue) -> list[Block]:
    """The body of the issue."""
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
    """The command that measures the first case of the issue with both versions."""
    case = words(issue.effects[0].case, issue.comparison.candidate_manifest)
    return shell_line(["torchzoo", "ab", "--base", issue.base, "--candidate", issue.candidate, *case])


def _side(spec: str, manifest: Manifest) -> str:
    """A SPEC. `this` is another environment for whoever reads the issue, so it comes with its versions."""
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
