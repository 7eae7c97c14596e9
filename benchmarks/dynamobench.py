"""Run PyTorch's dynamobench in accuracy mode over the zoo, and write the table of docs/dynamobench.md.

    nice python benchmarks/dynamobench.py run --pytorch ~/pytorch --backend inductor -o runs/dynamobench.jsonl
    python benchmarks/dynamobench.py page runs/dynamobench.jsonl

`run` takes one model at a time, in a process of its own, and appends a line for each to the file. What the file has
already is not run again, so it can be stopped and started at any time. Models that are too large for a CPU (`large` in
their metadata.yaml) are left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from torchzoo.zoo.catalog import find_models

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "dynamobench.md"
MODES = ("inference", "training")
TAIL = 6000  # characters of the output that are kept where a case did not pass

Row = dict[str, Any]


def rows_of(path: Path) -> list[Row]:
    """What the file has; of equal cases the last."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {(row["backend"], row["mode"], row["name"]): row for row in map(json.loads, lines)}
    return list(rows.values())


def run_case(arguments: argparse.Namespace, name: str, mode: str) -> Row:
    """One model in one mode, by the command that a user would type."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "torchzoo", "dynamobench", "--pytorch", str(arguments.pytorch), "--"]
        command += ["--accuracy", f"--{mode}", "--backend", arguments.backend, "-d", arguments.device]
        command += ["--batch-size", str(arguments.batch_size), "--only", name, "--output-directory", folder]
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, cwd=ROOT
        )
        try:
            output, _ = process.communicate(timeout=arguments.timeout)
            status = "crashed" if process.returncode else "no row"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            status = "timeout"
        written = list(Path(folder).glob("accuracy_*.csv"))
        cells: dict[str, str] = {}
        if written:
            with written[0].open(encoding="utf-8", newline="") as file:
                cells = list(csv.DictReader(file))[-1]
            status = cells["accuracy"]
    return {
        "name": name,
        "mode": mode,
        "backend": arguments.backend,
        "device": arguments.device,
        "status": status,
        "batch_size": int(cells.get("batch_size") or arguments.batch_size),
        "unique_graphs": int(cells.get("unique_graphs") or 0),
        "graph_breaks": int(cells.get("graph_breaks") or 0),
        "wall_s": round(time.perf_counter() - started, 1),
        "output": "" if status == "pass" else output[-TAIL:],
        "torch": metadata.version("torch"),
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
    }


def run(arguments: argparse.Namespace) -> None:
    catalog = find_models()
    names = catalog.select(arguments.models or ["all"])
    names = [name for name in names if arguments.large or not catalog.spec(name).large]
    done = {(row["backend"], row["mode"], row["name"]) for row in rows_of(arguments.output)}
    deadline = time.monotonic() + arguments.minutes * 60
    for mode in arguments.mode or MODES:
        for name in names:
            if (arguments.backend, mode, name) in done or time.monotonic() > deadline:
                continue
            row = run_case(arguments, name, mode)
            with arguments.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print(f"{mode:9} {name:35} {row['status']:24} {row['wall_s']:6.1f} s", flush=True)


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
    arguments = parser.parse_args()
    arguments.command(arguments)


if __name__ == "__main__":
    main()
