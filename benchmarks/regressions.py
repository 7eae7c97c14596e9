"""Whether `torchzoo compare` finds regressions among real noise, and only those.

    python benchmarks/regressions.py -d cuda -o /tmp/regressions
    python benchmarks/regressions.py -d cpu --sessions 2 --repeats 4 --draw 3 -o /tmp/regressions
    python benchmarks/regressions.py --runs runs/one runs/two --host-bound --plant 3 --draw 5 --trials 100

Measures twenty cases (ten models in both modes) in several sessions: independent runs of `run.py --repeats N`, one
after the other, so that what differs between processes and what drifts between runs are both real. A session that is in
the folder already is read, not run again. With `--runs`, kept runs take the place of the sessions, such as two of a
whole suite: then each trial draws its twenty cases from all that these have measured.

Each trial takes two different runs as base and candidate, draws `--draw` of the processes of each case from each, and
compares them as `torchzoo compare` does by default (latency, the time over eager's where the host matters, and the
host's work). In a planted trial the times of three cases of the candidate, drawn at random, are multiplied first, by
1.10 (`--plant 3`: by 1.03), those of the host with them: a slow-down of exactly 10% under the noise as it was measured.
Where a backend was measured beside eager,
eager's samples stay as they are. Found exactly: these three are slower, by one metric at least, and nothing else is
either slower or faster. Without a plant any such verdict is a false alarm. Trials share the same recorded processes,
so they are not independent of each other.
"""

from __future__ import annotations

import argparse
import itertools
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec

from torchzoo.analysis.bound import Bound
from torchzoo.analysis.cases import by_case
from torchzoo.analysis.compare import RunComparison, compare_runs
from torchzoo.analysis.judge import Verdict
from torchzoo.analysis.run_figures import Metric, shown_variant
from torchzoo.case import Case
from torchzoo.record import Block, Measured, Record
from torchzoo.report.noise import noise_of
from torchzoo.report.summary import counts
from torchzoo.report.units import least_differences
from torchzoo.store import Run, read_run

ROOT = Path(__file__).resolve().parent.parent
PLANTED_CASES = 3
CASES = 20

#: Steps of some milliseconds: on an H200 at the default batches, bound by the device; on a CPU at the smoke batches.
ON_DEVICE = (
    "alexnet BERT_pytorch nanogpt_shakespeare nvidia_deeprecommender pytorch_unet timm_resnest timm_resnet18 "
    "timm_vision_transformer timm_vovnet vgg16"
)
ON_CPU = (
    "lennard_jones soft_actor_critic phlippe_resnet phlippe_densenet squeezenet1_1 shufflenet_v2_x1_0 resnet18 "
    "mnasnet1_0 tts_angular functorch_dp_cifar10"
)


def sessions(arguments: argparse.Namespace) -> Iterator[Run]:
    """The runs that trials draw from: kept ones, or sessions."""
    if arguments.runs:
        yield from map(read_run, arguments.runs)
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    for number in range(1, arguments.sessions + 1):
        yield session(arguments.output / f"session-{number}", arguments)


def session(folder: Path, arguments: argparse.Namespace) -> Run:
    """Measure all cases `--repeats` times, or read what was measured before."""
    if not (folder / "run.json").exists():
        models = arguments.models or (ON_CPU if arguments.device == "cpu" else ON_DEVICE).split()
        command = [sys.executable, str(ROOT / "run.py"), *models, "-t", "train,eval", "-d", arguments.device]
        command += ["--repeats", str(arguments.repeats), "--time-limit", str(arguments.time_limit)]
        command += ["--backend", arguments.backend]
        command += ["--bs", "smoke", "--threads", "1"] if arguments.device == "cpu" else ["--bs", "default"]
        command += ["--jobs", str(arguments.jobs)] if arguments.jobs else []
        done = subprocess.run([*command, "-q", "-o", str(folder)], check=False, capture_output=True, text=True)
        if done.returncode > 1:
            sys.exit(done.stderr)
    return read_run(folder)


def drawn(
    run: Run, cases: list[Case], draw: int, generator: random.Random, planted: list[Case], factor: float = 1.0
) -> Run:
    """The run with `draw` processes of each case, those of `planted` slowed down by a factor."""
    groups = by_case(run.records)
    kept = []
    for case in cases:
        for repeat, record in enumerate(generator.sample(groups[case], draw)):
            outcome = slowed(record, factor) if case in planted else record.outcome
            kept.append(
                msgspec.structs.replace(record, case=msgspec.structs.replace(case, repeat=repeat), outcome=outcome)
            )
    manifest = msgspec.structs.replace(run.manifest, cases=tuple(record.case for record in kept))
    return msgspec.structs.replace(run, manifest=manifest, records=tuple(kept))


def slowed(record: Record, factor: float) -> Measured:
    measured = record.outcome
    assert isinstance(measured, Measured)
    shown = shown_variant(measured)
    blocks = tuple(_slowed(block, factor) if block.variant == shown else block for block in measured.blocks)
    return msgspec.structs.replace(measured, blocks=blocks)


def _slowed(block: Block, factor: float) -> Block:
    cpu_s = None if block.cpu_s is None else block.cpu_s * factor
    return Block(block.variant, tuple(s * factor for s in block.samples_s), block.issued_s, cpu_s, block.reference_s)


def usable(runs: list[Run], draw: int, *, host_bound: bool) -> list[Case]:
    """Cases that every run has measured by enough processes."""
    groups = [by_case(r for r in run.records if isinstance(r.outcome, Measured)) for run in runs]
    cases = [case for case in groups[0] if all(len(group.get(case, [])) >= draw for group in groups)]
    if host_bound:
        bound = [{noise.case: noise.bound for noise in noise_of(run)} for run in runs]
        cases = [case for case in cases if all(one[case] is Bound.HOST for one in bound)]
    return cases


def trial(runs: list[Run], cases: list[Case], draw: int, seed: int, factor: float) -> tuple[RunComparison, set[Case]]:
    """Two runs compared; with a factor other than 1, three of their cases are slowed down."""
    generator = random.Random(seed)
    base, candidate = generator.sample(runs, 2)
    drawn_cases = generator.sample(cases, CASES) if len(cases) > CASES else cases
    planted = generator.sample(drawn_cases, PLANTED_CASES) if factor != 1 else []
    comparison = compare_runs(
        drawn(base, drawn_cases, draw, generator, []),
        drawn(candidate, drawn_cases, draw, generator, planted, factor),
        metrics=[Metric.LATENCY, Metric.OVER_EAGER, Metric.HOST_TIME],
    )
    return comparison, set(planted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="(default: ten, by the device)")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--sessions", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="processes a case in each session (default: 5)")
    parser.add_argument("--draw", type=int, default=4, help="of these, in a trial (default: 4)")
    parser.add_argument("--trials", type=int, default=20, help="with a plant, and without (default: 20)")
    parser.add_argument("--time-limit", type=float, default=1.0, help="of timing a process, in seconds (default: 1)")
    parser.add_argument("-j", "--jobs", type=int)
    parser.add_argument("--plant", type=float, default=10.0, metavar="PERCENT", help="(default: 10)")
    parser.add_argument("--runs", type=Path, nargs="+", default=[], metavar="RUN", help="kept runs instead of sessions")
    parser.add_argument("--host-bound", action="store_true", help="only cases that the host bounds in every run")
    parser.add_argument("-o", "--output", type=Path, help="the sessions' folder")
    arguments = parser.parse_args()
    if bool(arguments.runs) == bool(arguments.output):
        parser.error("give -o FOLDER to measure, or --runs RUN RUN for what is there")

    runs = []
    for number, run in enumerate(sessions(arguments), 1):
        print(f"session {number}: {counts(run)}", flush=True)
        runs.append(run)
    environment = runs[0].manifest.environment
    devices = {r.outcome.device_name for run in runs for r in run.records if isinstance(r.outcome, Measured)}
    print(f"{', '.join(sorted(devices))}, torch {environment.torch}")
    cases = usable(runs, arguments.draw, host_bound=arguments.host_bound)
    if len(cases) < CASES:
        print(f"only {len(cases)} such cases were measured often enough in every session")
    if len(cases) <= PLANTED_CASES or len(runs) < 2:
        sys.exit("too few cases or sessions for a trial")
    show_noise(runs, cases)
    show_trials(runs, cases, arguments)


def show_noise(runs: list[Run], cases: list[Case]) -> None:
    """How much processes of a session differ, and the sessions."""
    for number, run in enumerate(runs, 1):
        noises = [one for one in noise_of(run) if one.case in cases]
        spreads = [one.between for one in noises if one.between is not None]
        bound = sum(one.bound == "device" for one in noises)
        print(
            f"session {number}: {bound} of {len(noises)} cases bound by the device; standard deviation between "
            f"processes {100 * median(spreads):.2f}% (median of cases), {100 * max(spreads):.2f}% (worst)"
        )
        seen = [one.sees_over_eager for one in noises if one.sees_over_eager is not None]
        if seen:
            print(f"  of the time over eager's could be found: {least_differences(seen)}")
    for (one, base), (other, candidate) in itertools.combinations(enumerate(runs, 1), 2):
        before = {noise.case: noise.latency_s for noise in noise_of(base)}
        after = {noise.case: noise.latency_s for noise in noise_of(candidate)}
        apart = [abs(after[case] / before[case] - 1) for case in cases]
        far = f"{100 * median(apart):.2f}% apart (median of cases), {100 * max(apart):.2f}% (worst)"
        print(f"sessions {one} and {other}: {far}")


def show_trials(runs: list[Run], cases: list[Case], arguments: argparse.Namespace) -> None:
    exact, missed, alarms, states = 0, 0, 0, Counter[str]()
    count = min(len(cases), CASES)
    for seed in range(arguments.trials):
        comparison, planted = trial(runs, cases, arguments.draw, seed, 1 + arguments.plant / 100)
        slower = {one.case for one in comparison.findings if one.verdict is Verdict.SLOWER}
        wrong = {one.case for one in comparison.findings if one.is_notable and one.case not in planted}
        exact += slower == planted and not wrong
        missed += len(planted - slower)
        alarms += len(wrong)
        states.update(one.verdict for one in comparison.findings if one.case not in planted)
    what = f"{arguments.plant:g}% planted in {PLANTED_CASES} of {count} cases"
    print(
        f"{what}, {arguments.draw} processes a side: found exactly in {exact} of {arguments.trials} trials "
        f"({missed} of {PLANTED_CASES * arguments.trials} plants missed, {alarms} false alarms; the other cases: "
        f"{told(states)})"
    )
    false_alarms, states = 0, Counter[str]()
    for seed in range(arguments.trials):
        comparison, _ = trial(runs, cases, arguments.draw, 1000 + seed, 1.0)
        states.update(one.verdict for one in comparison.findings)
        false_alarms += any(one.is_notable for one in comparison.findings)
    print(f"no plant: a false alarm in {false_alarms} of {arguments.trials} trials of {count} cases ({told(states)})")


def told(states: Counter[str]) -> str:
    return ", ".join(f"{count} {state}" for state, count in states.most_common())


if __name__ == "__main__":
    main()
