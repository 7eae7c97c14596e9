"""The contract: one test for each model folder, at its smoke batch size, in both modes, on the CPU.

Folders that are too large for that are built and stepped on the meta device here, and fully on a GPU. Detectors among
them take their steps on the CPU too, on small images.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import msgspec
import psutil
import pytest
import torch

from examples import ROOT
from kept_passes import KeptPasses, fingerprint, software
from remembered_shapes import RememberedShapes
from small_detectors import on_small_images
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

#: Models whose steps take more than 4 GB of host memory. One worker builds them, one after another.
HUNGRY = frozenset({"Background_Matting", "demucs", "fambench_xlmr", "hf_Bert_large", "hf_Longformer", "hf_T5_base"})

#: What all models read of torchzoo and of its tests.
CONTRACT = (
    *(f"torchzoo/{name}.py" for name in ("__init__", "bounds", "case", "data", "errors", "files", "model", "tasks")),
    *(f"torchzoo/zoo/{name}" for name in ("__init__.py", "catalog.py", "contract.py", "folders.py", "requirements.py")),
    *(
        f"torchzoo/zoo/{name}"
        for name in ("collections.py", "rules.py", "spec.py", "limits.yaml", "suites/__init__.py")
    ),
    "torchzoo/networks",
    "tests/zoo/test_contract.py",
    "constraints.txt",
)
#: What the table of models reads beside that. Its runs are named in it.
TABLE = (
    "docs/models.md",
    "tests/remembered_shapes.py",
    *(f"torchzoo/{name}.py" for name in ("commands/describe", "measure/passes/flops", "record", "store")),
)

#: Models that go through their batch one by one: a hundred thousand operators for a batch of 32. Their FLOPs are
#: counted for two and for three samples, and each further sample adds what the third one adds. The weekly run counts
#: the whole batch.
LOOPS_OVER_ITS_BATCH = ("maml", "maml_omniglot")


def inputs_of(spec: ModelSpec, root: Path = ROOT, more: tuple[str, ...] = ()) -> str:
    """A fingerprint of all that decides what the contract's test of a model finds."""
    paths = [Path(spec.folder), *(root / name for name in (*CONTRACT, *more))]
    return fingerprint(paths, installed())


@functools.cache
def installed() -> list[str]:
    return software(ROOT / "constraints.txt")


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
def matrix_products_in_bf16() -> Iterator[None]:
    """oneDNN multiplies matrices of fp32 in bf16 where the processor can: twice as fast, or more.

    What the contract looks at needs no more digits: shapes, what changes, what waits, what is finite.
    """
    products = torch.backends.mkldnn.matmul
    before, products.fp32_precision = products.fp32_precision, "bf16"
    yield
    products.fp32_precision = before


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
    """Two seeded builds agree, what is built is what was declared, a step does what it must, on the batch given."""
    skip_without_its_libraries(spec)
    with kept_passes.unless_unchanged(f"contract-{spec.name}", inputs_of(spec)):
        broken = contract.check_model(spec)
        freed_memory_is_kept()
        assert broken == []


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
    with kept_passes.unless_unchanged(f"table-{spec.name}", inputs_of(spec, more=(*TABLE, *runs))):
        lines = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()
        written = [line for line in lines if line.startswith(f"| {spec.name} |")]
        again = f"run `torchzoo describe all {' '.join(f'--flops-from {run}' for run in runs)} --write docs/models.md`"
        assert len(written) == 1, again
        if all(is_installed(requirement) for requirement in spec.requirements):
            counted = describe.counted_in(read_run(ROOT / run) for run in runs)
            row = describe.row(spec, counted, count_step_of(spec))
            assert written[0] == row, again
        else:
            assert written[0].split(" | ")[:6] == describe.known_cells(spec), again


def count_step_of(spec: ModelSpec) -> Callable[[Model], Flops]:
    """How the FLOPs of a step are counted: in the weekly run as `torchzoo describe` does it, else a quick way."""
    if "TORCHZOO_WEEKLY" in os.environ:
        return describe.count_step
    return count_few if spec.name in LOOPS_OVER_ITS_BATCH else count_quickly


def count_quickly(model: Model) -> Flops:
    """The FLOPs of a step, without the bytes that it moves."""
    with RememberedShapes(), mock.patch("torchzoo.measure.passes.flops.moved_bytes", return_value=0):
        return describe.count_step(model)


def count_few(model: Model) -> Flops:
    """The FLOPs of a step, from steps with two and with three samples."""
    two, three = (count_quickly(type(model)(model.mode, model.device, size)) for size in (2, 3))
    total = two.total + (model.batch_size - 2) * (three.total - two.total)
    return msgspec.structs.replace(two, total=total)


def test_a_change_in_what_a_model_reads_runs_its_test_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = msgspec.structs.replace(CATALOG.spec("dcgan"), folder=str(tmp_path / "models" / "dcgan"))
    files = [path for name in (*CONTRACT, *TABLE) for path in contained(ROOT / name)] + contained(ROOT / "models/dcgan")
    for path in files:
        copy = tmp_path / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    seen = {inputs_of(spec, tmp_path, TABLE)}
    for path in files:
        (tmp_path / path.relative_to(ROOT)).write_bytes(path.read_bytes() + b"\n")
        seen.add(inputs_of(spec, tmp_path, TABLE))
    assert len(files) > 30
    assert len(seen) == 1 + len(files)

    before = inputs_of(spec, tmp_path)
    monkeypatch.setattr("kept_passes.importlib.metadata.distributions", list)
    installed.cache_clear()
    assert inputs_of(spec, tmp_path) != before
    installed.cache_clear()


def test_what_models_read_of_torchzoo_is_all_that_they_import() -> None:
    code = (
        "import sys, torchzoo.zoo.contract, torchzoo.tasks\n"
        "print(*(module.__file__ for name, module in sys.modules.items() if name.startswith('torchzoo')))"
    )
    printed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    imported = {Path(name).relative_to(ROOT) for name in printed.split()}
    assert imported <= {file.relative_to(ROOT) for name in CONTRACT for file in contained(ROOT / name)}
    assert Path("torchzoo/model.py") in imported


def contained(path: Path) -> list[Path]:
    files = path.rglob("*") if path.is_dir() else [path]
    return [file for file in files if file.is_file() and "__pycache__" not in file.parts]
