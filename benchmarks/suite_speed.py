"""How fast the suite runs: what the harness alone costs with fake workers, and what small models cost with real ones.

    python benchmarks/suite_speed.py
    python benchmarks/suite_speed.py resnet18 hf_Bert --options='-d cuda -t train,eval --backend inductor' --apart
    python benchmarks/suite_speed.py --against HEAD~20 --rounds 5
    python benchmarks/suite_speed.py --check

Fake workers answer at once, in the lines that a server would pass on. A plan goes through the scheduler, its measuring
windows and the store, on two lanes whose memory is full; the time is that of the runner. Real workers measure models by
`run.py`: cases a minute, share of the time in measuring windows, CPU time a case by stage. `outside the stages` is the
CPU time of the runner, the server, and the start and end of workers.

`--against` measures another checkout, or a commit in a temporary one, in turns with this one (A B B A). `--apart` also
runs each case by itself, in a fresh `run.py ... --exclusive`. `--check` is part of the gate. Its limits hardly depend
on the machine: the runner's time for a fake case in units of a reference work beside it, and the number of processes,
messages and files of real cases.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from torchzoo import stats
from torchzoo.case import Backend, Case, Domain, Mode
from torchzoo.cli import main as torchzoo
from torchzoo.files import to_json
from torchzoo.machine.limits import available_bytes
from torchzoo.record import BackToBack, Block, Compilation, Measured, Memory, Skipped, StopReason, VariantResult
from torchzoo.run import pool, protocol
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.workers import Exited, Message, Timed
from torchzoo.settings import Settings, Stage
from torchzoo.store import RunStore, read_run
from torchzoo.zoo.spec import ModelSpec

ROOT = Path(__file__).resolve().parent.parent
MODELS = ["lennard_jones", "soft_actor_critic"]
OPTIONS = "-t train,eval --backend inductor --bs smoke --check --time-limit 1"
FAKE_CASES, FAKE_LANES, FAKE_JOBS = 150, 2, 32

#: The most that the runner may take for a fake case, in units of the reference work: three times what it took when the
#: limit was set, since the machine and the version of Python matter. A sleep of 2 ms for each message adds ten.
MOST_UNITS = 5.0
ROUNDS_OF_CHECK = 5
#: What two eager cases ask of the server and write, one after the other.
CHECKED_RUN = ["lennard_jones", "soft_actor_critic", "-d", "cpu", "--bs", "smoke", "--exclusive", "--time-limit", "0.2"]
EXPECTED = {
    "requests Load": 1,
    "requests Start": 3 + 2,  # what the machine has, what is missing, how fast the host is; then the workers
    "requests Proceed": 2,
    "requests Kill": 3 + 2,
    "messages Said": 2 * 9,  # seven stages, what is timed, and the outcome
    "messages Ended": 2,
    "files of the run": 3 + 2,  # the manifest, the records, the lock; then the logs
    "files left in TMPDIR": 0,
}

Figures = dict[str, float]

# --- fake workers ---

STAGES_BEFORE = (Stage.IMPORT, Stage.BUILD, Stage.PREPARE, Stage.WARM_UP, Stage.COMPILE, Stage.WAIT)


class FakeWorkers:
    """Workers that have said all that they may say as soon as they are asked, in lines as a server passes them on."""

    def __init__(self, outcome: Measured) -> None:
        said = (Stage.MEASURE, Timed(outcome), Stage.EXAMINE, outcome)
        self._before = [protocol.encode(stage) for stage in STAGES_BEFORE]
        self._after = [protocol.encode(message) for message in said]
        self._unread: deque[bytes] = deque()

    def start(self, ticket: int, planned: PlannedCase, lane: Lane, log: Path) -> None:
        self._say(ticket, self._before)

    def proceed(self, ticket: int, stage: Stage, limit_s: float | None = None) -> None:
        self._say(ticket, self._after)
        self._unread.append(to_json(protocol.Ended(ticket=ticket, code=0)))

    def _say(self, ticket: int, lines: list[bytes]) -> None:
        self._unread += [b'{"type":"Said","ticket":%d,"line":%s}' % (ticket, line.strip()) for line in lines]

    def wait(self, timeout_s: float) -> list[tuple[int, Message]]:
        """Return one message: each turn of the scheduler has as little to do as with workers that take their time."""
        answer = protocol.answers.decode(self._unread.popleft())
        is_end = isinstance(answer, protocol.Ended)
        return [(answer.ticket, Exited(answer.code) if is_end else protocol.of_worker.decode(answer.line))]

    def pause(self, ticket: int) -> None: ...

    def resume(self, ticket: int) -> None: ...

    def write_stacks(self, ticket: int, log: Path) -> None: ...

    def kill(self, ticket: int) -> None: ...

    def host_available_bytes(self) -> int:
        available_bytes()  # takes its time, and depends on the machine
        return 2**40


def outcome() -> Measured:
    """The outcome of a compiled case, with as many samples as usual."""
    variant = VariantResult(
        first_step_s=0.5,
        first_step_cpu_s=0.4,
        warmup_s=(0.1,) * 3,
        memory=Memory(device_peak_allocated_bytes=2**30, host_peak_rss_bytes=2**30, host_uss_bytes=2**29),
        back_to_back=(BackToBack(30, 0.3),) * 6,
        result_is_finite=True,
        compilation=Compilation(graphs=2),
    )
    return Measured(
        blocks=tuple(Block(name, (0.001234567,) * 20) for name in ("eager", "candidate", "candidate", "eager") * 20),
        stop_reason=StopReason.CONVERGED,
        variants={"eager": variant, "candidate": variant},
        samples_per_step=4,
        sample_unit="samples",
        parameters=6,
        operator_dtypes={"float32": 3},
        precision_flags={},
        threads=2,
        device_name="a GPU",
        stage_seconds=dict.fromkeys(Stage, 1.0),
        stage_cpu_seconds=dict.fromkeys(Stage, 1.0),
    )


def fake_plan() -> tuple[PlannedCase, ...]:
    def spec(name: str) -> ModelSpec:
        return ModelSpec(
            name=name,
            folder=f"/nowhere/{name}",
            domain=Domain.OTHER,
            task="testing",
            paper="https://example.org",
            source="this benchmark",
            requirements=(),
            parameters=10**6,
            batch_size=dict.fromkeys((Mode.TRAIN, Mode.EVAL), 4),
            smoke_batch_size=2,
        )

    modes, backend = (Mode.TRAIN, Mode.EVAL), Backend("inductor")
    return tuple(
        PlannedCase(
            case=Case(model=f"model_{number}", mode=mode, device="cuda", backend=backend, batch_size=4),
            spec=spec(f"model_{number}"),
        )
        for number in range(FAKE_CASES // len(modes))
        for mode in modes
    )


def fake_s() -> tuple[float, float]:
    """Return the wall time and the CPU time of the runner for all fake cases. Records are in memory where possible."""
    plan, workers = fake_plan(), FakeWorkers(outcome())
    lanes = [
        Lane(device=f"cuda:{number}", cores=(2 * number, 2 * number + 1), memory_bytes=80 * 2**30)
        for number in range(FAKE_LANES)
    ]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder, RunStore(Path(folder) / "run") as store:
        scheduler = Scheduler(workers, lanes, Settings(jobs=FAKE_JOBS), log_path=lambda _: Path(os.devnull))
        began, cpu_began = time.perf_counter(), time.process_time()
        for record in scheduler.run(plan):
            assert isinstance(store.append(record).outcome, Measured)
        return time.perf_counter() - began, time.process_time() - cpu_began


def reference_s() -> float:
    """Return the wall time of as many units of a fixed work, of the kind that the runner does, as there are cases.

    A unit encodes an outcome and decodes it, ten times.
    """
    encoded, began = outcome(), time.perf_counter()
    for _ in range(10 * FAKE_CASES):
        protocol.of_worker.decode(protocol.encode(encoded))
    return time.perf_counter() - began


def fake() -> Figures:
    wall_s, cpu_s = fake_s()
    return {
        "fake workers: cases a minute": 60 * FAKE_CASES / wall_s,
        "fake workers: CPU time of the runner, ms a case": 1000 * cpu_s / FAKE_CASES,
    }


# --- real workers ---


def run_py(tree: Path, words: Sequence[str], folder: Path) -> tuple[float, float]:
    """Run the `run.py` of a checkout, and return its wall time and the CPU time of all its processes."""
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, str(tree / "run.py"), *words, "-q", "-o", str(folder)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(tree))
    if done.returncode > 1:
        sys.exit(f"{shlex.join(command)} failed: {done.stderr.strip()}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, cpu_s


def environment(tree: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(tree)}


def real(tree: Path, words: Sequence[str], folder: Path) -> Figures:
    from torchzoo.analysis.time_use import time_use  # other checkouts run this script without it

    wall_s, cpu_s = run_py(tree, words, folder)
    used = time_use(read_run(folder).records)
    if used is None or not used.counted:
        sys.exit(f"no case was measured: see {folder}")
    count, lanes = used.counted, max(1, len(used.windows_s))
    return {
        "real workers: cases a minute": 60 * count / used.wall_s,
        "real workers: whole command, s a case": wall_s / count,
        "real workers: share of the time in windows, %": 100 * sum(used.windows_s.values()) / (used.wall_s * lanes),
        "real workers: CPU time, s a case": cpu_s / count,
        **{f"real workers: CPU time in {stage}, s a case": spent_s / count for stage, spent_s in used.cpu_s.items()},
        "real workers: CPU time outside the stages, s a case": (cpu_s - sum(used.cpu_s.values())) / count,
    }


def run_apart(together: Path, options: Sequence[str], folder: Path) -> float:
    """Run each case of a run by itself, and keep the records as one run. Return the sum of the wall times."""
    run, total_s = read_run(together), 0.0
    with RunStore(folder) as store:
        store.begin(run.manifest)
        for number, record in enumerate(run.records):
            case, place = record.case, folder / f"{number:03d}"
            if not isinstance(record.outcome, Skipped):
                alone = [case.model, *options, "-t", case.mode, "--backend", str(case.backend), "--exclusive"]
                total_s += run_py(ROOT, alone, place)[0]
                for found in read_run(place).records:
                    store.append(found)
    return total_s


# --- two checkouts ---


@contextlib.contextmanager
def checkout(name: str) -> Iterator[Path]:
    """The checkout at a path, or a temporary one of a commit."""
    if Path(name).is_dir():
        yield Path(name).resolve()
        return
    with tempfile.TemporaryDirectory() as folder:
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", f"{folder}/tree", name], check=True)
        try:
            yield Path(folder) / "tree"
        finally:
            subprocess.run([*git, "remove", "--force", f"{folder}/tree"], check=True)


def figures_of(tree: Path, words: Sequence[str]) -> Figures:
    """Measure a checkout, each time in new processes."""
    command = [sys.executable, __file__, "--fake"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, env=environment(tree))
    with tempfile.TemporaryDirectory() as folder:
        return {**json.loads(done.stdout), **real(tree, words, Path(folder) / "run")}


def compare(tree: Path, words: Sequence[str], rounds: int) -> None:
    """Measure this checkout (A) and another one (B) in turns A B B A, and print both and the ratio A / B."""
    ours: list[Figures] = []
    others: list[Figures] = []
    for number in range(rounds):
        for place in (ROOT, tree, tree, ROOT):
            (ours if place == ROOT else others).append(figures_of(place, words))
        print(f"round {number + 1} of {rounds} is done", file=sys.stderr, flush=True)
    print(f"{'':58} {'here':>10} {'there':>10}   here / there")
    for name in ours[0]:
        values = [[one.get(name, 0.0) for one in some] for some in (ours, others)]
        sums = [[a + b for a, b in zip(some[::2], some[1::2], strict=True)] for some in values]
        here, there = (sum(some) / len(some) for some in values)
        ratio = "-"
        if min(sums[0] + sums[1]) > 0:
            found = stats.processes_estimate([[a / b] for a, b in zip(*sums, strict=True)])
            ratio = f"{found.value:.3f}" + (f" [{found.low:.3f}, {found.high:.3f}]" if found.has_interval else "")
        print(f"{name:58} {here:10.3g} {there:10.3g}   {ratio}")


# --- the check of the gate ---


def counts_of_a_run() -> Counter[str]:
    """Run two eager cases, and count requests to the server, messages of workers, and files."""
    found: Counter[str] = Counter()
    send, message = pool.Pool._send, pool._message

    def counted_send(self: pool.Pool, request: Any) -> None:
        found[f"requests {type(request).__name__}"] += 1
        send(self, request)

    def counted_message(answer: Any) -> Message:
        found[f"messages {type(answer).__name__}"] += 1
        return message(answer)

    with tempfile.TemporaryDirectory() as folder:
        scratch, run = Path(folder) / "scratch", Path(folder) / "run"
        scratch.mkdir()
        with (
            mock.patch.object(pool.Pool, "_send", counted_send),
            mock.patch.object(pool, "_message", counted_message),
            mock.patch.dict(os.environ, {"TMPDIR": str(scratch)}),
            mock.patch.object(tempfile, "tempdir", str(scratch)),
        ):
            shown = io.StringIO()
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                status = torchzoo(["run", *CHECKED_RUN, "-q", "-o", str(run)])
            if status != 0:
                sys.exit(f"the run of two small models failed: {shown.getvalue()}")
        found["files of the run"] = sum(path.is_file() for path in run.rglob("*"))
        found["files left in TMPDIR"] = sum(path.is_file() for path in scratch.rglob("*"))
    return found


def check() -> int:
    """Return 1 if the harness takes more than the limits, else 0."""
    units = median(fake_s()[0] / reference_s() for _ in range(ROUNDS_OF_CHECK))  # in turns: a busy machine slows both
    problems = []
    print(f"the runner takes {units:.1f} units of the reference work for a fake case (limit: {MOST_UNITS:g})")
    if units > MOST_UNITS:
        problems.append(f"the runner takes {units:.1f} units for a fake case, and {MOST_UNITS:g} are allowed")
    found = counts_of_a_run()
    for name in sorted(EXPECTED.keys() | found.keys()):
        print(f"{name}: {found[name]}")
        if found[name] != EXPECTED.get(name, 0):
            problems.append(f"{name}: {found[name]} for two cases, where {EXPECTED.get(name, 0)} are expected")
    for problem in problems:
        print(f"SLOWER: {problem}; if that is meant, change the limit in {Path(__file__).name}", file=sys.stderr)
    return int(bool(problems))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", default=MODELS)
    parser.add_argument("--options", default=OPTIONS, help=f"other words for run.py (default: {OPTIONS})")
    parser.add_argument("--against", metavar="TREE", help="another checkout, or a commit")
    parser.add_argument("--rounds", type=int, default=5, help="of --against (default: 5)")
    parser.add_argument("--apart", action="store_true", help="run each case by itself, too")
    parser.add_argument("-o", "--output", type=Path, help="keep the runs in this folder")
    parser.add_argument("--check", action="store_true", help="compare with the limits of this file")
    parser.add_argument("--fake", action="store_true", help="only the fake workers, as JSON")
    arguments = parser.parse_args()
    if arguments.fake:
        print(json.dumps(fake()))
        return 0
    if arguments.check:
        return check()
    options = shlex.split(arguments.options)
    words = [*arguments.models, *options]
    if arguments.against:
        with checkout(arguments.against) as tree:
            compare(tree, words, arguments.rounds)
        return 0
    with tempfile.TemporaryDirectory() as scratch:
        output = arguments.output or Path(scratch)
        figures = {**fake(), **real(ROOT, words, output / "together")}
        for name, value in figures.items():
            print(f"{name:58} {value:10.3g}")
        if arguments.apart:
            apart_s = run_apart(output / "together", options, output / "apart")
            print(f"each case by itself: {apart_s:.0f} s")
            print(f"whether both measure the same: torchzoo compare {output / 'together'} {output / 'apart'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
