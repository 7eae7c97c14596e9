"""How often an A/B of one software with itself raises an alarm.

    python benchmarks/false_alarms.py -d cpu -o /tmp/false-alarms --rounds 10
    python benchmarks/false_alarms.py --count /tmp/false-alarms
    python benchmarks/false_alarms.py --judge /tmp/false-alarms
    python benchmarks/false_alarms.py --independence /tmp/false-alarms

Each round is one `torchzoo ab` of this environment with itself (`--repeats 5`, the setting TORCHZOO_SIDE differs and
nothing reads it), over some small models in both modes. A case of a round is one comparison. It is an alarm if a
verdict says that one of its figures differs. Each round is a line of `rounds.jsonl` in the folder, and lines that are
there count, too: an hour today and an hour tomorrow add up. `--judge` judges again all rounds that the folder holds, by
today's code. `--independence` asks whether the processes of a side are independent: for each case, F is the variance of
the rounds' ratios over that which the pairs within the rounds lead one to expect, and should be near 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from statistics import fmean, median

import msgspec

from torchzoo.analysis.compare import Side, compare_in_turns
from torchzoo.analysis.judge import LogRatio, pair_ratio
from torchzoo.case import Case
from torchzoo.history.nights import is_measured
from torchzoo.record import EAGER_VARIANT, Measured
from torchzoo.stats import latency_s
from torchzoo.store import read_run

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = "rounds.jsonl"
MODELS = (
    "lennard_jones soft_actor_critic phlippe_resnet squeezenet1_1 shufflenet_v2_x1_0 resnet18 mnasnet1_0 tts_angular "
    "functorch_dp_cifar10 drq maml_omniglot nanogpt_shakespeare"
)


def main() -> None:
    """Measure the rounds and count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS.split())
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=0.5)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--count", type=Path, metavar="DIR", help="count what is there, and measure nothing")
    parser.add_argument("--judge", type=Path, metavar="DIR", help="judge again what is there, and measure nothing")
    parser.add_argument("--independence", type=Path, metavar="DIR", help="are a side's processes independent?")
    arguments = parser.parse_args()
    folder: Path | None = arguments.count or arguments.judge or arguments.independence or arguments.output
    if folder is None:
        parser.error("name a folder: -o DIR, --count DIR, --judge DIR or --independence DIR")
    if arguments.independence:
        print("\n".join(independence(folder)))
        return
    if arguments.judge:
        judge_again(folder)
    elif arguments.count is None:
        for _ in range(arguments.rounds):
            place = folder / f"round-{len(list(folder.glob('round-*'))) + 1:03d}"
            measure(arguments, place)
            with (folder / ROUNDS).open("ab") as file:
                file.write(msgspec.json.encode(judged(place)) + b"\n")
            print("\n".join(counts(folder)), flush=True)
        return
    print("\n".join(counts(folder)))


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """One round."""
    command = [sys.executable, "-m", "torchzoo", "ab", "--base", "TORCHZOO_SIDE=a", "--candidate", "TORCHZOO_SIDE=b"]
    command += [*arguments.models, "-t", "train,eval", "-d", arguments.device, "--repeats", "5", "-q"]
    command += ["--time-limit", str(arguments.time_limit), "-o", str(folder)]
    command += ["--bs", "smoke", "--threads", "1"] if arguments.device == "cpu" else ["--bs", "default"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-2000:]}")


def whole_rounds(folder: Path) -> list[Path]:
    """The rounds in the folder, or in folders of it, of which all cases were measured."""
    return [place for place in sorted(folder.glob("**/round-*")) if all(is_measured(place / side) for side in Side)]


def independence(folder: Path) -> list[str]:
    """F of each case's latency in eager over all rounds, the largest first."""
    ratios = defaultdict[Case, list[LogRatio]](list)
    places = whole_rounds(folder)
    for place in places:
        sides = [_medians(place / side) for side in Side]
        for case in set.intersection(*map(set, sides)):
            base, candidate = ([value for _, value in sorted(side[case])] for side in sides)
            if len(base) == len(candidate) > 1:
                ratios[case].append(pair_ratio(base, candidate))
    found = {case: fmean(r.value**2 for r in some) / fmean(r.error**2 for r in some) for case, some in ratios.items()}
    lines = [f"{case.label()}: F {f:.2f}" for case, f in sorted(found.items(), key=lambda item: -item[1])]
    return [*lines, f"{len(places)} rounds, {len(found)} cases: the median F is {median(found.values()):.2f}"]


def _medians(run: Path) -> dict[Case, list[tuple[int, float]]]:
    """Of each case the repeats, and what each of them took, in seconds."""
    found = defaultdict[Case, list[tuple[int, float]]](list)
    for record in read_run(run).records:
        if isinstance(record.outcome, Measured):
            value = latency_s(record.outcome.blocks, EAGER_VARIANT).value
            found[record.case.first_repeat()].append((record.case.repeat, value))
    return found


def judge_again(folder: Path) -> None:
    """Write the lines of all rounds in the folder anew."""
    places = whole_rounds(folder)
    lines = folder / ROUNDS
    if lines.exists() and len(lines.read_bytes().splitlines()) > len(places):
        raise SystemExit(f"{lines} has rounds whose records are not in {folder}: they can't be judged again")
    lines.write_bytes(b"".join(msgspec.json.encode(judged(place)) + b"\n" for place in places))


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What one round found."""

    date: str
    machine: str
    torch: str
    torchzoo: str
    comparisons: int
    verdicts: dict[str, int]  # how many figures had each, by `metric verdict`
    alarms: tuple[str, ...]


def judged(folder: Path) -> Round:
    """The verdicts of a round that is over."""
    base, candidate = (read_run(folder / side) for side in (Side.BASE, Side.CANDIDATE))
    comparison = compare_in_turns(base, candidate)
    verdicts = Counter(f"{finding.metric} {finding.verdict}" for finding in comparison.findings)
    alarms = [
        f"{finding.case.label()}: {finding.metric} {finding.verdict}, {finding.ratio.value:.3f}"
        for finding in comparison.findings
        if finding.is_notable
    ]
    alarms += [f"{change.case.label()}: {change.change}" for change in comparison.changes]
    environment = base.manifest.environment
    return Round(
        date=base.manifest.created_at[:10],
        machine=f"{environment.cpu_usable} cores of {environment.cpu}",
        torch=environment.torch,
        torchzoo=environment.torchzoo_commit or environment.torchzoo,
        comparisons=len({finding.case for finding in comparison.findings}),
        verdicts=dict(sorted(verdicts.items())),
        alarms=tuple(alarms),
    )


def counts(folder: Path) -> list[str]:
    """How many comparisons there were in all rounds, and each alarm."""
    rounds = msgspec.json.Decoder(Round).decode_lines((folder / ROUNDS).read_bytes())
    verdicts = sum((Counter(one.verdicts) for one in rounds), Counter[str]())
    alarms = [f"  {one.date}: {alarm}" for one in rounds for alarm in one.alarms]
    shown = ", ".join(f"{verdict} {count}" for verdict, count in sorted(verdicts.items()))
    total = sum(one.comparisons for one in rounds)
    return [f"{total} comparisons of a case with itself, {len(alarms)} alarms ({shown})", *alarms]


if __name__ == "__main__":
    main()
