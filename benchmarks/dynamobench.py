"""PyTorch's dynamobench in accuracy mode over the zoo, and the table of docs/dynamobench.md.

    nice python benchmarks/dynamobench.py run --pytorch ~/pytorch -o runs/dynamobench.jsonl
    python benchmarks/dynamobench.py page runs/dynamobench.jsonl

`run` takes one model at a time, by `torchzoo dynamobench`, and appends a line for each to the file. What the file has
already is not run again, so it can be stopped and started at any time. Models that are too large for a CPU (`large` in
their metadata.yaml) are left out unless `--large` is given.
"""

from __future__ import annotations

import argparse
import collections
import csv
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from torchzoo.dynamobench.names import CHANGED, PLAIN, listed
from torchzoo.zoo.catalog import Catalog, find_models

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dynamobench.md"
MODES = ("inference", "training")
FIGURES = "figures.csv"  # dynamobench's file with a line for each model
TAIL = 4000  # characters of the output that are kept where a case did not pass

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """What the file has; of equal cases the last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {(row["backend"], row["mode"], row["name"]): row for row in map(json.loads, lines)}
    return list(rows.values())


def run_case(name: str, mode: str, options: list[str], *, pytorch: Path, timeout_s: float) -> Row:
    """One model in one mode, by the command that a user would type: its row, or why there is none."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torchzoo", "dynamobench", "--pytorch", str(pytorch), "--"]
        command += [f"--{mode}", *options, "--only", name, "--output-directory", folder, "--output", FIGURES]
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=ROOT
        )
        try:
            output, _ = process.communicate(timeout=timeout_s)
            status = "crashed" if process.returncode else "no row"
            if process.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL):
                status = "killed"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            status = "timeout"
        cells: dict[str, str] = {}
        if (figures := Path(folder, FIGURES)).exists():
            with figures.open(encoding="utf-8", newline="") as file:
                cells = list(csv.DictReader(file))[-1]
            status = cells.get("accuracy") or ("measured" if float(cells["speedup"]) else "failed")
    return {
        "name": name,
        "mode": mode,
        "status": status,
        "cells": cells,
        "wall_s": round(time.perf_counter() - started, 1),
        "output": "" if status in ("pass", "measured") else output[-TAIL:],
        "torch": metadata.version("torch"),
        "date": datetime.now(UTC).date().isoformat(),
    }


def run(arguments: argparse.Namespace) -> None:
    catalog = find_models()
    names = [name for name in catalog.select(arguments.models or ["all"]) if is_run(catalog, name, arguments.large)]
    done = {(row["backend"], row["mode"], row["name"]) for row in rows_of(arguments.output)}
    deadline = time.monotonic() + arguments.minutes * 60
    options = ["--accuracy", "--backend", arguments.backend, "-d", arguments.device]
    options += ["--batch-size", str(arguments.batch_size)]
    for mode in arguments.mode or MODES:
        for name in map(listed, names):
            if (arguments.backend, mode, name) in done or time.monotonic() > deadline:
                continue
            row = run_case(name, mode, options, pytorch=arguments.pytorch, timeout_s=arguments.timeout)
            row |= {"backend": arguments.backend, "device": arguments.device, "batch_size": arguments.batch_size}
            with arguments.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps({**row, "timeout_s": arguments.timeout}) + "\n")
            print(f"{mode:9} {name:35} {row['status']:24} {row['wall_s']:6.1f} s", flush=True)


def is_run(catalog: Catalog, name: str, large: bool) -> bool:  # noqa: FBT001  an option's value
    return large or not catalog.spec(name).large


# --- the page ---


def reason(row: Row) -> str:
    """Why a case did not pass, in words: what the models' own refusal says, or the last error of the output."""
    if row["status"] == "timeout":
        return f"not finished in {row['timeout_s']:.0f} s on one thread"
    if row["status"] == "killed":
        return "ended by the system, for lack of memory"
    if row["status"] == "pass_due_to_skip":
        return f"dynamobench does not check models of this name; --only {PLAIN}{row['name']} does"
    errors = re.findall(r"^(?:[\w.]*(?:Error|Exception|Unsupported)): (.+)$", row["output"], re.MULTILINE)
    return errors[0].replace("|", "\\|")[:200] if errors else ""


def page(rows: list[Row], remark: str = "") -> str:
    """The whole document, with a remark about how these rows came about."""
    catalog = find_models()
    by_case = {(row["backend"], row["mode"], row["name"]): row for row in rows}
    changed = "; ".join(f"`{listed(name)}` (under the plain name it {how})" for name, how in CHANGED.items())
    sections = [_section(backend, by_case, catalog) for backend in sorted({row["backend"] for row in rows})]
    large = [name for name in catalog.names if catalog.spec(name).large]
    heading = f"## Not run: {len(large)} models that are too large for a CPU"
    lines = [heading, "", "| model | why |", "| --- | --- |"]
    lines += [f"| {name} | {catalog.spec(name).large} |" for name in large]
    return "\n\n".join([f"{HEAD.format(changed=changed)} {remark}".strip(), *sections, "\n".join(lines)]) + "\n"


def write_page(arguments: argparse.Namespace) -> None:
    rows = [row for path in arguments.files for row in rows_of(path)]
    PAGE.write_text(page(rows, arguments.remark), encoding="utf-8")


def _section(backend: str, by_case: dict[tuple[str, str, str], Row], catalog: Catalog) -> str:
    names = [listed(name) for name in catalog.names if not catalog.spec(name).large]
    known = {(mode, name): by_case.get((backend, mode, name)) for mode in MODES for name in names}
    ran = [row for row in known.values() if row is not None]
    first, counted = ran[0], sorted({row["status"] for row in ran})
    lines = [
        f"## `--backend {backend}`, on the {first['device'].upper()}",
        "",
        f"Torch {first['torch']}, {' and '.join(sorted({row['date'] for row in ran}))}, one thread, `--batch-size "
        f"{first['batch_size']}`.",
        "",
        "| mode | models | run | " + " | ".join(counted) + " |",
        "| --- | --- | --- | " + " | ".join("---" for _ in counted) + " |",
    ]
    for mode in MODES:
        counts = collections.Counter(row["status"] for row in ran if row["mode"] == mode)
        cells = [str(counts[status]) for status in counted]
        lines.append(f"| {mode} | {len(names)} | {counts.total()} | {' | '.join(cells)} |")
    lines += ["", "| model | inference | training | why |", "| --- | --- | --- | --- |"]
    for name in names:
        found = [known[mode, name] for mode in MODES]
        if not any(found):
            continue
        why = [reason(row) for row in found if row is not None and row["status"] != "pass"]
        cells = ["not run" if row is None else row["status"] for row in found]
        lines.append(f"| {name} | {' | '.join(cells)} | {'; '.join(dict.fromkeys(filter(None, why)))} |")
    left = [name for name in names if not any(known[mode, name] for mode in MODES)]
    if left:
        named = ", ".join(left) if 2 * len(left) < len(names) else f"the other {len(left)}"
        lines += ["", f"Not run, for lack of time: {named}."]
    return "\n".join(lines)


HEAD = """\
# PyTorch's dynamobench on this zoo

`torchzoo dynamobench --pytorch DIR -- OPTIONS` runs `benchmarks/dynamo/torchbench.py` of a checkout of pytorch/pytorch,
unmodified, on our models: its options, its output files, its exit status. DIR may also be a checkout of
pytorch/benchmark, which has a copy. None of that code is here.

```sh
torchzoo dynamobench --pytorch ~/pytorch -- --accuracy --inference --inductor -d cpu --only resnet18
torchzoo dynamobench --pytorch ~/pytorch -- --performance --training --inductor -d cuda --no-skip --output-directory .
```

- **What it measures is not our step.** Dynamobench calls the main network with its inputs. In training it takes the
  mean of the outputs as the loss, and has an optimizer of its own (on the CPU none). `torchzoo run` takes the model's
  own loss and its own update.
- **Names.** Each folder has its own name, and each name of TorchBench means the model that
  [torchbench.md](torchbench.md) says. Dynamobench knows names: some models have batch sizes, tolerances or skips of
  their own there. `torchzoo_NAME` is the same model under a name that it doesn't know.
- **Other names in a run of all models**, because dynamobench changes what it measures under the plain name: {changed}.
- **Without `--only`** dynamobench leaves out the models in its own list of skips, such as `hf_*` and `timm_*`: there
  they have files of their own. `--no-skip` runs them.
- **Refused** are models whose outputs have no mean with a gradient, modes that a model does not have, and the options
  `--multiprocess`, `--fsdp` and `--part`. Dynamobench writes `model_fail_to_load`, and prints the reason.
- `python benchmarks/dynamobench_performance.py --pytorch ~/pytorch -d cuda -o runs/dynamobench` measures twenty models
  in performance mode, and puts the figures beside those of `torchzoo run`:
  [on H200s](results/2026-11-23-h200-dynamobench.md).

The tables below are of accuracy mode: dynamobench compares the backend with eager, judged by fp64. They are made by
`python benchmarks/dynamobench.py`. `pass_due_to_skip` is dynamobench's own word for a model that it does not check.
"timeout" is our limit for a case, not dynamobench's. "killed" are those that the system ended for lack of memory. "not
run" means that there was no time for it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runs = commands.add_parser("run", help="run models, and append to the file")
    runs.add_argument("models", nargs="*", help="names or globs (default: all folders)")
    runs.add_argument("--pytorch", type=Path, required=True)
    runs.add_argument("--backend", default="inductor")
    runs.add_argument("--mode", choices=MODES, action="append")
    runs.add_argument("--device", default="cpu")
    runs.add_argument("--batch-size", type=int, default=2)
    runs.add_argument("--timeout", type=float, default=600, help="seconds for a case")
    runs.add_argument("--minutes", type=float, default=1e6, help="start no case after so many minutes")
    runs.add_argument("--large", action="store_true", help="also the models that are too large for a CPU")
    runs.add_argument("-o", "--output", type=Path, required=True)
    runs.set_defaults(command=run)
    pages = commands.add_parser("page", help="write docs/dynamobench.md")
    pages.add_argument("files", nargs="+", type=Path)
    pages.add_argument("--remark", default="", help="a sentence about how these were run")
    pages.set_defaults(command=write_page)
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
