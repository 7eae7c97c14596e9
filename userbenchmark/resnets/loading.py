"""ResNets whose training step begins with loading its images, as timm's train.py does.

The plan copies this file into each model folder that it writes.
"""

from __future__ import annotations

import io
import weakref
from collections.abc import Generator, Iterable
from typing import Any, ClassVar

import numpy as np
import timm
import torch
from PIL import Image
from timm.data import create_loader  # type: ignore[attr-defined]
from torch import Tensor, nn
from torch.utils.data import Dataset

from torchzoo.model.tasks import Batch, TimmClassifier

IMAGES = 512  # encoded images in memory, which are decoded repeatedly
WIDTH, HEIGHT = 500, 375
QUALITY = 95
#: Workers deliver in order. If the loader is slower than the computation, about one batch in WORKERS is waited for, and
#: the next ones are ready. With timm's default of 4 and turns A B B A, all waits could fall on one side.
WORKERS = 5
LONGEST_EPOCH = 10**6  # images: the workers never stop to begin a new epoch


class JpegImages(Dataset[Any]):
    """A dataset of `IMAGES` encoded images, repeated as often as an epoch needs them."""

    transform: Any = None  # set by timm

    def __init__(self, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.encoded = []
        for _ in range(IMAGES):
            small = random.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), dtype=np.uint8)
            smooth = np.asarray(
                Image.fromarray(small).resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC), dtype=np.int16
            )
            grain = random.integers(-12, 13, smooth.shape, dtype=np.int16)
            image = io.BytesIO()
            Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(image, "JPEG", quality=QUALITY)
            self.encoded.append(image.getvalue())

    def __len__(self) -> int:
        return LONGEST_EPOCH

    def __getitem__(self, number: int) -> tuple[Any, int]:
        image = Image.open(io.BytesIO(self.encoded[number % IMAGES])).convert("RGB")
        return self.transform(image), number % TimmClassifier.num_classes


def batches_of(loader: Iterable[Any]) -> Generator[Batch, None, None]:
    """The loader's batches. The generator refers to no model, so it can be closed when the model is gone."""
    for images, labels in loader:
        yield Batch((images,), labels)


class LoadingClassifier(TimmClassifier):
    """A timm model whose step first takes a batch from timm's loader: decoding, augmentation, copying."""

    architecture: ClassVar[str]

    def build_network(self) -> nn.Module:
        return timm.create_model(self.architecture, zero_init_last=False)

    def build(self) -> None:
        super().build()
        self.batches = batches_of(self._loader())
        # The workers end with the model. The garbage collector alone would delete their queues first, and PyTorch would
        # wait 5 s for each worker before it kills it.
        weakref.finalize(self, self.batches.close)
        with torch.device("cpu"):  # the loader draws the order of the images on the CPU
            self.batch = next(self.batches)

    def _loader(self) -> Any:
        loader = create_loader(
            JpegImages(self.seed),  # type: ignore[arg-type]
            input_size=(3, self.image_size, self.image_size),
            batch_size=self.batch_size,
            is_training=True,
            color_jitter=0.4,
            interpolation="random",
            num_workers=WORKERS,
            device=self.device,
        )
        loader.loader.multiprocessing_context = "fork"  # other processes can't import this folder's modules by name
        return loader

    def train_step(self) -> Tensor:
        self.batch = next(self.batches)
        return super().train_step()
