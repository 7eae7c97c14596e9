"""Steps on the meta device, where tensors have shapes and no data: what a step asks of its data is answered there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from torchzoo.case import Mode
from torchzoo.errors import attempt
from torchzoo.measure.passes.flops import count_work
from torchzoo.record import Flops
from torchzoo.zoo.catalog import load_model_class
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.waiting import SynchronisingOperators

#: How far the FLOPs with answers may be from those with data. (In training the CPU's attention computes its scores once
#: more in the backward pass.)
SAME_WORK = 0.02


class Answers(SynchronisingOperators):
    """Answers yes-or-no questions on the meta device: yes, but no where the question is whether any element is true.

    transformers asks such questions of masks (does it hide nothing?), of positions (do they all follow each other?) and
    of caches (is it empty?). `seen` names the operators that asked, too: on a GPU they wait. What reads other values
    fails, as without this.
    """

    def __init__(self) -> None:
        super().__init__()
        self.of_any = WeakTensorKeyDictionary()

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        name = func._schema.name
        if name == "aten::_local_scalar_dense" and args[0].is_meta and args[0].dtype is torch.bool:
            self.seen.add(name)
            return args[0] not in self.of_any
        result = super().see(func, args, kwargs)
        if name == "aten::any":
            self.of_any[result] = True
        return result


@contextmanager
def answers() -> Iterator[set[str]]:
    """Answer all questions. Gives the operators that asked, or that would make a GPU wait in another way."""
    with Answers() as mode:
        yield mode.seen


@contextmanager
def true_answers(spec: ModelSpec, mode: Mode, smoke_flops: int | None = None) -> Iterator[None]:
    """Answer the questions of a step that asks, as its metadata says under `syncs`, if the answers are true.

    They are if a step with data does the same work. That is tried on the CPU at the smoke batch, for a large model with
    its small relative. Where they are not, or can't be tried, nothing is answered, and the step fails. Nor is anything
    answered where the step takes its way without answers: then what makes a GPU wait is no question.

    Args:
        smoke_flops: of the step with data at the smoke batch, if they are known; not of a large model.
    """
    if mode in spec.syncs and _are_true(spec, mode, smoke_flops):
        with answers():
            yield
    else:
        yield


def _are_true(spec: ModelSpec, mode: Mode, smoke_flops: int | None) -> bool:
    model_class = load_model_class(spec)
    if spec.large:
        small = model_class.small()
        if small is None:
            return False
        model_class = small

    def without_data() -> Flops | Exception:
        return attempt(lambda: count_work(model_class(mode, "meta", spec.smoke_batch_size).measured_step))

    if not isinstance(without_data(), Exception):
        return False  # it asks nothing
    with answers():
        supposed = without_data()
    if isinstance(supposed, Exception):  # it needs more than answers, or says that the answer makes no sense
        return False
    if smoke_flops is None or spec.large:
        smoke_flops = count_work(model_class(mode, "cpu", spec.smoke_batch_size).measured_step).total
    return abs(supposed.total - smoke_flops) <= SAME_WORK * smoke_flops
