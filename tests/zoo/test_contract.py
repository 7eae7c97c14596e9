"""The contract: one parametrised test over all model folders, at their smoke batch sizes, on the CPU.

Folders too large for that are built and stepped on the meta device there, and fully on a GPU.
"""

from __future__ import annotations

import re
import sys

import pytest
import torch

from examples import ROOT
from step_checks import element_count, synchronising_operators, tensors, unchanged_by_a_train_step
from torchzoo.case import Domain, Mode
from torchzoo.commands import describe_models
from torchzoo.model import Model
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo.zoo.requirements import distribution_name, is_installed
from torchzoo.zoo.spec import ModelSpec
from torchzoo.zoo.suites import read_suite, suite_names

MODELS_TABLE = ROOT / "docs" / "models.md"
CATALOG = find_models()
SPECS = [CATALOG.spec(name) for name in CATALOG.names]
CASES = [pytest.param(spec, mode, id=f"{spec.name}-{mode}") for spec in SPECS for mode in spec.modes()]


def build(spec: ModelSpec, mode: Mode, batch_size: int | None = None, device: str = "") -> Model:
    missing = [requirement for requirement in spec.requirements if not is_installed(requirement)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    device = device or ("meta" if spec.large else "cpu")
    return load_model_class(spec)(mode, device, batch_size or spec.smoke_batch_size)


@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS])
def test_folder_says_what_it_is(spec: ModelSpec) -> None:
    model_class = load_model_class(spec)
    docstring = sys.modules[model_class.__module__].__doc__ or ""
    assert re.search(r"\b(19|20)\d\d\b|https?://", docstring), "the module docstring must cite its source"
    assert spec.paper.startswith("https://")
    for requirement in spec.requirements:
        assert re.fullmatch(r"[a-z0-9-]+", distribution_name(requirement)), requirement


@pytest.mark.parametrize("suite", suite_names())
def test_every_model_of_a_suite_is_there(suite: str) -> None:
    names = read_suite(suite).models
    assert CATALOG.select([], [suite]) == list(names)
    assert len(set(names)) == len(names)


def test_the_papers_84_models_are_in_its_six_domains() -> None:
    specs = [CATALOG.spec(name) for name in CATALOG.select([], ["torchbench"])]
    assert len(specs) == 84
    assert {spec.domain for spec in specs} == set(Domain)


@pytest.mark.parametrize(("spec", "mode"), CASES)
def test_step_does_what_its_label_says(spec: ModelSpec, mode: Mode) -> None:
    """Two seeded builds agree, what is built is what was declared, a step does what it must, on the batch given."""
    model = build(spec, mode)
    check_what_is_built(model, spec)
    if not spec.large:
        for (name, a), (_, b) in zip(_state(model), _state(build(spec, mode)), strict=True):
            assert torch.equal(a, b), name
        del a, b
        check_step(model, spec)
    elif mode not in spec.syncs:  # on the meta device, there is nothing to wait for
        assert outputs_of(model)
    assert model.samples_per_step % spec.smoke_batch_size == 0
    elements, samples = element_count(model.batch), model.samples_per_step
    del model  # some are large

    twice = build_cheaply(spec, mode, 2 * spec.smoke_batch_size)
    assert element_count(twice.batch) == 2 * elements
    assert twice.samples_per_step == 2 * samples


def build_cheaply(spec: ModelSpec, mode: Mode, batch_size: int) -> Model:
    """On the meta device, where tensors have shapes but no data; on the CPU what needs data to be built."""
    try:
        return build(spec, mode, batch_size, device="meta")
    except (RuntimeError, NotImplementedError, AttributeError):
        return build(spec, mode, batch_size, device="cpu")


@pytest.mark.gpu
@pytest.mark.parametrize(("spec", "mode"), [case for case in CASES if case.values[0].large])
def test_a_large_models_step_does_what_its_label_says(spec: ModelSpec, mode: Mode) -> None:
    model = build(spec, mode, device="cuda")
    check_what_is_built(model, spec)
    check_step(model, spec)


def check_what_is_built(model: Model, spec: ModelSpec) -> None:
    networks = model.networks()
    parameters = sum(p.numel() for network in networks.values() for p in network.parameters())
    if model.mode is Mode.TRAIN or Mode.TRAIN not in spec.batch_size:
        assert parameters == spec.parameters
    assert all(network.training == (model.mode is Mode.TRAIN) for network in networks.values())
    assert tensors(model.batch), "a step's data must be in model.batch"
    assert all(tensor.device.type == model.device.type for tensor in tensors(model.batch))
    resident = {id(tensor) for tensor in tensors(model.batch)}
    assert all(id(tensor) in resident for tensor in tensors(model.example_inputs)), "example_inputs must be in batch"
    assert tensors(model.example_inputs)
    assert model.samples_per_step > 0


def outputs_of(model: Model) -> list[torch.Tensor]:
    """The floating results of a step; of a train step its loss, detached."""
    outputs = model.train_step() if model.mode is Mode.TRAIN else model.eval_step()
    if model.mode is Mode.TRAIN:
        assert outputs.ndim == 0
        assert not outputs.requires_grad
    return [tensor for tensor in tensors(outputs) if tensor.is_floating_point()]


def check_step(model: Model, spec: ModelSpec) -> None:
    if model.mode is Mode.TRAIN:
        assert unchanged_by_a_train_step(model, spec.unchanged_parameters) == []
    with synchronising_operators() as seen:
        floating = outputs_of(model)
    if model.mode not in spec.syncs:
        assert not seen, "operators that wait for the device; avoid them or declare why in metadata.yaml's syncs"
    else:
        assert seen, "metadata.yaml declares syncs that the step does not have"
    assert floating
    assert all(torch.isfinite(tensor).all() for tensor in floating)


def _state(model: Model) -> list[tuple[str, torch.Tensor]]:
    weights = [
        (f"{network_name}.{name}", value)
        for network_name, network in model.networks().items()
        for name, value in network.state_dict().items()
        if isinstance(value, torch.Tensor) and not value.is_quantized
    ]
    return weights + [(f"batch {index}", tensor) for index, tensor in enumerate(tensors(model.batch))]


@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS])
def test_the_table_of_models_is_up_to_date(spec: ModelSpec) -> None:
    text = MODELS_TABLE.read_text()
    (sources,) = re.findall(r"^Marked `\*`: counted in (.*)\.$", text, re.MULTILINE)
    runs = re.findall(r"`([^`]*)`", sources)
    written = [line.split(" | ") for line in text.splitlines() if line.startswith(f"| {spec.name} |")]
    again = (
        f"run `torchzoo describe_models all {' '.join(f'--flops-from {run}' for run in runs)} --write docs/models.md`"
    )
    assert len(written) == 1, again
    if all(is_installed(requirement) for requirement in spec.requirements):
        counted = describe_models.counted_in(read_run(ROOT / run) for run in runs)
        assert " | ".join(written[0]) == describe_models.row(spec, counted), again
    else:
        assert written[0][:6] == describe_models.known_cells(spec), again


@pytest.mark.gpu
@pytest.mark.parametrize(("spec", "mode"), CASES)
def test_step_never_waits_for_the_gpu(spec: ModelSpec, mode: Mode) -> None:
    """No synchronising call and no host-device copy in a warm step, except where metadata.yaml declares it."""
    if any(rule.holds_for_all(mode, "cuda") for rule in spec.skips):
        pytest.skip("does not run on this device, as metadata.yaml says")
    if not all(is_installed(requirement) for requirement in spec.requirements):
        pytest.skip("a requirement is not installed")
    model = load_model_class(spec)(mode, "cuda", spec.smoke_batch_size)
    step = model.train_step if mode is Mode.TRAIN else model.eval_step
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    if mode not in spec.syncs:
        torch.cuda.set_sync_debug_mode("error")
        try:
            step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        torch.cuda.synchronize()
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step()
        torch.cuda.synchronize()
    copies = {event.name for event in profile.events() if "Memcpy HtoD" in event.name or "Memcpy DtoH" in event.name}
    if mode not in spec.syncs:
        assert not copies
