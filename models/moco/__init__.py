"""MoCo, momentum contrast (He et al., 2019, arXiv:1911.05722), version 1 with ResNet-50.

A train step is one iteration of the paper's algorithm 1: the key encoder follows the query encoder, encodes the second
view of each image with its images shuffled, the query encoder learns to tell its image's key from those in the queue,
and the new keys replace the queue's oldest. On several devices shuffling separates the batch statistics of queries and
keys; here, on one device, it is only the same work. The queue holds 32,000 keys (the paper: 65,536). An eval step gives
the logits of the same contrast, and changes nothing.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .._shared.target_networks import MovingAverage, frozen_copy
from .network import Config, Encoder, Queue


class Model(torchzoo.model.Model):
    sample_unit = "images"
    image_size = 224
    momentum = 0.999  # of the key encoder

    def build(self) -> None:
        config = Config()
        shape = (self.batch_size, 3, self.image_size, self.image_size)
        self.batch = {"query_images": self.data.images(*shape), "key_images": self.data.images(*shape)}
        self.query_encoder = Encoder(config)
        self.key_encoder = frozen_copy(self.query_encoder)
        self.queue = Queue(config)
        if self.mode is Mode.TRAIN:
            self.oldest = torch.arange(self.batch_size)  # (B,) the rows of the queue that are replaced next
            self.optimizer = torch.optim.SGD(self.query_encoder.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
            self.average = MovingAverage(self.momentum)

    def networks(self) -> dict[str, nn.Module]:
        return {"query_encoder": self.query_encoder, "key_encoder": self.key_encoder, "queue": self.queue}

    @property
    def example_inputs(self) -> tuple[Tensor]:
        return (self.batch["query_images"],)

    def train_step(self) -> Tensor:
        self.average.follow(self.key_encoder, self.query_encoder)
        self.optimizer.zero_grad()
        with self.autocast():
            with torch.no_grad():
                keys = self.encode_shuffled(self.batch["key_images"])
            logits = self.queue(self.query_encoder(self.batch["query_images"]), keys)
            loss = F.cross_entropy(logits, torch.zeros_like(self.oldest))  # its own key comes first
        self.backward(loss)
        self.step(self.optimizer)
        self.enqueue(keys)
        return loss.detach()

    def encode_shuffled(self, images: Tensor) -> Tensor:
        order = torch.randperm(self.batch_size, device=self.device)
        keys: Tensor = self.key_encoder(images.index_select(0, order))
        return keys.index_select(0, order.argsort())

    @torch.no_grad()
    def enqueue(self, keys: Tensor) -> None:
        self.queue.keys.index_copy_(0, self.oldest, keys.to(self.queue.keys.dtype))
        self.oldest.add_(self.batch_size).remainder_(len(self.queue.keys))

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            keys = self.key_encoder(self.batch["key_images"])
            logits: Tensor = self.queue(self.query_encoder(self.batch["query_images"]), keys)
        return logits
