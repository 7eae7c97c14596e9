"""The contract: one test for each model folder, at its smoke batch size, in both modes, on the CPU.

Folders that are too large for that are built and stepped on the meta device here, and fully on a GPU. Detectors among
them take their steps on the CPU too, on small images.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import psutil
import pytest

import pinned_work
from counting import count_step_of, counted_step, matrix_products_in_bf16
from examples import ROOT
from kept_passes import KeptPasses
from model_inputs import TABLE, inputs_of
from pinned_work import Batch, Step
from small_detectors import on_small_images
from torchzoo.case import Domain, Mode
from torchzoo.commands import describe
from torchzoo.measure.without_data import true_answers
from torchzoo.store import read_run
from torchzoo.zoo import contract
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.requirements import is_installed
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.suites import read_suite, suite_names

if TYPE_CHECKING:
    from torchzoo.model import Model
    from torchzoo.record import Flops

CATALOG = find_models()
SPECS = [CATALOG.spec(name) for name in CATALOG.names]
CASES = [pytest.param(spec, mode, id=f"{spec.name}-{mode}") for spec in SPECS for mode in spec.modes()]

of_each_model = pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS])

#: Models whose steps take more than 4 GB of host memory. One worker builds them, one after another.
HUNGRY = frozenset({"Background_Matting", "demucs", "fambench_xlmr", "hf_Bert_large", "hf_Longformer", "hf_T5_base"})

#: What is committed of the models' work.
PINNED = pinned_work.read()


@pytest.fixture(scope="module")
def freed_memory_is_kept() -> Iterator[Callable[[], None]]:
    """Memory of one model is used again for the next. The function gives it back if it is a quarter of the machine's.

    Otherwise the C library gives it back after each model, and the kernel clears it again, page by page, for the next:
    a sixth of all the time that these tests took.
    """
    mmap_max, mmap_threshold, trim_threshold = -4, -3, -1  # of malloc.h
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):  # not glibc
        yield lambda: None
        return
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, -1)

    def give_back() -> None:
        if psutil.Process().memory_info().rss > psutil.virtual_memory().total / 4:
            libc.malloc_trim(0)

    yield give_back
    libc.mallopt(mmap_max, 65536)  # as it was, and the thresholds at glibc's own upper limits
    libc.mallopt(mmap_threshold, 32 * 2**20)
    libc.mallopt(trim_threshold, 64 * 2**20)
    libc.malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def _cheaper_matrix_products() -> Iterator[None]:
    with matrix_products_in_bf16():
        yield


def skip_without_its_libraries(spec: ModelSpec) -> None:
    missing = [requirement for requirement in spec.requirements if not is_installed(requirement)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=spec.name, marks=[pytest.mark.xdist_group("hungry")] if spec.name in HUNGRY else [])
        for spec in SPECS
    ],
)
def test_a_model_keeps_the_contract(
    spec: ModelSpec, kept_passes: KeptPasses, freed_memory_is_kept: Callable[[], None]
) -> None:
    """Two seeded builds agree, what is built is what was declared, a step does what it must, on the batch given.

    The work of the steps is what `pinned_work.csv` says.
    """
    skip_without_its_libraries(spec)
    with kept_passes.unless_unchanged(f"contract-{spec.name}", inputs_of(spec, facts=pinned(spec))):
        work: dict[Mode, Flops] = {}

        def counted(model: Model) -> Any:
            with true_answers(spec, model.mode) if spec.large else contextlib.nullcontext():
                outputs, work[model.mode] = counted_step(model)
            return outputs

        broken = contract.check_model(spec, step=counted)
        freed_memory_is_kept()
        assert broken == []
        assert pinned_work.differences(spec, Batch.SMOKE, work, PINNED) == []


@pytest.mark.parametrize(
    "spec", [pytest.param(spec, id=spec.name) for spec in SPECS if spec.large and "proposals_sync" in spec.limits]
)
def test_a_large_detector_keeps_the_contract_on_small_images(spec: ModelSpec, kept_passes: KeptPasses) -> None:
    """Its steps compute values there, with its own network, on fewer regions of smaller images."""
    skip_without_its_libraries(spec)
    with kept_passes.unless_unchanged(f"small-{spec.name}", inputs_of(spec, more=("tests/small_detectors.py",))):
        broken = []
        for mode in spec.modes():
            model = on_small_images(spec, mode, regions=32)
            broken += contract.check_build(model, spec) + contract.check_step(model, spec)
        assert broken == []


@pytest.mark.gpu
@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS if spec.large])
def test_a_large_model_keeps_the_contract(spec: ModelSpec) -> None:
    skip_without_its_libraries(spec)
    assert contract.check_model(spec, "cuda") == []


@pytest.mark.gpu
@pytest.mark.parametrize(("spec", "mode"), CASES)
def test_a_step_never_waits_for_the_gpu(spec: ModelSpec, mode: Mode) -> None:
    if any(rule.holds_for_all(mode, "cuda") for rule in spec.skips):
        pytest.skip("does not run on this device, as metadata.yaml says")
    skip_without_its_libraries(spec)
    assert contract.check_waiting(spec, mode) == []


@pytest.mark.parametrize("suite", suite_names())
def test_every_model_of_a_suite_is_there(suite: str) -> None:
    names = read_suite(suite).models
    assert CATALOG.select([], [suite]) == list(names)
    assert len(set(names)) == len(names)


def test_the_papers_84_models_are_in_its_six_domains() -> None:
    specs = [CATALOG.spec(name) for name in CATALOG.select([], ["torchbench"])]
    assert len(specs) == 84
    assert {spec.domain for spec in specs} == set(Domain)


def runs_of_the_table() -> list[str]:
    """The runs that the FLOPs marked `*` come from."""
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("Marked `*`: counted in ")]
    return line.split("`")[3::2]


@of_each_model
def test_the_table_of_models_is_up_to_date(spec: ModelSpec, kept_passes: KeptPasses) -> None:
    runs = runs_of_the_table()
    with kept_passes.unless_unchanged(f"table-{spec.name}", inputs_of(spec, more=(*TABLE, *runs), facts=pinned(spec))):
        lines = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
        written = [line for line in lines if line.startswith(f"| {spec.name} |")]
        again = f"run `torchzoo describe all {' '.join(f'--flops-from {run}' for run in runs)} --write docs/models.md`"
        assert len(written) == 1, again
        if all(is_installed(requirement) for requirement in spec.requirements):
            count = count_step_of(spec)
            work: dict[Mode, Flops] = {}

            def kept(model: Model) -> Flops:
                work[model.mode] = count(model)
                return work[model.mode]

            smoke_flops = {mode: PINNED[Step(spec.name, mode, Batch.SMOKE)].flops for mode in spec.modes()}
            row = describe.row(spec, describe.counted_in(read_run(ROOT / run) for run in runs), kept, smoke_flops)
            assert written[0] == row, again
            assert pinned_work.differences(spec, Batch.DEFAULT, work, PINNED) == []
        else:
            assert written[0].split(" | ")[:6] == describe.known_cells(spec), again


def pinned(spec: ModelSpec) -> list[str]:
    return pinned_work.lines_of(spec, PINNED)


def test_the_work_of_every_step_is_pinned() -> None:
    assert set(PINNED) == {step for spec in SPECS for step in pinned_work.steps_of(spec)}
