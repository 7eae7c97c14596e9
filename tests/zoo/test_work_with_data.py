"""The work of steps that the meta device can't count, at their default batch, is what `work_with_data.csv` says."""

from __future__ import annotations

import pytest
from test_contract import skip_without_its_libraries

import pinned_work
import work_with_data
from pinned_work import TOLERANCES, Batch, Step
from torchzoo.zoo.catalog import find_models

CATALOG = find_models()
PINNED = pinned_work.read()
WITH_DATA = pinned_work.read(work_with_data.COMMITTED)


def test_the_work_of_every_step_at_its_default_batch_is_in_one_of_the_files() -> None:
    steps = [step for step in PINNED if step.batch is Batch.DEFAULT]
    missing = {step for step in steps if work_with_data.work_at_default(step, PINNED, WITH_DATA) is None}
    assert missing == set(work_with_data.NOT_COUNTED)
    assert set(WITH_DATA) == set(work_with_data.steps_with_data(PINNED))


@pytest.mark.weekly
@pytest.mark.timeout(1200)
@pytest.mark.xdist_group("work_with_data")  # one after another: some need 15 GiB, and two of these do not fit
@pytest.mark.parametrize("step", [pytest.param(step, id=f"{step.model}-{step.mode}") for step in WITH_DATA])
def test_a_step_does_the_work_that_is_pinned(step: Step) -> None:
    spec = CATALOG.spec(step.model)
    skip_without_its_libraries(spec)
    pinned = WITH_DATA[step]
    found = work_with_data.count_apart(step)
    tolerance = TOLERANCES.get(pinned.note, 0.0)
    assert (found.batch_size, found.flops, found.bytes) == (
        pinned.batch_size,
        pytest.approx(pinned.flops, rel=tolerance),
        pytest.approx(pinned.bytes, rel=tolerance),
    ), f"to accept it, run `python tests/work_with_data.py {step.model}` and commit work_with_data.csv"
