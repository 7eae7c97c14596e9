"""A soak: the smoke suite, over and over, while random faults hit the runner, its processes and its files.

    python benchmarks/soak.py [--minutes 60] [--faults 1000] [--lanes 3] [--seed 0] [-o soak.json]

Each lane runs the smoke suite on the CPU into a folder. While it runs, processes are killed or stopped, the runner is
ended, logs vanish. When it has ended, it is resumed, until each case has its row; then a new folder begins. After each
end these promises of the README are checked:

- a row that was there once is there still, as it was (`lost`), and no case has two (`doubled`);
- no process of the run is left after 20 s (`left`);
- the runner has printed no traceback (`tracebacks`);
- it ended as it was told to, or with a status of its own (`strange`). Status 2 is right where the processes that it
  starts with were killed: it says so in one line.

Temporary files that are left are counted. Where the runner and the server were both killed, nobody removes them.

Exit status: 0 if nothing was broken, otherwise 1.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import psutil

from torchzoo.case import Case
from torchzoo.errors import attempt
from torchzoo.record import Measured, Record, decode_record

ROOT = Path(__file__).resolve().parent.parent
MARK = "TORCHZOO_SOAK"
RUN = ("--suite", "smoke", "-t", "train,eval", "-d", "cpu", "--bs", "smoke", "--threads", "1", "--time-limit", "0.2")
CASES = 12
LEFT_AFTER_S = 20.0
PYTHON_STARTS_S = 0.3  # Ctrl-C before torchzoo's first line can end with Python's own traceback, as the README says
#: What the runner says where the faults hit those processes again and again.
KILLED_AT_START = ("importing torch ends the process", "died 3 times", "was killed 3 times in a row")
ENDED_BY = {
    signal.SIGINT: (130, -signal.SIGINT),
    signal.SIGTERM: (130, -signal.SIGTERM),
    signal.SIGHUP: (130, -signal.SIGHUP),
}


@dataclass
class Tally:
    """What happened on all lanes."""

    faults: collections.Counter[str] = field(default_factory=collections.Counter)
    broken: list[str] = field(default_factory=list)
    runs: int = 0
    folders: int = 0
    temporary: collections.Counter[str] = field(default_factory=collections.Counter)
    rows: int = 0
    measured: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def fault(self, name: str) -> None:
        with self.lock:
            self.faults[name] += 1

    def breaks(self, promise: str, what: str) -> None:
        with self.lock:
            self.broken.append(f"{promise}: {what}")
            print(f"BROKEN {promise}: {what}", file=sys.stderr, flush=True)


class Lane:
    """One run at a time, with its own temporary folder and its own mark in the environment of all its processes."""

    def __init__(self, work: Path, seed: int, tally: Tally, is_over: Callable[[], bool]) -> None:
        self.work = work
        self.random = random.Random(seed)
        self.tally = tally
        self.is_over = is_over
        self.mark = uuid.uuid4().hex
        self.temporary = work / "t"
        self.temporary.mkdir(parents=True)
        self.seen: dict[Case, bytes] = {}
        self.faults: list[str] = []  # since the runner was started
        self.began_s = 0.0

    def _note(self, fault: str) -> None:
        self.tally.fault(fault)
        self.faults.append(f"{time.monotonic() - self.began_s:.1f} s: {fault}")

    def _breaks(self, promise: str, what: str) -> None:
        self.tally.breaks(promise, f"{what}\n    after {'; '.join(self.faults)}")

    def work_through(self) -> None:
        number = 0
        while not self.is_over():
            folder = self.work / f"run{number}"
            self.seen = {}
            begun = False
            while not self.is_over() and len(self.seen) < CASES:
                begun = self.run_once(folder, resume=begun)
            self.tally.folders += 1
            shutil.rmtree(folder, ignore_errors=True)
            number += 1

    def run_once(self, folder: Path, *, resume: bool) -> bool:
        """One start of the runner, its faults and its end. Returns whether there is a run that can be resumed."""
        command = [sys.executable, str(ROOT / "run.py")]
        command += ["--resume", str(folder), "-q"] if resume else [*RUN, "-q", "-o", str(folder)]
        environment = {**os.environ, MARK: self.mark, "TMPDIR": str(self.temporary)}
        errors = self.work / "stderr"
        with errors.open("wb") as stderr:
            runner = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment, start_new_session=True
            )
        self.tally.runs += 1
        self.began_s, self.faults = time.monotonic(), []
        sent = self._disturb(runner, folder)
        status = runner.wait()
        self._check_end(status, sent, errors.read_text(errors="replace"), folder)
        self._check_left()
        self._check_rows(folder)
        if (folder / "records.jsonl").exists() and self.random.random() < 0.3:
            self._damage(folder)
        return (folder / "run.json").exists()

    def _disturb(self, runner: subprocess.Popen[bytes], folder: Path) -> list[signal.Signals]:
        """Faults at random moments until the runner has ended. Returns the signals that it was sent."""
        sent: list[signal.Signals] = []
        time.sleep(PYTHON_STARTS_S)
        while runner.poll() is None:
            try:
                runner.wait(self.random.expovariate(1 / 4.0))
            except subprocess.TimeoutExpired:
                pass
            else:
                break
            if self.is_over():
                runner.terminate()
                sent.append(signal.SIGTERM)
                break
            sent += self._one_fault(runner, folder)
        return sent

    def _one_fault(self, runner: subprocess.Popen[bytes], folder: Path) -> list[signal.Signals]:
        kind = self.random.choices(("runner", "inner", "files"), (2, 6, 1))[0]
        if kind == "runner":
            number = self.random.choice((signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP, signal.SIGINT))
            whole = number is signal.SIGINT and self.random.random() < 0.5
            self._note(f"runner {number.name}{' to its group' if whole else ''}")
            (os.killpg if whole else os.kill)(runner.pid, number)
            return [number]
        if kind == "inner":
            processes = list(self._processes(but=runner.pid))
            workers = [process for process in processes if _role(process) == "worker"]
            if chosen := workers if workers and self.random.random() < 0.7 else processes:
                self._hit(self.random.choice(chosen))
        elif (folder / "logs").exists():
            self._note("logs deleted")
            shutil.rmtree(folder / "logs", ignore_errors=True)
        return []

    def _hit(self, process: psutil.Process) -> None:
        number = self.random.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGSTOP))
        try:
            role = _role(process)
            process.send_signal(number)
        except psutil.Error:
            return
        self._note(f"{role} {number.name}")
        if number is signal.SIGSTOP:
            time.sleep(self.random.random())
            try:
                process.send_signal(signal.SIGCONT)
            except psutil.Error:
                return

    def _damage(self, folder: Path) -> None:
        """What a crash of the machine does to the file's end: a row cut short, or bytes that are none."""
        records = folder / "records.jsonl"
        if self.random.random() < 0.5:
            self._note("garbage at the end of records")
            with records.open("ab") as file:
                file.write(self.random.randbytes(self.random.randrange(1, 200)))
        else:
            lines = records.read_bytes().splitlines(keepends=True)
            if not lines:
                return
            self._note("the last row cut short")
            cut = lines.pop()[: self.random.randrange(1, 200)]
            records.write_bytes(b"".join([*lines, cut]))
            kept = {record.case for record in _records(folder)}
            self.seen = {case: row for case, row in self.seen.items() if case in kept}

    # --- what the README promises ---

    def _check_end(self, status: int, sent: list[signal.Signals], stderr: str, folder: Path) -> None:
        if "Traceback (most recent call last)" in stderr:
            self._breaks("tracebacks", f"status {status} after {sent}: ...{stderr[-2000:]}")
        allowed = {0, 1, *(code for number in sent for code in ENDED_BY.get(number, (-number,)))}
        if status not in allowed and not (status == 2 and any(words in stderr for words in KILLED_AT_START)):
            self._breaks("strange", f"status {status} after {sent} in {folder}: {stderr[-500:]}")

    def _check_left(self) -> None:
        deadline = time.monotonic() + LEFT_AFTER_S
        while left := list(self._processes()):
            if time.monotonic() > deadline:
                self._breaks("left", "; ".join(_role(process) for process in left))
                for process in left:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
            time.sleep(0.2)
        for path in self.temporary.iterdir():
            self.tally.temporary[path.name.rpartition("-")[0] or path.name] += 1
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _check_rows(self, folder: Path) -> None:
        if not (folder / "run.json").exists():
            return
        records = _records(folder)
        rows = {record.case: msgspec.json.encode(record) for record in records}
        if len(rows) < len(records):
            self._breaks("doubled", f"{len(records) - len(rows)} rows in {folder}")
        for case, row in self.seen.items():
            if rows.get(case) != row:
                self._breaks("lost", f"{case.label()} in {folder}")
        new = [record for record in records if record.case not in self.seen]
        with self.tally.lock:
            self.tally.rows += len(new)
            self.tally.measured += sum(isinstance(record.outcome, Measured) for record in new)
        self.seen = rows

    def _processes(self, but: int | None = None) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            try:
                is_ours = process.pid != but and process.environ().get(MARK) == self.mark
                if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                    yield process
            except psutil.Error:
                continue


def _records(folder: Path) -> list[Record]:
    """All rows of the file that can be read, a case's second one too: `read_run` would give the last one only."""
    file = folder / "records.jsonl"
    lines = file.read_bytes().split(b"\n") if file.exists() else []
    return [record for line in lines if isinstance(record := attempt(partial(decode_record, line)), Record)]


def _role(process: psutil.Process) -> str:
    try:
        return _role_of(process)
    except psutil.Error:
        return "gone"


def _role_of(process: psutil.Process) -> str:
    if not _is_server(process):
        return "other"
    parent = process.parent()
    return "worker" if parent is not None and _is_server(parent) else "server"


def _is_server(process: psutil.Process) -> bool:
    """Whether the process is a server, or a fork of one: a worker has its command line."""
    return "torchzoo.run.server" in " ".join(process.cmdline())


def main() -> int:
    """Soak for so long, or until there were so many faults."""
    parser = argparse.ArgumentParser(description="The smoke suite under random faults: see the top of this file.")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--faults", type=int, default=1000)
    parser.add_argument("--lanes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores it, and so would all children
    tally, began = Tally(), time.monotonic()

    def is_over() -> bool:
        return tally.faults.total() >= options.faults or time.monotonic() - began > 60 * options.minutes

    with tempfile.TemporaryDirectory(prefix="soak-") as work, ThreadPoolExecutor(options.lanes) as lanes:
        runs = [Lane(Path(work, str(n)), options.seed * 1000 + n, tally, is_over) for n in range(options.lanes)]
        for done in [lanes.submit(run.work_through) for run in runs]:
            done.result()
    found = {
        "minutes": round((time.monotonic() - began) / 60, 1),
        "seed": options.seed,
        "faults": tally.faults.total(),
        "faults_by_kind": dict(tally.faults.most_common()),
        "starts_of_the_runner": tally.runs,
        "folders": tally.folders,
        "temporary_files_left": dict(tally.temporary),
        "rows": tally.rows,
        "measured": tally.measured,
        "broken": tally.broken,
    }
    print(json.dumps(found, indent=1))
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1) + "\n")
    return 1 if tally.broken else 0


if __name__ == "__main__":
    sys.exit(main())
