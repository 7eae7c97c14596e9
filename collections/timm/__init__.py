"""timm's architectures (Wightman, 2019, https://github.com/huggingface/pytorch-image-models) classifying images.

A name is that of an architecture, without the tag of weights: `timm:convnext_tiny`. Images have the size that timm's
default configuration names. An architecture that has no classifier there (it gives features) gets one of 1,000 classes.

timm starts some scales of residual branches at zero, so that no gradient enters the branches in the first step. Here
they start at one, as in the model folders of the zoo. The work of a step is the same.

Where PyTorch's own `benchmarks/dynamo` does other work: it loads pretrained weights, evaluates at timm's test size
where there is one, and takes the mean of the logits for the loss. Its optimizer is Adam, as here, but capturable and at
a learning rate of 0.01 instead of 0.001; it is SGD for `adv_inception_v3`, `ghostnet_100` and `tf_efficientnet_b0`.
"""

from typing import ClassVar

import timm
import torch
from torch import Tensor, nn

from torchzoo.model.tasks import Batch, TimmClassifier

CLASSES = 1000  # of an architecture that has no classifier by default


class Classifier(TimmClassifier):
    """One architecture, trained by Adam.

    Adam's first update changes every parameter whose gradient is not zero, however small the gradient is. (Scales of
    1e-6 on residual branches make gradients that a plain SGD loses in the rounding of fp32.)
    """

    architecture: ClassVar[str]

    def build_network(self) -> nn.Module:
        network = timm.create_model(self.architecture)
        if not network.num_classes:
            network.reset_classifier(CLASSES)
        open_branches(network)
        return network

    def build_batch(self) -> Batch:
        images = self.data.images(self.batch_size, *self.network.default_cfg["input_size"])  # type: ignore[index, misc]
        return Batch((images,), self.data.labels(self.batch_size, self.network.num_classes))  # type: ignore[arg-type]

    def compute_loss(self, outputs: Tensor | tuple[Tensor, ...], targets: Tensor) -> Tensor:
        """Cross entropy of the logits. Of several outputs the first ones are the classifier's."""
        return super().compute_loss(outputs[0] if isinstance(outputs, tuple) else outputs, targets)

    def build_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.network.parameters(), lr=1e-3)


def open_branches(network: nn.Module) -> None:
    """Start those scales at one that are zero: of normalisations, and gains of residual branches."""
    for name, parameter in network.named_parameters():
        is_scale = parameter.ndim <= 1 and not name.endswith("bias")
        if is_scale and not parameter.is_meta and not parameter.any():
            nn.init.ones_(parameter)


def model_class(name: str) -> type[Classifier]:
    """The class of one architecture."""
    return type("Model", (Classifier,), {"__module__": __name__, "architecture": name})
