"""Base classes for model folders. Each has the common code of a task's models."""

from __future__ import annotations

import abc
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode
from torchzoo.model import Inputs, Model
from torchzoo.model.data import OBJECTS_PER_IMAGE


class Batch(NamedTuple):
    """The inputs of a network, and the targets with which its loss compares the outputs."""

    inputs: Inputs
    targets: Any = None


class NetworkModel(Model):
    """A network on a batch. An eval step is its forward pass. Models that are never trained derive from this class.

    Attention of a network of transformers without a mask is made equal in eager and in compiled code, which
    transformers' own is not (see `torchzoo.model.attention`).
    """

    #: Whether the network keeps transformers' own attention.
    own_attention: ClassVar[bool] = False

    network: nn.Module
    batch: Batch

    def build(self) -> None:
        self.network = self.build_network().to(self.device)
        self.batch = self.build_batch()
        if type(self.network).__module__.startswith("transformers.") and not self.own_attention:
            from torchzoo.model.attention import attend_alike

            inputs = self.batch.inputs
            if not (isinstance(inputs, dict) and any("mask" in name for name in inputs)):
                attend_alike(self.network)

    @abc.abstractmethod
    def build_network(self) -> nn.Module: ...

    @abc.abstractmethod
    def build_batch(self) -> Batch: ...

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> Inputs:
        return self.batch.inputs

    def forward(self) -> Any:
        """The network's outputs on the batch."""
        inputs = self.batch.inputs
        return self.network(**inputs) if isinstance(inputs, dict) else self.network(*inputs)

    @torch.no_grad()
    def eval_step(self) -> Any:
        with self.autocast():
            return self.forward()


class SupervisedModel(NetworkModel):
    """A network, an optimizer, and the usual step: zero_grad, forward, loss, backward, update."""

    #: The norm that gradients are clipped to, or None.
    max_grad_norm: ClassVar[float | None] = None

    optimizer: torch.optim.Optimizer

    def build(self) -> None:
        super().build()
        if self.mode is Mode.TRAIN:
            self.optimizer = self.build_optimizer()

    @abc.abstractmethod
    def compute_loss(self, outputs: Any, targets: Any) -> Tensor: ...

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters())

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        with self.autocast():
            loss = self.compute_loss(self.forward(), self.batch.targets)
        self.backward(loss)
        self.step(self.optimizer, max_grad_norm=self.max_grad_norm)
        return loss.detach()


class ImageClassifier(SupervisedModel):
    """Images (B, 3, S, S) to logits (B, K); cross entropy on fixed integer targets, Adam."""

    sample_unit = "images"
    image_size: ClassVar[int] = 224
    num_classes: ClassVar[int] = 1000

    def build_batch(self) -> Batch:
        images = self.data.images(self.batch_size, 3, self.image_size, self.image_size)
        return Batch((images,), self.data.labels(self.batch_size, self.num_classes))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)


class TimmClassifier(ImageClassifier):
    """A timm model at its own default image size and number of classes, with timm's SGD.

    The optimizer has Nesterov momentum 0.9, and learning rate and weight decay of 1e-4, without decay of biases and
    normalisations.
    """

    def build_batch(self) -> Batch:
        cfg: dict[str, Any] = self.network.default_cfg  # type: ignore[assignment]
        images = self.data.images(self.batch_size, *cfg["input_size"])
        return Batch((images,), self.data.labels(self.batch_size, cfg["num_classes"]))

    def build_optimizer(self) -> torch.optim.Optimizer:
        from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]

        return create_optimizer_v2(self.network, "sgd", lr=1e-4, weight_decay=1e-4, momentum=0.9)


class TransformersModel(SupervisedModel):
    """A network of transformers: its own loss, from labels among its inputs, in training; its logits in evaluation."""

    def compute_loss(self, outputs: Any, targets: None) -> Tensor:
        loss: Tensor = outputs.loss
        return loss

    @torch.no_grad()
    def eval_step(self) -> Any:
        with self.autocast():
            return self.forward().logits


class LanguageModel(TransformersModel):
    """A transformers model on random tokens (B, T): its own loss in training, logits (B, T, V) in evaluation."""

    sample_unit = "sequences"
    train_length: ClassVar[int] = 512
    eval_length: ClassVar[int] = 512
    #: Arguments of the network's configuration, and those that make it small enough for a test on the CPU.
    sizes: ClassVar[dict[str, Any]] = {}
    small_sizes: ClassVar[dict[str, Any]] = {}

    @classmethod
    def small(cls) -> type[LanguageModel] | None:
        if not cls.small_sizes:
            return None
        return type("Small", (cls,), {"sizes": cls.sizes | cls.small_sizes, "train_length": 32, "eval_length": 32})

    def build_batch(self) -> Batch:
        inputs = {"input_ids": self.tokens()}
        name = "labels" if self.mode is Mode.TRAIN else self.second_eval_input
        if name:
            inputs[name] = self.tokens()
        return Batch(inputs)

    @property
    def length(self) -> int:
        """The number of tokens of a sequence in this mode."""
        return self.train_length if self.mode is Mode.TRAIN else self.eval_length

    def tokens(self) -> Tensor:
        """Draw (B, T) random tokens."""
        vocabulary_size: int = self.network.config.vocab_size  # type: ignore[union-attr, assignment]
        return self.data.tokens(self.batch_size, self.length, vocabulary_size)

    #: A second input of evaluation, in addition to `input_ids`.
    second_eval_input: ClassVar[str | None] = None


class Seq2SeqLM(LanguageModel):
    """An encoder-decoder. In evaluation, the decoder gets as many tokens as the encoder."""

    second_eval_input = "decoder_input_ids"


class SequenceClassifier(LanguageModel):
    """A transformers model that puts sequences (B, T) into classes: logits (B, K)."""

    def build_batch(self) -> Batch:
        inputs = {"input_ids": self.tokens()}
        if self.mode is Mode.TRAIN:
            classes: int = self.network.config.num_labels  # type: ignore[union-attr, assignment]
            inputs["labels"] = self.data.labels(self.batch_size, classes)
        return Batch(inputs)


class TokenClassifier(LanguageModel):
    """A transformers model that puts each token of (B, T) into a class: logits (B, T, K)."""

    def build_batch(self) -> Batch:
        inputs = {"input_ids": self.tokens()}
        if self.mode is Mode.TRAIN:
            classes: int = self.network.config.num_labels  # type: ignore[union-attr, assignment]
            inputs["labels"] = self.data.integers(0, classes, self.batch_size, self.length)
        return Batch(inputs)


class QuestionAnswerer(LanguageModel):
    """A transformers model that finds an answer in tokens (B, T): logits (B, T) of its start, and of its end."""

    def build_batch(self) -> Batch:
        inputs = {"input_ids": self.tokens()}
        if self.mode is Mode.TRAIN:
            inputs["start_positions"] = self.data.integers(0, self.length, self.batch_size)
            inputs["end_positions"] = self.data.integers(0, self.length, self.batch_size)
        return Batch(inputs)

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        with self.autocast():
            outputs = self.forward()
        return outputs.start_logits, outputs.end_logits


class Detector(SupervisedModel):
    """A torchvision-style detector on a list of images, in training with targets; its loss is the sum of its losses.

    Targets have `box_count` boxes per image, with labels in [1, `num_classes`) and, if `with_masks`, filled-box masks.
    `initialise` gives random weights the work of trained ones. Parameters that are not frozen are trained with SGD as
    in torchvision's references/detection/train.py.
    """

    sample_unit = "images"
    image_height: ClassVar[int] = 800
    image_width: ClassVar[int] = 1216
    num_classes: ClassVar[int] = 91  # background included
    box_count: ClassVar[int] = OBJECTS_PER_IMAGE
    with_masks: ClassVar[bool] = False
    learning_rate: ClassVar[float] = 0.02
    weight_decay: ClassVar[float] = 1e-4

    def initialise(self, image: Tensor) -> None:
        """Scale the network's random weights by its outputs on `image` (3, H, W). The default leaves them unchanged."""

    def build(self) -> None:
        super().build()
        self.initialise(self.data.uniform(3, self.image_height, self.image_width))

    def build_batch(self) -> Batch:
        height, width = self.image_height, self.image_width
        images = [self.data.uniform(3, height, width) for _ in range(self.batch_size)]
        if self.mode is Mode.EVAL:
            return Batch((images,))
        return Batch((images, [self._target() for _ in range(self.batch_size)]))

    def _target(self) -> dict[str, Tensor]:
        boxes = self.data.boxes(self.box_count, self.image_height, self.image_width)
        target = {"boxes": boxes, "labels": self.data.integers(1, self.num_classes, self.box_count)}
        if self.with_masks:
            x = torch.arange(self.image_width, device=self.device).view(1, 1, -1)
            y = torch.arange(self.image_height, device=self.device).view(1, -1, 1)
            x1, y1, x2, y2 = boxes.view(-1, 4, 1, 1).unbind(1)
            target["masks"] = ((x >= x1) & (x < x2) & (y >= y1) & (y < y2)).to(torch.uint8)
        return target

    def compute_loss(self, outputs: dict[str, Tensor], targets: None) -> Tensor:
        return torch.stack(list(outputs.values())).sum()

    def trainable(self) -> list[nn.Parameter]:
        return [parameter for parameter in self.network.parameters() if parameter.requires_grad]

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.trainable(), lr=self.learning_rate, momentum=0.9, weight_decay=self.weight_decay)
