"""Define the contract with model folders: the class `Model`."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.data import SyntheticData

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

Inputs = tuple[Any, ...] | dict[str, Any]


class Model(abc.ABC):
    """A network or an algorithm, cut down to the step that matters.

    A subclass builds everything in `build`: networks, `self.batch` and optimizers, on `self.device`, with random
    weights. A step only computes: it reads no files, uses no network, copies nothing between host and device, does not
    synchronise, and makes no optimizers and no data. So that precision, compilation and timing can be applied from
    outside, a step
    - calls the networks of `networks()` by `network(...)`, never by `network.forward(...)` or another method;
    - computes forward passes and losses under `with self.autocast():`;
    - computes gradients by `self.backward(loss)` and updates by `self.step(optimizer)`.

    Args:
        mode: the step to call: `train_step` for `train`, and so on. Networks are in training mode for `train`, and in
            evaluation mode for all others.
        device: the device of networks and batch.
        batch_size: the size of the batch as the model's `metadata.yaml` counts it, at least 1.
        seed: the seed of weights and data.
        shard: the number, from 0, of this process's part of a batch that several processes share. Each part has other
            data; the weights are equal in all.
    """

    sample_unit: str = "samples"  # unit of `samples_per_step`

    #: All data that a step reads, except the networks: any nesting of tuples, lists, dicts and tensors.
    batch: Any

    def __init__(
        self, mode: Mode | str, device: torch.device | str, batch_size: int, *, seed: int = 0, shard: int = 0
    ) -> None:
        self.mode = Mode(mode)
        self.device = torch.device(device)
        self.batch_size = batch_size
        self.seed = seed
        self.shard = shard
        self.data = SyntheticData(self.device, seed, shard)
        self.autocast_dtype: torch.dtype | None = None  # set by torchzoo.measure.precision
        self.scaler: torch.amp.GradScaler | None = None  # set by torchzoo.measure.precision for autocast at fp16
        self.before_update: Callable[[list[nn.Parameter]], None] | None = None  # set by torchzoo.measure.check
        torch.manual_seed(seed)
        with self.device:
            self.build()
        for network in self.networks().values():
            network.to(self.device).train(self.mode is Mode.TRAIN)

    @abc.abstractmethod
    def build(self) -> None:
        """Make the networks, `self.batch` and, for training, the optimizers. New tensors are on the device."""

    @abc.abstractmethod
    def networks(self) -> dict[str, nn.Module]:
        """The modules to cast, compile and count, with frozen ones and copies. The main one comes first."""

    @property
    @abc.abstractmethod
    def example_inputs(self) -> Inputs:
        """Inputs of the first network of `networks()`, a part of `self.batch`: a tuple, or a dict of names."""

    def train_step(self) -> Tensor:
        """Update every trainable parameter once. Return the loss (of the main network), detached."""
        raise NotImplementedError

    def eval_step(self) -> Any:
        """Evaluate once. Return the outputs."""
        raise NotImplementedError

    def prefill_step(self) -> Any:
        """Read the prompts and fill the caches. Return the logits of each prompt's last position."""
        raise NotImplementedError

    def decode_step(self) -> Any:
        """Read one token of each sequence, with the caches of earlier tokens. Return the logits of the next token.

        Each step does the same work, since its token has the same position.
        """
        raise NotImplementedError

    @classmethod
    def small(cls) -> type[Model] | None:
        """A subclass that builds the same classes at a small size, so that a CPU can test its steps.

        Only models that are `large` by their metadata have one; None for others.
        """
        return None

    @classmethod
    def reference(cls) -> type[Model]:
        """The class whose results at fp64 are the reference of `--check`.

        The default is this class. A class with operators without fp64 needs another.
        """
        return cls

    def tensor_parallel_plan(self) -> dict[str, ParallelStyle] | None:
        """The styles with which `parallelize_module` shards the network, by module path (`*` for any name).

        None without a plan.
        """
        return None

    @property
    def measured_step(self) -> Callable[[], Any]:
        """The step of this model's mode."""
        step: Callable[[], Any] = getattr(self, f"{self.mode}_step")
        return step

    @property
    def bytes_read_per_step(self) -> int | None:
        """The bytes that a step must read at least: weights and caches, each once. None if they hardly matter.

        The bytes bound steps that compute little with them, such as those that generate one token.
        """
        return None

    @property
    def samples_per_step(self) -> int:
        """The number of samples (images, sequences, ...: `sample_unit`) of a step."""
        return self.batch_size

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The context of forward passes and losses: autocast under an `amp` precision, otherwise no context."""
        if self.autocast_dtype is None:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, self.autocast_dtype)

    def backward(self, loss: Tensor, *, retain_graph: bool = False) -> None:
        """Compute the gradients of `loss`, scaled if autocast runs at fp16."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward(retain_graph=retain_graph)  # type: ignore[no-untyped-call]

    def step(self, *optimizers: torch.optim.Optimizer, max_grad_norm: float | None = None) -> None:
        """Make one update by each optimizer, after one backward pass.

        `max_grad_norm` clips the norm of all gradients of the optimizers, unscaled.
        """
        groups = [group for optimizer in optimizers for group in optimizer.param_groups]
        parameters = [parameter for group in groups for parameter in group["params"]]
        if self.before_update is not None:
            self.before_update(parameters)
        if max_grad_norm is not None:
            if self.scaler is not None:
                for optimizer in optimizers:
                    self.scaler.unscale_(optimizer)
            clip_norm(parameters, max_grad_norm)
        for optimizer in optimizers:
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
        if self.scaler is not None:
            self.scaler.update()


def gradient_norm(parameters: Iterable[nn.Parameter]) -> Tensor:
    """The norm of all gradients, some of which may be sharded over processes."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    kinds = {type(gradient) for gradient in gradients}
    norms = [nn.utils.get_total_norm([one for one in gradients if type(one) is kind]) for kind in kinds]
    whole: list[Tensor] = [one.full_tensor() if hasattr(one, "full_tensor") else one for one in norms]
    norm: Tensor = torch.linalg.vector_norm(torch.stack(whole))
    return norm


def clip_norm(parameters: list[nn.Parameter], max_norm: float) -> None:
    """Clip the norm of all gradients. Some may be sharded over processes (`DTensor`) and some not."""
    kinds = {type(parameter.grad) for parameter in parameters if parameter.grad is not None}
    if len(kinds) < 2:
        nn.utils.clip_grad_norm_(parameters, max_norm)
        return
    norm = gradient_norm(parameters)
    for kind in kinds:
        alike = [one for one in parameters if type(one.grad) is kind]
        nn.utils.clip_grads_with_norm_(alike, max_norm, norm)
