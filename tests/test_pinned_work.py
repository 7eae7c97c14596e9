"""Pinned work: what is counted, and what counts as a change."""

from __future__ import annotations

from pathlib import Path

import pytest

import pinned_work
from counting import count_few, count_fully, count_quickly
from pinned_work import DEPENDS_ON_VALUES, Batch, Step, Work, differences
from torchzoo.case import Mode
from torchzoo.record import Flops
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo.zoo.spec import ModelSpec
from user_models import TINY, make_folder

EVAL = "\n    def eval_step(self):\n        images = self.batch.inputs[0]\n        {then}\n"
ASKS = "return super().eval_step() if {question}.all() else images.flatten(1) @ images.flatten(1).T"
REFUSES = "assert not (images > 9).all(); return super().eval_step()"
NEEDS_VALUES = TINY + EVAL.format(then="return super().eval_step() + images.max().item()")
VALUES_DECIDE = TINY + EVAL.format(then="return images[images > images.mean()] @ images[images > images.mean()]")

SMOKE, DEFAULT = Batch.SMOKE, Batch.DEFAULT

#: Operations of the tiny model's step for a sample, by hand.
CONVOLUTION, LINEAR = 2 * (2 * 2 * 2) * (3 * 9), 2 * 8 * 2
EVALUATION, TRAINING = CONVOLUTION + LINEAR, 2 * CONVOLUTION + 3 * LINEAR


def spec_of(root: Path, code: str = TINY) -> ModelSpec:
    make_folder(root, "tiny", code)
    return find_models([root]).spec("tiny")


def test_a_step_is_counted_at_both_batches(tmp_path: Path) -> None:
    counted = pinned_work.count_model(spec_of(tmp_path))
    flops = {(step.mode, step.batch): (work.batch_size, work.flops, work.note) for step, work in counted.items()}
    assert flops == {
        (Mode.TRAIN, SMOKE): (2, 2 * TRAINING, ""),
        (Mode.TRAIN, DEFAULT): (4, 4 * TRAINING, ""),
        (Mode.EVAL, SMOKE): (2, 2 * EVALUATION, ""),
        (Mode.EVAL, DEFAULT): (4, 4 * EVALUATION, ""),
    }
    for mode in (Mode.TRAIN, Mode.EVAL):
        smoke, default = (counted[Step("tiny", mode, batch)].bytes or 0 for batch in Batch)
        assert 0 < smoke < default < 2 * smoke  # the weights are read once


@pytest.mark.parametrize(
    ("code", "note"), [(NEEDS_VALUES, ""), (VALUES_DECIDE, DEPENDS_ON_VALUES)], ids=["asks", "depends"]
)
def test_without_values_only_the_smoke_batch_is_counted(tmp_path: Path, code: str, note: str) -> None:
    counted = pinned_work.count_model(spec_of(tmp_path, code))
    smoke, default = (counted[Step("tiny", Mode.EVAL, batch)] for batch in Batch)
    assert smoke.flops
    assert smoke.bytes
    assert smoke.note == note
    assert (default.flops, default.bytes) == (None, None)
    assert default.note.startswith("not on the meta device: ")


def test_why_a_step_is_not_counted_is_what_the_metadata_says(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "tiny", NEEDS_VALUES)
    (folder / "metadata.yaml").write_text((folder / "metadata.yaml").read_text() + "syncs: {eval: it asks}\n")
    counted = pinned_work.count_model(find_models([tmp_path]).spec("tiny"))
    assert counted[Step("tiny", Mode.EVAL, DEFAULT)] == Work(batch_size=4, note="it asks")


@pytest.mark.parametrize(
    ("then", "is_answered"),
    [(ASKS.format(question="(images < 9)"), True), (ASKS.format(question="(images > 9)"), False), (REFUSES, False)],
    ids=["true", "not true", "refused"],
)
def test_a_question_is_answered_without_data_if_the_answer_is_that_of_the_data(
    tmp_path: Path, *, then: str, is_answered: bool
) -> None:
    folder = make_folder(tmp_path, "tiny", TINY + EVAL.format(then=then))
    (folder / "metadata.yaml").write_text((folder / "metadata.yaml").read_text() + "syncs: {eval: it asks}\n")
    work = pinned_work.count_model(find_models([tmp_path]).spec("tiny"))[Step("tiny", Mode.EVAL, DEFAULT)]
    assert (work.flops, work.note) == ((4 * EVALUATION, "") if is_answered else (None, "it asks"))


def flops(total: int, moved: int = 7) -> Flops:
    return Flops(total=total, by_operator={}, bytes_moved=moved)


TRAIN_SMOKE, EVAL_SMOKE = (Step("tiny", mode, SMOKE) for mode in (Mode.TRAIN, Mode.EVAL))


@pytest.mark.parametrize(
    ("pinned", "found", "lines"),
    [
        (Work(batch_size=2, flops=1000, bytes=7), flops(1000), 0),
        (Work(batch_size=2, flops=1000, bytes=7), flops(1001), 2),
        (Work(batch_size=2, flops=1000, bytes=7), None, 3),
        (Work(batch_size=2, note="why"), None, 0),
        (Work(batch_size=2, note="why"), flops(1000), 3),
        (Work(batch_size=2, flops=0, bytes=7), flops(0), 0),
        (Work(batch_size=2, flops=0, bytes=7), flops(1), 2),
        (Work(batch_size=2, flops=1000, bytes=7, note=DEPENDS_ON_VALUES), flops(1100), 0),
        (Work(batch_size=2, flops=1000, bytes=7, note=DEPENDS_ON_VALUES), flops(1101), 2),
        (Work(batch_size=2, flops=1000, bytes=7, note=DEPENDS_ON_VALUES), flops(899), 2),
    ],
)
def test_what_is_a_change(tmp_path: Path, pinned: Work, found: Flops | None, lines: int) -> None:
    works = {} if found is None else {Mode.TRAIN: found}
    assert len(differences(spec_of(tmp_path), SMOKE, works, {TRAIN_SMOKE: pinned})) == lines


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_the_quick_ways_to_count_find_the_same(tmp_path: Path, mode: Mode) -> None:
    """A batch of 5 from steps with 2 and 3 samples, and from one step."""
    model_class = load_model_class(spec_of(tmp_path))
    full, quick, few = (count(model_class(mode, "meta", 5)) for count in (count_fully, count_quickly, count_few))
    assert full == quick
    assert (few.total, few.bytes_moved) == (full.total, full.bytes_moved)
