"""A night of `torchzoo watch` that is killed with signal 9, again and again: does the same command go on with it?

    python benchmarks/killed_nights.py -d cpu -o /tmp/killed
    python benchmarks/killed_nights.py -d cpu -o /tmp/killed --only 61056 --every 13

The library and the planted regression are those of `benchmarks/table4.py`. The first night is quiet. Then come 71
commits, one of which makes something slower. The watch of the next night is killed after every few lines that it wrote
(records, and verdicts of the bisection). Only the watch itself is killed: its servers and workers must end without it.
Then the same command is called again, until a call ends by itself.

Printed is what each call did. The night is right if nothing that was written before a kill is lost or changed, no
process is left, no process of a case was measured twice, and the planted commit is blamed. The exit status is 1 if not.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
from table4 import HARMLESS, PLANTS, ROOT, Repository, night, watch_words

#: What is left of a killed watch must be gone after so many seconds.
GONE_S = 60.0
LOOK_S = 0.05


def lines_of(folder: Path) -> dict[str, list[bytes]]:
    """The whole lines that a night has written so far, by file."""
    files = [*folder.rglob("records.jsonl"), *folder.rglob("bisect.jsonl")]
    return {str(path.relative_to(folder)): path.read_bytes().split(b"\n")[:-1] for path in files}


def count(lines: Mapping[str, list[bytes]]) -> int:
    return sum(map(len, lines.values()))


def killed_call(words: list[str], nights: Path, every: int) -> tuple[int | None, float, list[str]]:
    """One call, killed after `every` more lines.

    Returns:
        Its exit status (None: it was killed), its wall time in seconds, and what is wrong.
    """
    began_s = time.monotonic()
    last = max((nights / "nights").iterdir())
    before = count(lines_of(last))
    started = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while started.poll() is None:
        newest = max((nights / "nights").iterdir())
        if newest != last:
            last, before = newest, 0
        if count(lines_of(last)) - before >= every:
            break
        time.sleep(LOOK_S)
    if started.poll() is not None:
        assert started.stderr is not None
        sys.stderr.buffer.write(started.stderr.read()[-2000:])
        return started.returncode, time.monotonic() - began_s, []
    below = psutil.Process(started.pid).children(recursive=True)
    written = lines_of(last)
    started.kill()
    started.communicate()
    wrong = []
    _, alive = psutil.wait_procs(below, timeout=GONE_S)
    if alive:
        wrong.append(f"left alive: {alive}")
    now = lines_of(last)
    changed = [name for name, lines in written.items() if now.get(name, [])[: len(lines)] != lines]
    if changed:
        wrong.append(f"lines were lost in {changed}")
    return None, time.monotonic() - began_s, wrong


def measured_twice(folder: Path) -> list[str]:
    """The files in which one process of a case has two records."""
    found = []
    for name, lines in lines_of(folder).items():
        cases = [json.dumps(json.loads(line)["case"]) for line in lines if name.endswith("records.jsonl")]
        if len(set(cases)) < len(cases):
            found.append(name)
    return found


def main() -> int:
    """Print a line for each call."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", type=int, default=87855, help="the pull request whose regression is planted")
    parser.add_argument("--every", type=int, default=9, metavar="N", help="lines after which a call is killed")
    parser.add_argument("--time-limit", type=float, default=0.3)
    arguments = parser.parse_args()
    plant = next(one for one in PLANTS if one.pull_request == arguments.only)
    repository = Repository(arguments.output / "slowpaths")
    repository.make()
    print(f"first night: {night(arguments, repository, arguments.output, {plant.mode: {plant.model}})['status']}")
    repository.harmless(HARMLESS // 2)
    culprit = repository.plant(plant)
    repository.harmless(HARMLESS // 2)
    nights = arguments.output / plant.mode
    words = watch_words(arguments, repository, nights, plant.mode, {plant.model})
    status, wrong, calls = None, list[str](), 0
    while status is None:
        status, took_s, found = killed_call(words, nights, arguments.every)
        calls, wrong = calls + 1, [*wrong, *found]
        last = max((nights / "nights").iterdir())
        what = "killed" if status is None else f"ended with status {status}"
        steps = sorted(path.name for path in last.iterdir() if path.is_dir())
        print(
            f"call {calls}: {what} after {took_s:.0f} s; {count(lines_of(last))} lines in {', '.join(steps)}",
            flush=True,
        )
        for one in found:
            print(f"  {one}")
    wrong += [f"measured twice: {name}" for name in measured_twice(last)]
    blamed = [one["specs"] for one in json.loads((last / "night.json").read_text()).get("blamed", [])]
    if [len(specs) for specs in blamed] != [1] or not blamed[0][0].endswith(culprit):
        wrong.append(f"blamed: {blamed}")
    print(f"{calls - 1} kills: " + ("; ".join(wrong) if wrong else "nothing lost, nothing left, the commit was found"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
