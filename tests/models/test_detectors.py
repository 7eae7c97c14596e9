"""Detectors: every training step is the same work, steps run at low precision, and optimizers are the originals'."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torchvision.ops import box_iou

from small_detectors import narrow_resnets, on_small_images, small_efficientdet, with_small_heads
from torchzoo.case import Mode, NativeDtype, Precision
from torchzoo.measure.precision import apply_precision, check_precision, inspect_step
from torchzoo.model import Model
from torchzoo.model.data import SyntheticData
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo_models._shared.detection import Anchors
from torchzoo_models._shared.rcnn import RoIPooler
from torchzoo_models._shared.regions import FOREGROUND, MultiScaleRoIAlign, RegionProposals, moved_copies

CATALOG = find_models()
LOSSES = (F.cross_entropy, F.smooth_l1_loss, F.binary_cross_entropy_with_logits)
STEPS = 3


class LossShapes(TorchFunctionMode):
    """Records the shapes of all that losses are computed from."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LOSSES:
            self.seen.append((func.__name__, [tuple(operand.shape) for operand in args]))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [
        ("detectron2_maskrcnn", 1),
        ("detectron2_maskrcnn_r_50_c4", 1),
        ("detectron2_fasterrcnn_r_50_dc5", 1),
        ("vision_maskrcnn", 2),
    ],
)
def test_every_training_step_has_the_same_regions(name: str, batch_size: int) -> None:
    with narrow_resnets():
        model = with_small_heads(on_small_images(CATALOG.spec(name), Mode.TRAIN, batch_size))
    heads: Any = model.network.roi_heads
    entered: dict[str, set[tuple[int, ...]]] = {}
    for part in ("box_head", "box_predictor", "mask_head", "mask_predictor"):
        module = getattr(heads, part)
        if module is not None:
            shapes = entered.setdefault(part, set())
            module.register_forward_pre_hook(lambda _, inputs, shapes=shapes: shapes.add(tuple(inputs[0].shape)))
    of_losses = []
    for _ in range(STEPS):
        with LossShapes() as losses:
            assert torch.isfinite(model.train_step())
        of_losses.append(losses.seen)

    assert {part: len(shapes) for part, shapes in entered.items()} == dict.fromkeys(entered, 1)
    (boxes,) = entered["box_head"]
    assert boxes[0] == 512 * batch_size
    if heads.has_mask():
        (masks,) = entered["mask_predictor"]
        assert masks[0] == 128 * batch_size
    assert len(of_losses[0]) == (5 if heads.has_mask() else 4)
    assert [step for step in of_losses if step != of_losses[0]] == []


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_moved_copies_overlap_their_objects_by_half(dtype: torch.dtype) -> None:
    objects = SyntheticData(torch.device("cpu"), 0).boxes(7, 800, 1216).to(dtype).float()
    corners = torch.tensor([-1.0, 1.0]) / 8
    shifts = torch.cartesian_prod(corners, corners, corners, corners)  # as far as sides are moved
    for one in objects.split(1):
        assert box_iou(one, moved_copies(one, shifts)).min() >= 0.56
    copies = moved_copies(objects, torch.zeros(10, 4))
    assert torch.equal(copies, torch.cat((objects, objects[:3])))


@pytest.mark.parametrize("found", [0, 100, 1000])
def test_an_image_has_the_same_number_of_proposals_however_many_were_found(found: int) -> None:
    anchors = Anchors(((32,),), ((1.0,),))
    rpn = RegionProposals(8, anchors, {"training": 2000, "testing": 1000}, {"training": 1000, "testing": 1000})
    data = SyntheticData(torch.device("cpu"), 0)
    objects, proposals = data.boxes(7, 100, 200), data.boxes(found, 100, 200)
    given = rpn.train().with_objects(proposals, objects, (100, 200))
    kept = min(found, 1000 - FOREGROUND)
    assert given.shape == (1000, 4)
    assert torch.equal(given[:kept], proposals[:kept])
    overlap = box_iou(objects, given).amax(dim=0)
    assert overlap[-FOREGROUND:].min() >= 0.56
    assert bool((overlap[kept:-FOREGROUND] < 0.2).all())
    assert bool((given[:, [0, 1]] >= 0).all())
    assert bool((given[:, 2:] <= torch.tensor([200.01, 100.01])).all())


def test_whether_many_or_few_proposals_were_found_compiles_nothing_anew() -> None:
    anchors = Anchors(((32,),), ((1.0,),))
    rpn = RegionProposals(8, anchors, {"training": 2000, "testing": 1000}, {"training": 1000, "testing": 1000})
    objects = SyntheticData(torch.device("cpu"), 0).boxes(7, 100, 200)
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("eager")
    compiled = torch.compile(rpn.train().with_objects, backend=counter, dynamic=True)
    kept = 1000 - FOREGROUND
    for found in (kept - 1, kept + 1, kept, 1000, 20):
        proposals = SyntheticData(torch.device("cpu"), 1).boxes(found, 100, 200)
        assert torch.equal(compiled(proposals, objects, (100, 200)), rpn.with_objects(proposals, objects, (100, 200)))
    assert counter.frame_count == 1


def assert_results_of(model: Model, precision: Precision) -> None:
    """A step computes in `precision`. It has a finite loss, or detections with finite boxes."""
    apply_precision(model, precision)
    outputs: list[Any] = []
    step = model.train_step if model.mode is Mode.TRAIN else model.eval_step
    inspection = inspect_step(model, lambda: outputs.append(step()))
    check_precision(model, precision, NativeDtype.FP32, inspection)
    (output,) = outputs
    if model.mode is Mode.TRAIN:
        assert torch.isfinite(output)
    else:
        assert len(output[0]["boxes"]) > 0
        assert bool(torch.isfinite(output[0]["boxes"]).all())


@pytest.mark.slow
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize(
    ("name", "regions"),
    [
        ("detectron2_maskrcnn_r_50_fpn", 32),
        ("detectron2_maskrcnn_r_50_c4", 32),
        ("vision_maskrcnn", 32),
        ("detectron2_fcos_r_50_fpn", None),
        ("retinanet_resnext50", None),
    ],
)
def test_a_step_runs_in_bf16(name: str, regions: int | None, mode: Mode) -> None:
    spec = CATALOG.spec(name)
    assert not [rule for rule in spec.skips if Precision.BF16 in rule.precision]
    with narrow_resnets():
        model = on_small_images(spec, mode, regions=regions)
    assert_results_of(model, Precision.BF16)


@pytest.mark.slow
def test_mask_rcnn_detects_in_fp16_on_the_cpu() -> None:
    with narrow_resnets():
        model = on_small_images(CATALOG.spec("vision_maskrcnn"), Mode.EVAL, regions=8)
    assert_results_of(model, Precision.FP16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_regions_come_from_the_level_of_their_size(dtype: torch.dtype) -> None:
    """In fp16, the area of 300 x 300 pixels would be infinite."""
    strides = (4, 8, 16, 32)
    maps = {stride: torch.full((1, 1, 800 // stride, 1216 // stride), float(stride), dtype=dtype) for stride in strides}
    boxes = [torch.tensor([[0.0, 0.0, side, side] for side in (100, 200, 300, 500)])]
    align = MultiScaleRoIAlign([str(stride) for stride in strides], 7, sampling_ratio=2)
    of_torchvision = align({str(stride): features for stride, features in maps.items()}, boxes, [(800, 1216)])
    for pooled in (of_torchvision, RoIPooler(7, strides)(list(maps.values()), boxes)):
        assert pooled.dtype is dtype
        assert pooled[:, 0, 3, 3].tolist() == list(strides)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_efficientdet_steps_in_fp64(mode: Mode) -> None:
    model = small_efficientdet(CATALOG.spec("timm_efficientdet"), mode)
    apply_precision(model, Precision.FP64)
    outputs: list[Any] = []
    step = model.train_step if mode is Mode.TRAIN else model.eval_step
    inspection = inspect_step(model, lambda: outputs.append(step()))
    check_precision(model, Precision.FP64, NativeDtype.FP32, inspection)
    (output,) = outputs
    assert bool(torch.isfinite(output).all())
    if mode is Mode.EVAL:
        assert output.shape == (2, 100, 6)
        assert bool((output[..., 4] > 0).all())


@functools.cache
def of_shapes_only(name: str) -> Any:
    return load_model_class(CATALOG.spec(name))(Mode.TRAIN, "meta", 1)


def frozen(network: nn.Module) -> set[str]:
    return {name for name, parameter in network.named_parameters() if not parameter.requires_grad}


def test_the_stem_is_frozen_where_the_original_freezes_it() -> None:
    networks = {
        name: of_shapes_only(name).network
        for name in ("detectron2_maskrcnn", "detectron2_maskrcnn_r_50_fpn", "vision_maskrcnn")
    }
    assert frozen(networks["detectron2_maskrcnn"]) == set()
    for name in ("detectron2_maskrcnn_r_50_fpn", "vision_maskrcnn"):
        body = networks[name].backbone.body
        assert frozen(body) == {"conv1.weight", *(f"layer1.{part}" for part, _ in body.layer1.named_parameters())}


@pytest.mark.parametrize("name", ["detectron2_maskrcnn", "detectron2_fcos_r_50_fpn", "vision_maskrcnn"])
def test_all_but_normalisations_decay(name: str) -> None:
    model = of_shapes_only(name)
    decay = {
        parameter: group["weight_decay"] for group in model.optimizer.param_groups for parameter in group["params"]
    }
    norms = [p for module in model.network.modules() if isinstance(module, nn.GroupNorm) for p in module.parameters()]
    assert set(decay) == {parameter for parameter in model.network.parameters() if parameter.requires_grad}
    assert len(norms) == (16 if "fcos" in name else 0)
    assert {decay.pop(parameter) for parameter in norms} <= {0.0}
    assert set(decay.values()) == {1e-4}
