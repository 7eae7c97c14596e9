"""The work of steps at their default batch that the meta device can't count, pinned in `work_with_data.csv`.

    python tests/work_with_data.py yolov3 'detectron2_*'        # or `all`

counts them again and writes their lines. Such a step asks its data something: how many boxes survive nms, which edges
are self loops. `pinned_work.csv` has no figures of it. Here it is taken on the CPU with the values of its data, which
takes up to some minutes. A step whose default batch is its smoke batch is left out if `pinned_work.csv` has it there.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pinned_work
from counting import count_fully, matrix_products_in_bf16
from pinned_work import DEPENDS_ON_VALUES, Batch, Step, Table, Work
from torchzoo.case import Mode
from torchzoo.zoo.catalog import Catalog, find_models, load_model_class
from torchzoo.zoo.requirements import is_installed

COMMITTED = Path(__file__).with_name("work_with_data.csv")

#: Steps that are counted nowhere at their default batch, and why.
NOT_COUNTED = {
    Step("dlrm_dcnv2", Mode.TRAIN, Batch.DEFAULT): "its tables and Adagrad's sums take 25 GiB",
    Step("dlrm_v3_hstu", Mode.TRAIN, Batch.DEFAULT): "its tables and Adagrad's sums take 47 GiB",
    Step("esmfold", Mode.EVAL, Batch.DEFAULT): "a step takes more than twelve minutes on two cores",
    Step("qwen3_vl_2b", Mode.TRAIN, Batch.DEFAULT): "its weights, their gradients and Adam's moments take 32 GiB",
}


def steps_with_data(pinned: Table) -> list[Step]:
    """The steps that this file counts."""
    return sorted(
        step
        for step, work in pinned.items()
        if step.batch is Batch.DEFAULT
        and work.flops is None
        and _at_smoke(step, pinned) is None
        and step not in NOT_COUNTED
    )


def work_at_default(step: Step, pinned: Table, with_data: Table) -> Work | None:
    """What is pinned of a step at its default batch, in whichever file; None for what is counted nowhere."""
    work = pinned[step]
    return work if work.flops is not None else _at_smoke(step, pinned) or with_data.get(step)


def _at_smoke(step: Step, pinned: Table) -> Work | None:
    """What is pinned of it at its smoke batch, if that is the same batch."""
    smoke = pinned[Step(step.model, step.mode, Batch.SMOKE)]
    return smoke if smoke.flops is not None and smoke.batch_size == pinned[step].batch_size else None


def count(step: Step, seed: int = 0) -> Work:
    """Take the step on the CPU, and count it."""
    spec = find_models().spec(step.model)
    batch_size = spec.batch_size[step.mode]
    with matrix_products_in_bf16():
        work = count_fully(load_model_class(spec)(step.mode, "cpu", batch_size, seed=seed))
    return Work(batch_size=batch_size, flops=work.total, bytes=work.bytes_moved)


def count_apart(step: Step, seed: int = 0) -> Work:
    """The same in a process of its own. Some need 15 GiB, and torch_geometric replaces functions that effdet uses."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as pool:
        return pool.submit(count, step, seed).result()


def counted(step: Step) -> Work:
    """The line of a step: counted with two seeds, since other data may give other work."""
    work, other = (count_apart(step, seed) for seed in (0, 1))
    note = "" if (work.flops, work.bytes) == (other.flops, other.bytes) else DEPENDS_ON_VALUES
    return Work(batch_size=work.batch_size, flops=work.flops, bytes=work.bytes, note=note)


def main(patterns: Iterable[str], catalog: Catalog, path: Path = COMMITTED) -> None:
    """Count the models that the patterns name. The table is written after each step; it forgets what is not counted."""
    steps = steps_with_data(pinned_work.read())
    names = set(catalog.select(list(patterns), []))
    for step in steps:
        if step.model not in names or not all(map(is_installed, catalog.spec(step.model).requirements)):
            continue
        began = time.perf_counter()
        work = counted(step)
        print(f"{step.model} {step.mode}: {work} ({time.perf_counter() - began:.0f} s)", flush=True)
        before = pinned_work.read(path)
        pinned_work.write({one: before[one] for one in steps if one in before} | {step: work}, path)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: python {sys.argv[0]} MODEL... (names, globs, or all)")
    main(sys.argv[1:], find_models())
