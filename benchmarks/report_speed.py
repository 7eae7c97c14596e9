"""How long `torchzoo report` takes for a run of 1,000 cases, in each format, and that it imports no torch.

    python benchmarks/report_speed.py RUN [--cases 1000] [--trials 3]

The cases are those of RUN, a real run, again and again under other names.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from itertools import count
from pathlib import Path
from statistics import median

import msgspec

from torchzoo.record import Record
from torchzoo.store import Run, read_run

FORMATS = ("table", "md", "csv", "json", "html")
LIMIT_S = 5.0
CODE = """
import sys
from torchzoo.cli import main
status = main(["report", *sys.argv[1:]])
sys.exit("torch was imported" if "torch" in sys.modules else status)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--trials", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run"
        write(path, read_run(arguments.run), arguments.cases)
        print(f"{arguments.cases} cases, {(path / 'records.jsonl').stat().st_size / 2**20:.1f} MiB of records")
        slow = False
        for form in FORMATS:
            file = Path(folder) / f"report.{form}"
            taken_s = sorted(report_s(path, form, file) for _ in range(arguments.trials))
            slow = slow or median(taken_s) >= LIMIT_S
            print(
                f"{form:6} {median(taken_s):.2f} s (from {taken_s[0]:.2f} to {taken_s[-1]:.2f}), "
                f"{file.stat().st_size / 2**20:.2f} MiB"
            )
    print(f"{'NOT ' if slow else ''}all under {LIMIT_S:g} s, without torch")
    return int(slow)


def write(path: Path, real: Run, cases: int) -> None:
    """A run of so many cases: the real one's models, numbered in each round."""
    records: list[Record] = []
    domains = dict(real.manifest.domains)
    for turn in count():
        for record in real.records:
            name = f"{record.case.model}_{turn}"
            if record.case.model in real.manifest.domains:
                domains[name] = real.manifest.domains[record.case.model]
            case = msgspec.structs.replace(record.case, model=name)
            records.append(msgspec.structs.replace(record, case=case))
        if len(records) >= cases:
            break
    records = records[:cases]
    manifest = msgspec.structs.replace(real.manifest, cases=tuple(each.case for each in records), domains=domains)
    path.mkdir()
    (path / "run.json").write_bytes(msgspec.json.encode(manifest))
    (path / "records.jsonl").write_bytes(b"".join(msgspec.json.encode(record) + b"\n" for record in records))


def report_s(path: Path, form: str, file: Path) -> float:
    """Seconds of the whole command, Python's start included."""
    start = time.perf_counter()
    command = [sys.executable, "-c", CODE, str(path), "--format", form, "-o", str(file)]
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
