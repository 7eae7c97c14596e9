"""How long a kept run would take with other rules of the scheduler: its cases again, on a fake clock.

    PYTHONPATH=.:tests/run:tests python benchmarks/replay.py docs/results/2026-11-25-h100-x2-pt2-parts/one [RUN ...]

Each case takes the time in each stage that its record has, without the time in which it was stopped, and needs the
device memory that it took. The scheduler is the real one, with a device like that of the record for each of `--lanes`.
One difference to reality: cores never run short, so that a run which is bound by its cores takes longer than this says.

The table has the time of the run, where cases lend device memory and where they do not; how many of them were alive at
once on average; and how many of these made headway, neither stopped nor waiting.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import fake_workers  # type: ignore[import-not-found]  # mypy does not read tests
import msgspec
from fake_workers import FakeWorkers, Script

from torchzoo.record import Measured, Record
from torchzoo.run import windows
from torchzoo.run.lanes import CPU, Lane
from torchzoo.run.plan import PlannedCase
from torchzoo.run.room import CONTEXT_BYTES, least_bytes
from torchzoo.run.workers import Asks, Exited, Lends
from torchzoo.settings import Stage, StageLimits
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models

GIB = 2**30
#: The stages in which a case may be stopped. How long it was in each of them is not known.
MOVING = ("build", "prepare", "warm_up", "compile", "examine", "check")
#: So long does a compiled step take when it is compiled, and so much of a check is over when it compiles.
FIRST_STEP_S, CHECKED = 3.0, 0.25


class Replayed(FakeWorkers):  # type: ignore[misc]
    """Notes how many workers are alive, and how many of them make headway."""

    def __init__(self, scripts: dict[str, list[Script]]) -> None:
        super().__init__(scripts)
        self.available_bytes = 256 * GIB
        self.worker_s: Counter[str] = Counter()

    def wait(self, timeout_s: float) -> list[tuple[int, object]]:
        began_s, alive, stopped = self.now_s, set(self.left), self.paused | self.waiting
        messages: list[tuple[int, object]] = super().wait(timeout_s + 1e-6)  # the fake clock shall not stand still
        self.worker_s["alive"] += (self.now_s - began_s) * len(alive)
        self.worker_s["moving"] += (self.now_s - began_s) * len(alive - stopped)
        return messages


def script(record: Record, measured: Measured, planned: PlannedCase, *, lends: bool) -> Script:
    """What the worker of this case sends, and after how many seconds each."""
    seconds = defaultdict(float, measured.stage_seconds)
    moving_s = sum(seconds[stage] for stage in MOVING)
    for stage in MOVING:
        seconds[stage] *= max(0.0, 1 - record.paused_s / moving_s)
    peak_bytes = max(variant.memory.device_process_bytes or 0 for variant in measured.variants.values())
    lent = Lends(held_bytes=round(least_bytes(planned) - CONTEXT_BYTES), peak_bytes=max(0, peak_bytes - CONTEXT_BYTES))
    step_s = min(FIRST_STEP_S, 0.2 * seconds["compile"])
    compiles: Script = [(seconds["warm_up"], lent)]
    if seconds["compile"]:
        compiled_s = seconds["compile"] - step_s
        compiles = [(seconds["warm_up"], Stage.COMPILE), (0.0, lent), (compiled_s, Asks()), (step_s, lent)]
    measures = [
        (0.0, Stage.WAIT),
        (0.0, Stage.MEASURE),
        (seconds["measure"], lent),
        (0.0, Stage.EXAMINE),
        (0.0, Asks()),
    ]
    check: Script = []
    if measured.check is not None:
        check = [(seconds["examine"], Stage.HOLD), (0.0, Stage.CHECK)]
        seconds["examine"] = 0.0
    if seconds["check"] > seconds["compile"] / 2:  # it compiles once more
        began_s = CHECKED * seconds["check"]
        check += [(began_s, lent), (seconds["check"] - began_s - step_s, Asks())]
        seconds["check"] = step_s
    prepares = [(0.0, Stage.BUILD), (seconds["build"] + seconds["prepare"], Stage.WARM_UP)]
    ends = [(seconds["examine"] + seconds["check"], measured), (0.0, Exited(0))]
    found: Script = [*prepares, *compiles, *measures, *check, *ends]
    return found if lends else without_loans(found)


def without_loans(found: Script) -> Script:
    """The same times in the same stages, and no word of memory."""
    kept: Script = []
    spent_s = 0.0
    for after_s, message in found:
        spent_s += after_s
        if not isinstance(message, (Lends, Asks)):
            kept.append((spent_s, message))
            spent_s = 0.0
    return kept


def replay(records: Sequence[tuple[Record, Measured]], lanes: int, memory_gib: float, jobs: int, *, lends: bool) -> str:
    """A row of the table."""
    models = find_models()
    scripts: dict[str, list[Script]] = {}
    plan = []
    for number, (record, measured) in enumerate(records):
        name = f"{record.case.model} {number}"
        spec = msgspec.structs.replace(models.spec(record.case.model), name=name)
        planned = PlannedCase(case=msgspec.structs.replace(record.case, model=name, device="cuda"), spec=spec)
        scripts[name] = [script(record, measured, planned, lends=lends)]
        plan.append(planned)
    workers = Replayed(scripts)
    devices = [
        Lane(device=f"cuda:{index}", cores=(index,), memory_bytes=round(memory_gib * GIB)) for index in range(lanes)
    ]
    outcomes = [one.outcome for one in fake_workers.scheduler(workers, jobs, tuple(devices)).run(tuple(plan))]
    assert all(isinstance(outcome, Measured) for outcome in outcomes), "a case of a replay failed"
    alive, moving = (workers.worker_s[what] / workers.now_s for what in ("alive", "moving"))
    return f"| {'yes' if lends else 'no'} | {workers.now_s:.0f} s | {alive:.1f} | {moving:.1f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a kept run on accelerators")
    parser.add_argument("--lanes", type=int, default=2, metavar="N", help="devices (default: 2)")
    parser.add_argument("--memory", type=float, default=79.0, metavar="GIB", help="of each device (default: 79)")
    parser.add_argument("--jobs", type=int, default=32, metavar="N", help="workers that prepare at once (default: 32)")
    parser.add_argument("--ready", type=int, metavar="N", help="cases that a lane has ready when an epoch begins")
    parser.add_argument("--patience", type=float, metavar="S", help="how long the first of them waits for others")
    arguments = parser.parse_args()
    windows.READY_PER_LANE = arguments.ready or windows.READY_PER_LANE
    windows.PATIENCE_S = arguments.patience or windows.PATIENCE_S
    fake_workers.LIMITS = StageLimits()
    found = [record for run in arguments.runs for record in read_run(run).records]
    records = [(one, one.outcome) for one in found if isinstance(one.outcome, Measured) and one.case.device_type != CPU]
    if not records:
        parser.error("these runs have no measured case on an accelerator")
    print(f"{len(records)} cases\n\n| lends | time | alive | make headway |\n| --- | --- | --- | --- |")
    for lends in (False, True):
        print(replay(records, arguments.lanes, arguments.memory, arguments.jobs, lends=lends), flush=True)


if __name__ == "__main__":
    main()
