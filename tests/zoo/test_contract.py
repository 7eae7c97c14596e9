"""The contract of each model folder.

Each model is built without values, and the fast ones take a real step. The tests marked `contract` test the whole of it
for each model, at its smoke batch size, in all modes, on the CPU. Folders that are too large for that are built and
stepped on the meta device there, and fully on a GPU. Detectors among them take their steps on the CPU too, on small
images.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
import psutil
import pytest

import pinned_work
from counting import count_step_of, counted_step, matrix_products_in_bf16
from examples import ROOT
from pinned_work import Batch, Step
from small_detectors import narrow_resnets, on_small_images, small_efficientdet
from torchzoo.case import Domain, Mode
from torchzoo.commands import model_table
from torchzoo.measure.without_data import true_answers
from torchzoo.model.tasks import Detector, Seq2SeqLM, SupervisedModel
from torchzoo.store import read_run
from torchzoo.zoo import contract
from torchzoo.zoo.catalog import find_models, load_model_class
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

#: Models that take their steps in a few seconds, as `fast` makes them: of each library, and of each base for a task.
FAST = (
    "attention_is_all_you_need_pytorch",
    "basic_gnn_gcn",
    "dcgan",
    "detectron2_fasterrcnn_r_50_fpn",
    "encodec_24khz",
    "exact_gp",
    "gpt_oss_20b",
    "hf_T5",
    "hf_clip",
    "hf_distil_whisper",
    "lennard_jones",
    "llama3_2_1b",
    "maml",
    "mamba2_1_3b",
    "minilm_l6",
    "mobilenet_v2_quantized_qat",
    "nanogpt_shakespeare",
    "neural_ode",
    "opacus_cifar10",
    "phlippe_resnet",
    "pyhpc_equation_of_state",
    "pytorch_struct",
    "rgat",
    "sam3",
    "schnet",
    "sd3_medium",
    "shufflenet_v2_x1_0",
    "soft_actor_critic",
    "stable_diffusion_unet",
    "timm_efficientdet",
    "timm_efficientnet",
    "tts_angular",
    "whisper_turbo",
)

#: Parameters that small data do not change, and why.
WITH_SMALL_DATA = {
    "timm_efficientdet": {
        "network.box_net.bn_rep.*.[34].bn.bias": "no box in small images is as large as the anchors of coarse levels"
    }
}

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


@of_each_model
def test_a_model_is_what_its_folder_declares(spec: ModelSpec) -> None:
    """Its sources, networks, parameters and batches, from builds without values."""
    skip_without_its_libraries(spec)
    broken = contract.check_folder(spec)
    for mode in spec.modes():
        model = contract.build_cheaply(spec, mode, spec.smoke_batch_size)
        broken += contract.check_build(model, spec) + contract.check_batch(model, spec)
    assert broken == []


@pytest.mark.parametrize("name", FAST)
def test_a_fast_model_takes_its_steps(name: str) -> None:
    spec = CATALOG.spec(name)
    skip_without_its_libraries(spec)
    spec = msgspec.structs.replace(spec, unchanged_parameters=spec.unchanged_parameters | WITH_SMALL_DATA.get(name, {}))
    assert [broken for mode in spec.modes() for broken in contract.check_step(fast(spec, mode), spec)] == []


def fast(spec: ModelSpec, mode: Mode) -> Model:
    """The model at its smoke batch size; with small data, or a small network, where the whole one takes long."""
    model_class = load_model_class(spec)
    if issubclass(model_class, Detector):
        with narrow_resnets():
            return on_small_images(spec, mode, regions=32)
    if spec.name == "timm_efficientdet":
        return small_efficientdet(spec, mode)
    if issubclass(model_class, Seq2SeqLM):
        model_class = type("Short", (model_class,), {"train_length": 32, "eval_length": 32})
    return (model_class.small() or model_class)(mode, "cpu", spec.smoke_batch_size)


def test_fast_models_have_every_library_and_every_base_of_the_zoo() -> None:
    assert missing_kinds(FAST) == set()


def missing_kinds(names: Iterable[str]) -> set[str | type]:
    """The libraries of the zoo that none of these models needs, and the bases for tasks that none of them has."""
    return kinds(SPECS) - kinds([CATALOG.spec(name) for name in names])


def kinds(specs: list[ModelSpec]) -> set[str | type]:
    libraries = {library for spec in specs for library in spec.requirements or ("",)}
    installed = [spec for spec in specs if all(map(is_installed, spec.requirements))]
    bases = {base for spec in installed for base in load_model_class(spec).__mro__[1:]} - {SupervisedModel}
    return libraries | {base for base in bases if base.__module__.startswith("torchzoo.")}


@pytest.mark.contract
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, id=spec.name, marks=[pytest.mark.xdist_group("hungry")] if spec.name in HUNGRY else [])
        for spec in SPECS
    ],
)
def test_a_model_keeps_the_contract(spec: ModelSpec, freed_memory_is_kept: Callable[[], None]) -> None:
    """Two seeded builds agree, what is built is what was declared, a step does what it must, on the batch given.

    The work of the steps is what `pinned_work.csv` says.
    """
    skip_without_its_libraries(spec)
    work: dict[Mode, Flops] = {}

    def counted(model: Model) -> Any:
        with true_answers(spec, model.mode) if spec.large else contextlib.nullcontext():
            outputs, work[model.mode] = counted_step(model)
        return outputs

    broken = contract.check_model(spec, step=counted)
    freed_memory_is_kept()
    assert broken == []
    assert pinned_work.differences(spec, Batch.SMOKE, work, PINNED) == []


@pytest.mark.contract
@pytest.mark.parametrize(
    "spec", [pytest.param(spec, id=spec.name) for spec in SPECS if spec.large and "proposals_sync" in spec.limits]
)
def test_a_large_detector_keeps_the_contract_on_small_images(spec: ModelSpec) -> None:
    """Its steps compute values there, with its own network, on fewer regions of smaller images."""
    skip_without_its_libraries(spec)
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


TABLE = (ROOT / "docs" / "models.md").read_text(encoding="utf-8").splitlines()


def runs_of_the_table() -> list[str]:
    """The runs that the FLOPs marked `*` come from."""
    (line,) = [line for line in TABLE if line.startswith("Marked `*`: counted in ")]
    return line.split("`")[3::2]


def line_of_the_table(spec: ModelSpec) -> tuple[str, str]:
    """The model's line, and how to write it again."""
    runs = " ".join(f"--flops-from {run}" for run in runs_of_the_table())
    again = f"run `torchzoo list --table all {runs} -o docs/models.md`"
    written = [line for line in TABLE if line.startswith(f"| {spec.name} |")]
    assert len(written) == 1, again
    return written[0], again


@of_each_model
def test_the_table_of_models_has_what_the_folders_say(spec: ModelSpec) -> None:
    written, again = line_of_the_table(spec)
    assert written.removeprefix("| ").split(" | ")[:6] == model_table.known_cells(spec), again


@pytest.mark.contract
@of_each_model
def test_the_table_of_models_is_up_to_date(spec: ModelSpec) -> None:
    skip_without_its_libraries(spec)
    written, again = line_of_the_table(spec)
    count = count_step_of(spec)
    work: dict[Mode, Flops] = {}

    def kept(model: Model) -> Flops:
        work[model.mode] = count(model)
        return work[model.mode]

    smoke_flops = {mode: PINNED[Step(spec.name, mode, Batch.SMOKE)].flops for mode in spec.modes()}
    counted = model_table.counted_in(read_run(ROOT / run) for run in runs_of_the_table())
    cells = model_table.row(spec, counted, kept, smoke_flops)
    assert written == f"| {' | '.join(cells)} |", again
    assert pinned_work.differences(spec, Batch.DEFAULT, work, PINNED) == []


def test_the_work_of_every_step_is_pinned() -> None:
    sizes = {step: step.batch.size(spec, step.mode) for spec in SPECS for step in pinned_work.steps_of(spec)}
    assert {step: work.batch_size for step, work in PINNED.items()} == sizes
