"""Graph breaks are ranked by their cause, and the same cause in several models is one line."""

from __future__ import annotations

from typing import Any

import pytest

from examples import INDUCTOR, in_turns, record, results_of, variant_result
from torchzoo.record import Compilation, GraphBreak, Record
from torchzoo.report.graph_breaks import break_causes, cause

NMS = "Dynamic shape operator: Operator `nms`'s output shape depends on input Tensor data."


def broken(model: str, *reasons: tuple[str, str], **axes: Any) -> Record:
    breaks = tuple(GraphBreak(reason=reason, place=place) for reason, place in reasons)
    candidate = variant_result(compilation=Compilation(graphs=1, breaks=breaks, compile_s=1.0))
    outcome = in_turns(0.1, 0.1, variants={"eager": variant_result(), "candidate": candidate})
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
