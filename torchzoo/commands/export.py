"""`torchzoo export RUN`: write a run for other programs, such as PyTorch's dashboard."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.commands.arguments import folder, kept_run, usable_path, write
from torchzoo.errors import UsageError
from torchzoo.record import Measured, OperatorCalls, OperatorShapes
from torchzoo.report import exports, terminal
from torchzoo.store import Run, StoreError


def add_parser(commands: Any) -> None:
    """Add `export` to argparse's subcommands."""
    parser = commands.add_parser(
        "export",
        help="write a run for PyTorch's dashboard, as the CSV files of PyTorch's dynamo benchmarks, or its operators",
        description="Write a run for other programs: hud-v3 is for PyTorch's dashboard (JSON Lines, version 3 of its "
        "benchmark database, raw samples included), dynamo-csv has the columns of pytorch/benchmarks/dynamo, a file "
        "for each backend, precision, mode and device. op-shapes has the operators of each model with their shapes, "
        "dtypes, calls and shares of time, of a run with `torchzoo run --op-shapes` (JSON Lines: each line has the "
        "case, variant, operator, shapes, dtypes, calls_per_step, time_per_step_s and share; the operator is null for "
        "all that a record does not list one by one).",
    )
    parser.add_argument("run", type=usable_path, metavar="RUN")
    parser.add_argument("--format", choices=["hud-v3", "dynamo-csv", "op-shapes"], required=True)
    parser.add_argument(
        "-o", "--output", type=usable_path, metavar="PATH", help="a file, or for dynamo-csv a folder (default: print)"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Write or print the run."""
    kept = kept_run(arguments.run)
    if arguments.format != "dynamo-csv":
        text = exports.hud_v3(kept) if arguments.format == "hud-v3" else op_shapes(kept)
        if not text:
            no_shapes = f"{arguments.run} has no operators with shapes: measure with `torchzoo run --op-shapes`"
            nothing = f"{arguments.run} holds no measured case to export"
            raise StoreError(nothing if arguments.format == "hud-v3" else no_shapes)
        write(text, arguments.output)
        return 0
    files = exports.dynamo_csv(kept)
    if not files:
        raise StoreError(
            f"{arguments.run} has no case of a backend beside eager, and dynamo's files hold only such cases"
        )
    output: Path | None = arguments.output
    if output is None:
        if len(files) > 1:
            raise UsageError(f"the run gives {len(files)} files: name a folder for them with -o")
        write(next(iter(files.values())), None)
        return 0
    folder(output, "-o")
    for name, text in files.items():
        write(text, output / name)
        terminal.show_line(str(output / name))
    return 0


def op_shapes(run: Run) -> str:
    """Return the operators of a run as JSON Lines, for those who write kernels; empty without `--op-shapes`.

    A line is one operator with operands of the same shapes and dtypes, in one variant of one case. Lines of a variant
    stand together, the longest time first. On a device, time is that of kernels, otherwise the operator's own.
    """
    return "".join(f"{json.dumps(line, allow_nan=False)}\n" for line in _lines(run))


def _lines(run: Run) -> Iterator[dict[str, Any]]:
    for record in run.records:
        if not isinstance(record.outcome, Measured):
            continue
        case = msgspec.to_builtins(record.case) | {"backend": str(record.case.backend)}
        for variant, result in record.outcome.variants.items():
            found = result.operator_shapes
            if found is None or not found.steps:
                continue
            about = {**case, "device_name": record.outcome.device_name, "variant": variant}
            yield from ({**about, **_line(found, one.name, one)} for one in found.operators)
            if found.others:
                rest = OperatorCalls("", (), found.others_calls, found.others_s)
                yield {**about, **_line(found, None, rest), "shapes": None, "dtypes": None}


def _line(found: OperatorShapes, operator: str | None, one: OperatorCalls) -> dict[str, Any]:
    return {
        "operator": operator,
        "shapes": [list(operand.shape) for operand in one.operands],
        "dtypes": [operand.dtype for operand in one.operands],
        "calls_per_step": one.calls / found.steps,
        "time_per_step_s": one.total_s / found.steps,
        "share": one.total_s / found.total_s if found.total_s else 0.0,
    }
