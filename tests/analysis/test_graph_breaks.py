"""Graph breaks are ranked by their cause, and the same cause in several models is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples import INDUCTOR, measured, record, results_of, variant_result
from kept_runs import keep
from torchzoo import cli
from torchzoo.record import Block, Compilation, GraphBreak, Record
from torchzoo.report.graph_breaks import break_causes, cause

NMS = "Dynamic shape operator: Operator `nms`'s output shape depends on input Tensor data."


def broken(model: str, *reasons: tuple[str, str], **axes: Any) -> Record:
    breaks = tuple(GraphBreak(reason=reason, place=place) for reason, place in reasons)
    candidate = variant_result(compilation=Compilation(graphs=1, breaks=breaks, compile_s=1.0))
    quad = tuple(Block(name, (0.1,)) for name in ("eager", "candidate", "candidate", "eager"))
    outcome = measured(blocks=quad * 3, variants={"eager": variant_result(), "candidate": candidate})
    return record(outcome, model=model, backend=INDUCTOR, **axes)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("no function <f of R(MT19937)F5488427740>", "no function <f of R(MT19937)AA488427740>"),
        ("object at 0x7f00 is unknown", "object at 0x8F11 is unknown"),
        ("left to Python whole: no LSTM", "no LSTM"),
        ("in `/opt/lib/site-packages/torch/_compile.py` no", "in `/usr/site-packages/torch/_compile.py` no"),
        ("in `/home/one/network.py`", "in `/srv/two/network.py`"),
        ("L['self'].layers[3].norm", "L['self'].layers[11].norm"),
        ("module layers.3.norm of size 128", "module layers.12.norm of size 64"),
        ("jump LazyVariableTracker(realized: ArrayVariable())", "jump ArrayVariable()"),
        ("function `<eval_with_key>.2`", "function `<eval_with_key>.17`"),
        ("hooks need autograd.:", "hooks  need autograd."),
    ],
)
def test_the_same_cause_in_two_models_is_one(one: str, other: str) -> None:
    assert cause(one) == cause(other)
    assert cause(one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Operator `aten.nonzero.default`", "Operator `aten.unique2.default`"),
        ("cast to float32", "cast to float64"),
        ("`Tensor.item()` of torch/a.py", "`Tensor.item()` of torch/b.py"),
        ("`if x.sum() > 0:`", "`if x.sum() > 1:`"),
    ],
)
def test_other_causes_stay_apart(one: str, other: str) -> None:
    assert cause(one) != cause(other)


def test_what_most_models_have_comes_first_with_its_commonest_place() -> None:
    found = break_causes(
        results_of(
            [
                broken("b", (NMS, "boxes.py:48 in nms"), (NMS, "boxes.py:48 in nms"), ("print", "x.py:1 in f")),
                broken("a", (f"left to Python whole: {NMS}", "other.py:3 in g")),
                broken("c", *[("print", "x.py:1 in f")] * 9, ("item", "y.py:2 in h")),
                broken("c", ("item", "y.py:2 in h"), batch_size=8),
                record(model="eager"),
            ]
        )
    )
    assert [(one.reason, one.models, one.breaks, one.whole, one.place) for one in found] == [
        ("print", ("b", "c"), 10, 0, "x.py:1 in f"),
        (NMS, ("a", "b"), 3, 1, "boxes.py:48 in nms"),
        ("item", ("c",), 2, 0, "y.py:2 in h"),
    ]


def test_a_case_that_several_processes_measured_counts_once() -> None:
    (found,) = break_causes(results_of([broken("a", (NMS, "p"), repeat=repeat) for repeat in range(3)]))
    assert found.breaks == 1


def test_a_case_without_graph_breaks_has_no_cause() -> None:
    assert not break_causes(results_of([broken("a")]))


def test_reports_have_the_ranking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        broken("a", (NMS, "boxes.py:48 in nms")),
        broken("b", (NMS, "boxes.py:48 in nms"), ("a|b", "x.py:1 in f")),
    ]
    run = keep(tmp_path / "run", records)

    def report(run: Path, *words: str) -> str:
        assert cli.main(["report", str(run), *words]) == 0
        return capsys.readouterr().out

    assert f"2 models, 2 breaks: {NMS}" in " ".join(report(run).split())
    markdown = report(run, "--format", "md")
    shown = NMS.replace("`", "\\`")
    assert f"| {shown} | 2 | 2 | boxes.py:48 in nms | a, b |" in markdown
    assert "| a\\|b | 1 | 1 | x.py:1 in f | b |" in markdown
    first, _ = json.loads(report(run, "--format", "json"))["summary"]["graph_breaks"]
    assert (first["models"], first["breaks"]) == (["a", "b"], 2)
    page = report(run, "--format", "html")
    assert "Graph breaks (2 reasons)" in page
    assert "so that the same cause is one line" in page
    unbroken = keep(tmp_path / "unbroken", [record(), record(model="b")])
    assert not [one for one in ("md", "html", "table") if "raph breaks" in report(unbroken, "--format", one)]
