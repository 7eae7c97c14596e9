"""The operators of a run as JSON Lines: made-up records, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from examples import INDUCTOR, compared, manifest, measured, record
from torchzoo.case import Precision
from torchzoo.cli import main
from torchzoo.commands.export import op_shapes
from torchzoo.record import Measured, Operand, OperatorCalls, OperatorShapes, Skipped
from torchzoo.store import Run, RunStore

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


def lines(*outcomes: Measured | Skipped) -> list[dict[str, object]]:
    records = [record(one, backend=INDUCTOR, precision=Precision.BF16, repeat=n) for n, one in enumerate(outcomes)]
    run = Run(path=Path("run"), manifest=manifest(cases=tuple(one.case for one in records)), records=tuple(records))
    return [json.loads(line) for line in op_shapes(run).splitlines()]


def test_a_line_has_the_case_the_operator_and_its_share() -> None:
    first, second, rest = lines(with_operators(compared(), candidate=FOUND))
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


def test_both_variants_and_all_processes_are_there_and_others_are_not() -> None:
    nothing = OperatorShapes(steps=0, problem="torch.profiler saw nothing run")
    found = lines(
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


def kept(folder: Path, outcome: Measured) -> str:
    one = record(outcome)
    with RunStore(folder) as store:
        store.begin(manifest(cases=(one.case,)))
        store.append(one)
    return str(folder)


def test_the_command_writes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kept(tmp_path / "run", with_operators(measured(), eager=FOUND))
    assert main(["export", path, "--format", "op-shapes"]) == 0
    names = [json.loads(line)["operator"] for line in capsys.readouterr().out.splitlines()]
    assert names == ["aten::addmm", "aten::_foreach_add_", None]


def test_a_run_without_them_says_how_to_measure_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", kept(tmp_path / "run", measured()), "--format", "op-shapes"]) != 0
    assert "torchzoo run --op-shapes" in capsys.readouterr().err
