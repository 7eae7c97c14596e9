"""How long `torchzoo history` takes with a year of nights: 365 runs of 368 cases.

    python benchmarks/history.py [--runs 365] [--cases 368] [--trials 5]

The summaries are made up; the folders have only the files whose times are looked at. Each command is a process of its
own, and looks for new runs first. `regressions` must answer in less than a second.

Result on two cores: docs/results/2026-11-22-history.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import msgspec
import numpy as np

from torchzoo.analysis.cases import Status
from torchzoo.analysis.run_figures import Metric, RunFigure
from torchzoo.analysis.series import IndexedRun
from torchzoo.case import EAGER, Backend, Case, Mode
from torchzoo.history.summaries import CACHE, SCHEMA, CaseSummary, RunSummary, encoded, files_stamp, summary_file

LIMIT_S = 1.0
STEP_AT = 0.6  # of the nights: there torch changes, and every tenth case becomes 7% slower
CODE = """
import sys
from torchzoo.cli import main
status = main(["history", *sys.argv[1:]])
sys.exit(9 if {"torch", "torchzoo.run.scheduler"} & set(sys.modules) else status)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=365)
    parser.add_argument("--cases", type=int, default=368)
    parser.add_argument("--trials", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        start = time.perf_counter()
        figures = fill(root, arguments.runs, arguments.cases)
        size = sum(file.stat().st_size for file in (root / CACHE).iterdir()) / 2**20
        print(f"{arguments.runs} runs, {arguments.cases} cases, {figures:,} figures in summaries of {size:.0f} MiB")
        print(f"written in {time.perf_counter() - start:.1f} s")
        commands = {
            "regressions (two versions)": ["regressions", "--from", "2.14.0", "--to", "2.15.0"],
            "regressions (two nights)": [
                "regressions",
                "--from",
                "night_0010",
                "--to",
                f"night_{arguments.runs - 1:04d}",
            ],
            "show (one series)": ["show", "model_000", "-t", "train", "--backend", "inductor", "--metric", "latency"],
            "page (all series)": ["page", "-o", str(root / "history.html")],
        }
        slow = False
        for name, words in commands.items():
            taken = [command_s([*words, "--runs", str(root)]) for _ in range(arguments.trials)]
            wall_s, cpu_s = (sorted(column) for column in zip(*taken, strict=True))
            slow = slow or (words[0] == "regressions" and median(wall_s) >= LIMIT_S)
            print(
                f"{name:27} {median(wall_s):6.2f} s (from {wall_s[0]:.2f} to {wall_s[-1]:.2f}), "
                f"CPU time {median(cpu_s):.2f} s",
                flush=True,
            )
        print(f"the page has {(root / 'history.html').stat().st_size / 2**20:.1f} MiB")
    print(
        f"regressions {'NOT ' if slow else ''}under {LIMIT_S:g} s; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    return int(slow)


def fill(root: Path, runs: int, cases: int) -> int:
    """Write folders and summaries. Returns how many figures there are."""
    random = np.random.default_rng(0)
    plan = [
        Case(
            model=f"model_{number // 4:03d}",
            mode=list(Mode)[number % 2],
            device="cuda",
            backend=(EAGER, Backend("inductor"))[number // 2 % 2],
            batch_size=16,
        )
        for number in range(cases)
    ]
    levels = random.lognormal(-4, 1, cases)
    count = 0
    (root / CACHE).mkdir()
    for night in range(runs):
        path = root / f"night_{night:04d}"
        path.mkdir()
        (path / "run.json").write_text("{}")
        (path / "records.jsonl").write_text("")
        summary = of_night(path, plan, levels, random, night, is_new=night >= STEP_AT * runs)
        count += sum(len(one.figures) for one in summary.cases())
        summary_file(root / CACHE, str(path.resolve())).write_bytes(msgspec.msgpack.encode(summary))
    return count


def of_night(
    path: Path, plan: list[Case], levels: np.ndarray, random: np.random.Generator, night: int, *, is_new: bool
) -> RunSummary:
    created_at = (datetime(2026, 1, 1, 2, tzinfo=UTC) + timedelta(days=night)).isoformat(timespec="microseconds")
    torch, machine = "2.15.0" if is_new else "2.14.0", "a CPU, NVIDIA H200"
    software = {"torch": torch, **{f"package_{n}": f"1.{night // 60}.0" for n in range(30)}}
    noise = 1 + 0.005 * random.standard_normal((len(plan), 4))
    by_model: dict[str, list[CaseSummary]] = {}
    for number, case in enumerate(plan):
        level = levels[number] * (1.07 if is_new and number % 10 == 0 else 1.0)
        values = {
            Metric.LATENCY: level * noise[number, 0],
            Metric.DEVICE_MEMORY: 2e9,
            Metric.HOST_MEMORY: 1e9 * noise[number, 2],
        }
        if case.backend != EAGER:
            values[Metric.COMPILE_TIME] = 20 * noise[number, 3]
        figures = tuple(figure(metric, value) for metric, value in values.items())
        by_model.setdefault(case.model, []).append(CaseSummary(case, machine, Status.PASSED, "", figures))
    return RunSummary(
        schema=SCHEMA,
        stamp=files_stamp(path),
        run=IndexedRun(path=str(path.resolve()), created_at=created_at, hardware=machine, software=software),
        by_model={model: encoded(cases) for model, cases in by_model.items()},
    )


def figure(metric: Metric, value: float) -> RunFigure:
    return RunFigure(
        metric=metric,
        value=float(value),
        low=float(value) * 0.995,
        high=float(value) * 1.005,
        confidence=0.95,
        processes=(float(value),) * 3,
        is_device_bound=True,
    )


def command_s(words: list[str]) -> tuple[float, float]:
    """Seconds of the whole command, Python's start included: wall time and CPU time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", CODE, *words], check=False, capture_output=True, text=True)
    wall_s, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or done.stderr.startswith("torchzoo: error"):
        raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr}")
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    sys.exit(main())
