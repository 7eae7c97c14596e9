"""What changed for the zoo's models from one release of PyTorch to the next, measured side by side on this machine.

    python benchmarks/releases.py 2.11.0 2.12.1 2.13.0 --models resnet18,hf_DistilBert -d cpu -o /tmp/releases
    python benchmarks/releases.py --document /tmp/releases > docs/results/DATE-cpu-releases.md

All releases are measured in turns, process by process: no release has a better hour of the day. Each release is then
compared with the one before it, and the last with the first. What differs by `--confirm-from` (10%) or more, or newly
fails, is measured again by an A/B of these two releases alone: with five processes each and, where these can't tell,
with ten others, which are enough to be compared as pairs. The last and the first are not measured again for what two
releases between them differ in, too. What is in the folder already is not measured again either: a killed study goes
on, and one with more `--repeats` or `--models` measures what is new.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from torchzoo.analysis.compare import Change, RunComparison, compare_in_turns
from torchzoo.analysis.judge import Finding, Verdict
from torchzoo.analysis.means import geomean
from torchzoo.analysis.run_figures import Metric
from torchzoo.case import Axes, Case, Mode
from torchzoo.commands.arguments import backends_of, choices, seconds
from torchzoo.environments.make import prepare
from torchzoo.history.confirm import measure_pair
from torchzoo.record import Record
from torchzoo.report import markdown
from torchzoo.report.over_time import value_text
from torchzoo.report.run_comparison import NAMES
from torchzoo.run import experiment
from torchzoo.run.experiment import Place
from torchzoo.run.plan import DEFAULT, SMOKE
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.stats import Estimate
from torchzoo.store import Run, read_run

#: A figure of a case and its verdict, or a case that works in one release only.
Difference = tuple[Case, Metric | Change, Verdict | None]
Comparisons = Mapping[tuple[str, str], RunComparison]

#: A study that goes on must have these as it began.
KEPT = ("releases", "models", "repeats", "mode", "device", "backend", "bs", "threads", "time_limit", "confirm_from")
#: The document shows the means of these.
OF_MEANS = (Metric.LATENCY, Metric.HOST_MEMORY, Metric.COMPILE_TIME)


def main() -> None:
    """Measure, confirm, print the document."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("releases", nargs="*", help="versions of torch, in their order")
    parser.add_argument("--models", default="", help="names or globs, with commas")
    parser.add_argument("-t", "--mode", default="train,eval")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--bs", choices=(SMOKE, DEFAULT), default=SMOKE)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--time-limit", type=seconds, default=1.0)
    parser.add_argument("--confirm-from", type=float, default=0.10, metavar="SHARE")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--document", type=Path, metavar="DIR", help="print the document of a finished study")
    arguments = parser.parse_args()
    folder: Path | None = arguments.document or arguments.output
    if folder is None or (arguments.document is None and len(arguments.releases) < 2):
        parser.error("name two releases or more and a folder: -o DIR; or a finished study: --document DIR")
    if arguments.document is None:
        measure(arguments, folder)
    print(document(folder), end="")


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """All releases in turns, then an A/B for what differs."""
    axes = Axes(
        modes=choices(arguments.mode, Mode, "mode"),
        devices=(arguments.device,),
        backends=backends_of(arguments.backend),
        batch_sizes=(arguments.bs,),
        repeats=arguments.repeats,
    )
    settings = Settings(time_limit_s=arguments.time_limit, threads=arguments.threads)
    request = RunRequest(patterns=tuple(arguments.models.split(",")), axes=axes, settings=settings)
    folder.mkdir(parents=True, exist_ok=True)
    _note(arguments, folder / "study.json")
    places = {
        release: Place(software=prepare(f"torch=={release}"), folder=folder / release) for release in arguments.releases
    }
    experiment.measure(request, places, on_record=_show)
    compared = comparisons({release: read_run(folder / release) for release in arguments.releases})
    for base, candidate in compared:
        found = large(compared[base, candidate], arguments.confirm_from)
        known = between(compared, (base, candidate), arguments.confirm_from)
        cases = list(dict.fromkeys(one[0] for one in found if one not in known))
        specs = f"torch=={base}", f"torch=={candidate}"
        if cases:
            print(f"{base} and {candidate}: {len(cases)} cases are measured again", file=sys.stderr, flush=True)
            measure_pair(*specs, cases, request, _confirmation(folder, base, candidate), on_record=_show)


def _note(arguments: argparse.Namespace, path: Path) -> None:
    """Keep what is measured. A begun study must be asked for as it was."""
    kept = {name: getattr(arguments, name) for name in KEPT}
    if path.exists():
        before = json.loads(path.read_text())
        changed = [name for name in KEPT if kept[name] != before.get(name)]
        if changed:
            sys.exit(f"{path.parent} holds a study with other {', '.join(changed)}: name another folder with -o")
    path.write_text(json.dumps({**kept, "command": sys.argv}))


def pairs_of(releases: Sequence[str]) -> list[tuple[str, str]]:
    """The releases that are compared: each with the one before it, and the last with the first."""
    pairs = list(pairwise(releases))
    return pairs if len(releases) == 2 else [*pairs, (releases[0], releases[-1])]


def comparisons(runs: Mapping[str, Run]) -> Comparisons:
    """Of all pairs of releases that are compared, in the order of `pairs_of`."""
    return {pair: compare_in_turns(runs[pair[0]], runs[pair[1]]) for pair in pairs_of(list(runs))}


def between(compared: Comparisons, pair: tuple[str, str], share: float) -> dict[Difference, tuple[str, str]]:
    """For the first release and the last: the large differences of neighbours, each with the first two that have it."""
    *neighbours, last = compared
    found: dict[Difference, tuple[str, str]] = {}
    for two in neighbours if pair == last else []:
        for one in large(compared[two], share):
            found.setdefault(one, two)
    return found


def large(comparison: RunComparison, share: float) -> list[Difference]:
    """The figures that differ by that share or more, and the cases that work in one of the releases only."""
    some = [
        (one.case, one.metric, one.verdict) for one in comparison.findings if one.is_notable and is_large(one, share)
    ]
    kinds = (Change.NEWLY_FAILING, Change.NEWLY_PASSING)
    return [*some, *((one.case, one.change, None) for one in comparison.changes if one.change in kinds)]


def is_large(finding: Finding, share: float) -> bool:
    """Whether a figure became larger or smaller by that share."""
    return abs(math.log(finding.ratio.value)) >= math.log1p(share)


def _confirmation(folder: Path, base: str, candidate: str) -> Path:
    """The folder of the A/B of two releases."""
    return folder / f"confirm-{base}-{candidate}"


def _show(name: str, record: Record, done: int, total: int) -> None:
    print(f"[{done}/{total}] {name} {record.case.label()}", file=sys.stderr, flush=True)


# --- the document ---


def document(folder: Path) -> str:
    """The whole study as Markdown."""
    study: dict[str, Any] = json.loads((folder / "study.json").read_text())
    releases: list[str] = study["releases"]
    runs = {release: read_run(folder / release) for release in releases}
    compared = comparisons(runs)
    lines = [f"# torch {releases[0]} to {releases[-1]}: what changed between releases", ""]
    lines += [*_provenance(study["command"], list(runs.values())), *_totals(compared), ""]
    for base, candidate in compared:
        lines += [f"## {base} to {candidate}", ""]
        lines += [*_changes(folder, compared, (base, candidate), study["confirm_from"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _provenance(command: Sequence[str], runs: Sequence[Run]) -> list[str]:
    """The command, the dates and the machine once; the software of each release."""
    first, *others = (run.manifest for run in runs)
    dates = dict.fromkeys(one.created_at[:10] for one in (first, *others))
    told = [
        f"- command: {markdown.code(' '.join(('python', *command)))}",
        f"- date: {', '.join(dates)}",
        f"- machine: {markdown.escape(markdown.machine(first))}",
    ]
    return [*told, *(f"- {markdown.escape(markdown.software_line(one))}" for one in (first, *others))]


def _totals(compared: Comparisons) -> list[str]:
    """The geometric mean of the ratio of two releases, of all cases that both measured."""
    rows = []
    for (base, candidate), comparison in compared.items():
        for metric in OF_MEANS:
            by_axes: dict[str, list[float]] = {}
            for one in comparison.findings:
                if one.metric is metric and one.ratio.value > 0:
                    by_axes.setdefault(f"{one.case.mode} {one.case.axes_label()}", []).append(one.ratio.value)
            for axes, ratios in sorted(by_axes.items()):
                mean = _estimate(geomean([[ratio] for ratio in ratios]))
                rows.append((f"{base} to {candidate}", NAMES[metric], axes, mean, len(ratios)))
    headings = ("releases", "figure", "mode and backend", "geometric mean of the ratio", "cases")
    table = markdown.table(headings, [tuple(map(str, row)) for row in rows])
    words = (
        "Ratios are the newer release over the older one: below 1 is faster or less. "
        "A mean's interval (95%, Student's t) is over the models: what other models could have given."
    )
    return ["", words, "", *table]


def _changes(folder: Path, compared: Comparisons, pair: tuple[str, str], share: float) -> Iterator[str]:
    """What differs between two releases, with what the second measurement said of the large differences."""
    comparison, known = compared[pair], between(compared, pair, share)
    again: dict[tuple[Case, Metric], Finding] = {}
    if (confirmation := _confirmation(folder, *pair)).is_dir():
        second = compare_in_turns(read_run(confirmation / "base"), read_run(confirmation / "candidate"))
        again = {(one.case, one.metric): one for one in second.findings}
    rows = [
        (
            one.case.label(),
            NAMES[one.metric],
            value_text(one.metric, one.base),
            value_text(one.metric, one.candidate),
            _estimate(one.ratio),
            _again(one, again.get((one.case, one.metric)), known) if is_large(one, share) else "",
        )
        for one in sorted(comparison.findings, key=lambda each: -abs(math.log(each.ratio.value)))
        if one.is_notable
    ]
    headings = ("case", "figure", *pair, "ratio", f"{share:.0%} or more: measured again")
    yield from markdown.table(headings, rows) if rows else ["No figure differs by more than what its noise allows."]
    for change in comparison.changes:
        words = f"{change.case.label()}: {change.change}: {change.base} -> {change.candidate}"
        yield f"- {markdown.escape(words)}"


def _estimate(ratio: Estimate) -> str:
    return f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def _again(first: Finding, second: Finding | None, known: Mapping[Difference, tuple[str, str]]) -> str:
    """What the second measurement says of a difference."""
    if second is None:
        two = known.get((first.case, first.metric, first.verdict))
        return f"see {two[0]} to {two[1]}" if two else "was not measured again"
    return f"{_estimate(second.ratio)}: {'confirmed' if second.verdict is first.verdict else second.verdict}"


if __name__ == "__main__":
    main()
