"""The operators of a run as JSON Lines: made-up records, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from examples import INDUCTOR, compared, record
from in_this_process import torchzoo
from kept_runs import keep
from torchzoo.case import Precision
from torchzoo.record import Measured, Operand, OperatorCalls, OperatorShapes, Skipped

FOUND = OperatorShapes(
    steps=2,
    operators=(
        OperatorCalls("aten::addmm", (Operand("bfloat16", (8,)), Operand("bfloat16", (4, 8))), 6, 0.3),
        OperatorCalls("aten::_foreach_add_", (Operand("list", (3,)),), 2, 0.1),
    ),
    others=5,
    others_calls=10,
    others_s=0.1,
)


def with_operators(found: Measured, **by_variant: OperatorShapes) -> Measured:
    variants = {
        name: msgspec.structs.replace(one, operator_shapes=by_variant.get(name)) for name, one in found.variants.items()
    }
    return msgspec.structs.replace(found, variants=variants)


def lines(folder: Path, *outcomes: Measured | Skipped) -> list[dict[str, object]]:
    records = [record(one, backend=INDUCTOR, precision=Precision.BF16, repeat=n) for n, one in enumerate(outcomes)]
    done = torchzoo("export", keep(folder / "run", records), "--format", "op-shapes")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_line_has_the_case_the_operator_and_its_share(tmp_path: Path) -> None:
    first, second, rest = lines(tmp_path, with_operators(compared(), candidate=FOUND))
    assert (first["model"], first["backend"], first["precision"], first["variant"]) == (
        "tiny",
        "inductor",
        "bf16",
        "candidate",
    )
    assert (first["operator"], first["shapes"], first["dtypes"]) == (
        "aten::addmm",
        [[8], [4, 8]],
        ["bfloat16", "bfloat16"],
    )
    assert (first["calls_per_step"], first["time_per_step_s"]) == (3, 0.15)
    assert (second["shapes"], second["dtypes"]) == ([[3]], ["list"])
    assert (rest["operator"], rest["shapes"], rest["calls_per_step"]) == (None, None, 5)
    assert sum(float(str(one["share"])) for one in (first, second, rest)) == pytest.approx(1)


def test_both_variants_and_all_processes_are_there_and_others_are_not(tmp_path: Path) -> None:
    nothing = OperatorShapes(steps=0, problem="torch.profiler saw nothing run")
    found = lines(
        tmp_path,
        with_operators(compared(), eager=FOUND, candidate=FOUND),
        with_operators(compared(), eager=FOUND, candidate=nothing),
        compared(),
        Skipped(reason="no"),
    )
    assert [(one["repeat"], one["variant"]) for one in found if one["operator"] == "aten::addmm"] == [
        (0, "eager"),
        (0, "candidate"),
        (1, "eager"),
    ]
