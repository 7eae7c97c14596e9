"""The contract: one parametrised test over all model folders, at their smoke batch sizes, on the CPU."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from step_checks import element_count, synchronising_operators, tensors, unchanged_by_a_train_step
from torchzoo.catalog import find_models, load_model_class
from torchzoo.install import distribution_name, is_installed
from torchzoo.model import Model
from torchzoo.spec import Mode, ModelSpec

CATALOG = find_models()
SPECS = [CATALOG.spec(name) for name in CATALOG.names]
CASES = [pytest.param(spec, mode, id=f"{spec.name}-{mode}") for spec in SPECS for mode in spec.modes()]


def build(spec: ModelSpec, mode: Mode, batch_size: int | None = None, seed: int = 0) -> Model:
    missing = [requirement for requirement in spec.requirements if not is_installed(requirement)]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed")
    return load_model_class(spec)(mode, "cpu", batch_size or spec.smoke_batch_size, seed=seed)


@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.name) for spec in SPECS])
def test_folder_says_what_it_is(spec: ModelSpec) -> None:
    model_class = load_model_class(spec)
    docstring = sys.modules[model_class.__module__].__doc__ or ""
    assert re.search(r"\b(19|20)\d\d\b|https?://", docstring), "the module docstring must cite its source"
    assert spec.paper.startswith("https://")
    for requirement in spec.requirements:
        assert re.fullmatch(r"[a-z0-9-]+", distribution_name(requirement)), requirement


@pytest.mark.parametrize(("spec", "mode"), CASES)
def test_step_does_what_its_label_says(spec: ModelSpec, mode: Mode) -> None:
    model = build(spec, mode)
    networks = model.networks()

    parameters = sum(p.numel() for network in networks.values() for p in network.parameters())
    if mode is Mode.TRAIN or Mode.TRAIN not in spec.batch_size:
        assert parameters == spec.parameters
    assert all(network.training == (mode is Mode.TRAIN) for network in networks.values())
    assert tensors(model.batch), "a step's data must be in model.batch"
    assert all(tensor.device.type == "cpu" for tensor in tensors(model.batch))
    resident = {id(tensor) for tensor in tensors(model.batch)}
    assert all(id(tensor) in resident for tensor in tensors(model.example_inputs)), "example_inputs must be in batch"
    assert tensors(model.example_inputs)
    assert model.samples_per_step > 0

    if mode is Mode.TRAIN:
        assert unchanged_by_a_train_step(model, spec.unchanged_parameters) == []
    step = model.train_step if mode is Mode.TRAIN else model.eval_step
    with synchronising_operators() as seen:
        outputs = step()
    if mode not in spec.syncs:
        assert not seen, "operators that wait for the device; avoid them or declare why in metadata.yaml's syncs"
    else:
        assert seen, "metadata.yaml declares syncs that the step does not have"

    if mode is Mode.TRAIN:
        assert outputs.ndim == 0
        assert not outputs.requires_grad
    floating = [tensor for tensor in tensors(outputs) if tensor.is_floating_point()]
    assert floating
    assert all(torch.isfinite(tensor).all() for tensor in floating)


@pytest.mark.parametrize(("spec", "mode"), CASES)
def test_two_seeded_builds_agree_and_the_batch_asked_for_is_run(spec: ModelSpec, mode: Mode) -> None:
    one, two = build(spec, mode), build(spec, mode)
    for (name, a), (_, b) in zip(_state(one), _state(two), strict=True):
        assert torch.equal(a, b), name
    assert one.samples_per_step % spec.smoke_batch_size == 0

    elements, samples = element_count(one.batch), one.samples_per_step
    del one, two, a, b  # some are large
    twice = build(spec, mode, 2 * spec.smoke_batch_size)
    assert element_count(twice.batch) == 2 * elements
    assert twice.samples_per_step == 2 * samples


def _state(model: Model) -> list[tuple[str, torch.Tensor]]:
    weights = [
        (f"{network_name}.{name}", value)
        for network_name, network in model.networks().items()
        for name, value in network.state_dict().items()
        if isinstance(value, torch.Tensor) and not value.is_quantized
    ]
    return weights + [(f"batch {index}", tensor) for index, tensor in enumerate(tensors(model.batch))]


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
