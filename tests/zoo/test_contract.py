"""The contract: one test for each model folder, at its smoke batch size, in both modes, on the CPU.

Folders that are too large for that are built and stepped on the meta device here, and fully on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psutil
import pytest

from examples import ROOT
from kept_passes import KeptPasses, fingerprint, software
from torchzoo.case import Domain, Mode
from torchzoo.commands import describe
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

#: What all models read of torchzoo and of its tests.
CONTRACT = (
    *(f"torchzoo/{name}.py" for name in ("case", "data", "errors", "model", "tasks")),
    *(f"torchzoo/zoo/{name}" for name in ("catalog.py", "contract.py", "folders.py", "requirements.py", "rules.py")),
    *(f"torchzoo/zoo/{name}" for name in ("spec.py", "limits.yaml")),
    "torchzoo/networks",
    "tests/zoo/test_contract.py",
    "constraints.txt",
)
#: What the table of models reads beside that. Its runs are named in it.
TABLE = ("docs/models.md", "torchzoo/commands/describe.py", "torchzoo/measure/passes/flops.py", "torchzoo/record.py")

#: Models that go through their batch one by one: a hundred thousand operators for a batch of 32. They are counted at
#: batches of 2 and 3, and each further sample is what the third one adds: exact, as the whole batch is counted weekly.
LOOPS_OVER_ITS_BATCH = ("maml", "maml_omniglot")


def inputs_of(spec: ModelSpec, root: Path = ROOT, more: tuple[str, ...] = ()) -> str:
    """A fingerprint of all that decides what the contract's test of a model finds."""
    paths = [Path(spec.folder), *(root / name for name in (*CONTRACT, *more))]
    return fingerprint(paths, installed())


@functools.cache
def installed() -> list[str]:
    return software()


@pytest.fixture
def freed_memory_is_kept() -> Iterator[None]:
    """Memory of one model is used again for the next, as long as that is less than a quarter of the machine's.

    Otherwise the C library gives it back after each model, and the kernel clears it again, page by page, for the next:
    a sixth of all the time that these tests took.
    """
    mmap_max, mmap_threshold, trim_threshold = -4, -3, -1  # of malloc.h
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt"):  # not glibc
        yield
        return
    libc.mallopt(mmap_max, 0)
    libc.mallopt(trim_threshold, -1)
    yield
    libc.mallopt(mmap_max, 65536)  # as it was, and the thresholds at glibc's own upper limits
    libc.mallopt(mmap_threshold, 32 * 2**20)
    libc.mallopt(trim_threshold, 64 * 2**20)
    if psutil.Process().memory_info().rss > psutil.virtual_memory().total / 4:
        libc.malloc_trim(0)


def skip_without_its_libraries(spec: ModelSpec) -> None:
    missing = [requirement for requirement in spec.requirements if not is_installed(requirement)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")


@pytest.mark.usefixtures("freed_memory_is_kept")
@of_each_model
def test_a_model_keeps_the_contract(spec: ModelSpec, kept_passes: KeptPasses) -> None:
    """Two seeded builds agree, what is built is what was declared, a step does what it must, on the batch given."""
    skip_without_its_libraries(spec)
    with kept_passes.unless_unchanged(f"contract-{spec.name}", inputs_of(spec)):
        assert contract.check_model(spec) == []


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


@pytest.mark.usefixtures("freed_memory_is_kept")
@of_each_model
def test_the_table_of_models_is_up_to_date(spec: ModelSpec, kept_passes: KeptPasses) -> None:
    runs = runs_of_the_table()
    with kept_passes.unless_unchanged(f"table-{spec.name}", inputs_of(spec, more=(*TABLE, *runs))):
        lines = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
        written = [line for line in lines if line.startswith(f"| {spec.name} |")]
        again = f"run `torchzoo describe all {' '.join(f'--flops-from {run}' for run in runs)} --write docs/models.md`"
        assert len(written) == 1, again
        if all(is_installed(requirement) for requirement in spec.requirements):
            counted = describe.counted_in(read_run(ROOT / run) for run in runs)
            is_long = spec.name in LOOPS_OVER_ITS_BATCH and "TORCHZOO_WEEKLY" not in os.environ
            row = describe.row(spec, counted, count_few if is_long else describe.count_step)
            assert written[0] == row, again
        else:
            assert written[0].split(" | ")[:6] == describe.known_cells(spec), again


def count_few(model: Model) -> Flops:
    """The FLOPs of a step, from steps with two and three samples."""
    two, three = (describe.count_step(type(model)(model.mode, model.device, size)) for size in (2, 3))
    total = two.total + (model.batch_size - 2) * (three.total - two.total)
    return msgspec.structs.replace(two, total=total)
