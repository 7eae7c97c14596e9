"""The contract with model folders: `Model`, and the few bases that fill what is the same for a task."""

from __future__ import annotations

import abc
import contextlib
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.data import SyntheticData

Inputs = tuple[Any, ...] | dict[str, Any]


class Model(abc.ABC):
    """A network or an algorithm, cut down to the step that matters.

    A subclass builds everything in `build` (networks, `self.batch`, optimizers), on `self.device`, from random
    weights. A step computes and nothing else: no files, no network, no host-device copies, no synchronisation, no new
    optimizers, no data made up on the host. Precision, compilation and timing come from outside; so that they can, a
    step
    - calls the networks of `networks()` through `network(...)`, never `network.forward(...)` or another method;
    - computes its forward passes and losses under `with self.autocast():`;
    - goes backward by `self.backward(loss)` and updates by `self.step(optimizer)`.

    Args:
        mode: whether `train_step` or `eval_step` will be called; networks are put into that mode.
        device: where networks and batch live.
        batch_size: what the model's `metadata.yaml` counts as its batch, at least 1.
        seed: of the weights and the data.
    """

    sample_unit: ClassVar[str] = "samples"

    #: All data that a step reads beside the networks: any nesting of tuples, lists, dicts and tensors.
    batch: Any

    def __init__(self, mode: Mode | str, device: torch.device | str, batch_size: int, *, seed: int = 0) -> None:
        self.mode = Mode(mode)
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.seed = seed
        self.data = SyntheticData(self.device, seed)
        self.autocast_dtype: torch.dtype | None = None  # set by torchzoo.prepare
        self.scaler: torch.amp.GradScaler | None = None  # likewise, for autocast at fp16
        torch.manual_seed(seed)
        with self.device:
            self.build()
        for network in self.networks().values():
            network.to(self.device).train(self.mode is Mode.TRAIN)

    @abc.abstractmethod
    def build(self) -> None:
        """Make the networks, `self.batch` and, for training, the optimizers. Tensors made here land on the device."""

    @abc.abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """The modules that are cast, compiled and counted, frozen and target copies included; the main one first."""

    @property
    @abc.abstractmethod
    def example_inputs(self) -> Inputs:
        """Inputs of the first network of `networks()`, part of `self.batch`: positional (tuple) or by name (dict)."""

    def train_step(self) -> Tensor:
        """One whole update of every trainable parameter; returns the loss (of the main network), detached."""
        raise NotImplementedError

    def eval_step(self) -> Any:
        """One evaluation; returns its outputs."""
        raise NotImplementedError

    @property
    def samples_per_step(self) -> int:
        """How many `sample_unit`s one step works on."""
        return self.batch_size

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context of forward passes and losses: autocast under an `amp` precision, else nothing."""
        if self.autocast_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.autocast_dtype)

    def backward(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Gradients of `loss`, scaled where autocast runs at fp16."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]

    def step(self, optimizer: torch.optim.Optimizer, *, max_grad_norm: float | None = None) -> None:
        """One update by `optimizer`, where asked for with the norm of all its gradients clipped (unscaled before)."""
        if max_grad_norm is not None:
            if self.scaler is not None:
                self.scaler.unscale_(optimizer)
            parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
            nn.utils.clip_grad_norm_(parameters, max_grad_norm)
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)
            self.scaler.update()
