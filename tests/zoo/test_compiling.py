"""Every kind of network that the zoo has is compiled by Dynamo, and its step computes what eager computes.

Dynamo runs the graphs that it finds as they are (`eager_noexcept`). Tested is what torchzoo gives it to compile.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
from test_contract import missing_kinds, skip_without_its_libraries
from torch import Tensor
from torch.utils._pytree import tree_leaves

from torchzoo.analysis.refusals import why_unequal
from torchzoo.case import Backend, Case, Mode
from torchzoo.measure.compilation import count_compiled, watch_compilation
from torchzoo.measure.passes.flops import count_work
from torchzoo.measure.precision import inspect_step
from torchzoo.measure.variant import candidate_variant, eager_variant
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo.zoo.contract import take_step, trainable_parameters, unchanged
from torchzoo.zoo.spec import ModelSpec
from user_models import TINY, make_folder

BACKEND = Backend("eager_noexcept")
CATALOG = find_models()
TRAIN, EVAL = Mode.TRAIN, Mode.EVAL

#: For each kind of network a model that is compiled soon.
KINDS = {
    "of torchvision": ("squeezenet1_1", TRAIN),
    "of timm": ("timm_vision_transformer", EVAL),
    "of transformers": ("hf_DistilBert", EVAL),
    "written here": ("phlippe_resnet", TRAIN),
    "a GPT": ("nanogpt_shakespeare", EVAL),
    "a translator": ("attention_is_all_you_need_pytorch", TRAIN),
    "a GraphModule in int8": ("mobilenet_v2_quantized_qat", EVAL),
    "functions of fields": ("pyhpc_equation_of_state", EVAL),
    "vmap of gradients": ("functorch_dp_cifar10", TRAIN),
    "a derivative in its forward pass": ("lennard_jones", TRAIN),
    "hooks on modules": ("opacus_cifar10", TRAIN),
    "two networks that train in turns": ("dcgan", TRAIN),
    "actor, critics and targets": ("soft_actor_critic", TRAIN),
    "sparse gradients": ("dlrm", TRAIN),
    "an LSTM": ("tts_angular", TRAIN),
    "CTC": ("doctr_reco_predictor", TRAIN),
    "a dynamic programme": ("pytorch_struct", TRAIN),
    "greedy decoding": ("rnnt", EVAL),
    "messages on a graph": ("basic_gnn_gcn", TRAIN),
    "an equation's solver": ("neural_ode", EVAL),
    "a language model with a cache": ("llama3_2_1b", Mode.DECODE),
    "a state space with a cache": ("mamba2_1_3b", Mode.DECODE),
    "a delta rule with a cache": ("qwen3_5_0_8b", Mode.DECODE),
    "adapters on a frozen model": ("llama3_8b_lora", TRAIN),
    "histories of users": ("dlrm_v3_hstu", EVAL),
    "Fourier transforms": ("fno2d", TRAIN),
    "a Cholesky decomposition": ("exact_gp", TRAIN),
    "forces of atoms": ("schnet", TRAIN),
    "training of transformers": ("hf_Albert", TRAIN),
    "an encoder and a decoder": ("hf_T5", EVAL),
    "hashed attention": ("hf_Reformer", EVAL),
    "a GraphModule with observers": ("mobilenet_v2_quantized_qat", TRAIN),
    "a larger GraphModule with observers": ("resnet50_quantized_qat", TRAIN),
    "gradient steps in its forward pass": ("maml_omniglot", TRAIN),
    "an episode": ("LearningToPaint", EVAL),
    "beam search": ("speech_transformer", EVAL),
    "a decoder called for each frame": ("tacotron2", EVAL),
    "lists of images": ("detectron2_fcos_r_50_fpn", EVAL),
    "lists of images in two stages": ("vision_maskrcnn", EVAL),
    "Detectron2's stages": ("detectron2_fasterrcnn_r_50_fpn", EVAL),
    "of effdet": ("timm_efficientdet", EVAL),
    "of diffusers": ("DALLE2_pytorch", EVAL),
    "a denoiser": ("stable_diffusion_unet", TRAIN),
    "flow matching": ("sd3_medium", TRAIN),
    "experts": ("gpt_oss_mini", TRAIN),
    "attention in documents": ("llama3_2_1b_documents", EVAL),
    "images and texts": ("hf_clip", EVAL),
    "a classifier of speech": ("hf_Whisper", EVAL),
    "a recogniser of speech": ("whisper_turbo", TRAIN),
    "masks for prompts": ("sam2_hiera", EVAL),
    "masks for words": ("sam3", EVAL),
    "images in a prompt": ("qwen3_vl_2b", Mode.PREFILL),
    "a codec": ("dac_44khz", EVAL),
    "a codec without training": ("encodec_24khz", EVAL),
    "a folded protein": ("esmfold", EVAL),
}

QUANTIZED = '''"""Quantization-aware training (torchzoo's tests, 2026)."""

from torch import nn
from torchzoo_models._shared.quantization import QuantizedImageClassifier


class Model(QuantizedImageClassifier):
    image_size = 16

    def build_float_network(self):
        layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        return nn.Sequential(*layers, nn.Linear(8, 1000))
'''
DETECTOR = '''"""A small detector (torchzoo's tests, 2026)."""

from torch import nn
from torchvision.models.detection import FCOS
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchzoo.model.tasks import Detector


class Model(Detector):
    image_height = image_width = 64
    num_classes = 5

    def build_network(self):
        backbone = nn.Conv2d(3, 32, 8, stride=8)
        backbone.out_channels = 32
        anchors = AnchorGenerator(((8,),), ((1.0,),))
        return FCOS(backbone, self.num_classes, anchor_generator=anchors, min_size=64, max_size=64)
'''
#: Kinds of which the zoo has no model at all, or no small one.
SMALL = {
    "a Sequential": (TINY, TRAIN),
    "a GraphModule with observers": (QUANTIZED, TRAIN),
    "lists of images": (DETECTOR, TRAIN),
}


@pytest.fixture(autouse=True)
def _dynamo_as_it_was() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled_step_is_eagers(spec: ModelSpec, mode: Mode) -> None:
    """The first step of a new model gives the same in eager and compiled, by the same work on the same weights."""

    model_class = load_model_class(spec)
    model_class = model_class.small() or model_class

    def new_model() -> Any:
        return model_class(mode, "cpu", spec.smoke_batch_size)

    def first_step(model: Any) -> tuple[Any, list[str]]:
        torch.manual_seed(1)  # what a step draws
        with unchanged(trainable_parameters(model) if mode is TRAIN else {}) as same:
            result = take_step(model)
        return result, same

    model = new_model()
    eagers: list[tuple[Any, list[str]]] = []
    calls = inspect_step(model, lambda: eagers.append(first_step(model))).take_calls()
    del model
    model = new_model()
    case = Case(model=spec.name, mode=mode, device="cpu", backend=BACKEND, batch_size=spec.smoke_batch_size)
    watch = watch_compilation()
    candidate_variant(model, model.measured_step, case, calls).select()
    result, same = first_step(model)
    assert count_compiled(watch, case, None) is not None  # which raises if there was nothing to compile
    works = [count_work(model.measured_step)]
    eager_variant(model, model.measured_step).select()
    works.insert(0, count_work(model.measured_step))
    # In eager, PyTorch recomputes a layer up to the last tensor that it needs: much of a small layer.
    is_unequal = any(rule.matches(case) for rule in spec.unequal_work) or getattr(model, "checkpoints_layers", False)
    assert is_unequal or not why_unequal(*works)
    eager_result, eager_same = eagers[0]
    torch.testing.assert_close(tensors(result), tensors(eager_result))
    assert tensors(result)
    assert same == eager_same


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


#: Kinds whose graphs take minutes. The contract of their models is tested each time.
WEEKLY = {
    "a GraphModule with observers",
    "a larger GraphModule with observers",
    "lists of images",
    "lists of images in two stages",
    "Detectron2's stages",
    "of effdet",
    "of diffusers",
    "masks for prompts",
}


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        pytest.param(
            *one, id=what.replace(" ", "-"), marks=pytest.mark.weekly if what in WEEKLY else pytest.mark.contract
        )
        for what, one in KINDS.items()
    ],
)
def test_dynamo_compiles(name: str, mode: Mode) -> None:
    spec = CATALOG.spec(name)
    skip_without_its_libraries(spec)
    compiled_step_is_eagers(spec, mode)


@pytest.mark.parametrize(("code", "mode"), SMALL.values(), ids=[what.replace(" ", "-") for what in SMALL])
def test_dynamo_compiles_small(tmp_path: Path, code: str, mode: Mode) -> None:
    if "torchvision" in code:
        pytest.importorskip("torchvision")
    make_folder(tmp_path, "small", code)
    compiled_step_is_eagers(find_models([tmp_path]).spec("small"), mode)


def test_every_library_and_every_base_of_the_zoo_has_a_kind() -> None:
    """A network of a new library, or a base for a new task, is a new kind: add a small model of it to the list."""
    assert missing_kinds(name for name, _ in KINDS.values()) == set()
