"""Take steps on the meta device, where tensors have no data, and answer the questions that steps ask of their data."""

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

#: The largest difference of the FLOPs with answers from those with data. (In training the CPU's attention computes its
#: scores again in the backward pass.)
SAME_WORK = 0.02


class Answers(SynchronisingOperators):
    """Answer yes-or-no questions on the meta device: yes, or no if the question is whether any element is true.

    transformers asks such questions of masks (does it hide nothing?), of positions (are they consecutive?) and of
    caches (is it empty?). `seen` also names the operators that asked: on a GPU they wait. An operator that reads other
    values fails, as it does without answers.
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
    """Answer all questions. Give the operators that asked, or that would make a GPU wait in another way."""
    with Answers() as mode:
        yield mode.seen


@contextmanager
def true_answers(spec: ModelSpec, mode: Mode, smoke_flops: int | None = None) -> Iterator[None]:
    """Answer the questions of a step that asks, as its metadata says under `syncs`, if the answers are true.

    Answers are true if a step with data does the same work. This is tried on the CPU at the smoke batch, for a large
    model with its small relative. Where they are not true, or can't be tried, nothing is answered, and the step fails.
    Nor is anything answered where the step runs without answers: then a GPU waits for another reason.

    Args:
        smoke_flops: FLOPs of the step with data at the smoke batch, if they are known; not for a large model.
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
        return False  # the step asks nothing
    with answers():
        supposed = without_data()
    if isinstance(supposed, Exception):  # the step needs more than answers, or finds the answer senseless
        return False
    if smoke_flops is None or spec.large:
        smoke_flops = count_work(model_class(mode, "cpu", spec.smoke_batch_size).measured_step).total
    return abs(supposed.total - smoke_flops) <= SAME_WORK * smoke_flops
