"""Make a model parallel from outside: wrap its trained network, and give its optimizers the new parameters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from torchzoo.backends import NotRunnable
from torchzoo.case import Mode, Parallel
from torchzoo.devices import device_of
from torchzoo.measure.blocks import blocks
from torchzoo.model import Model
from torchzoo.model.tensor_parallel import CanNotSplit, library_plan


class DataParallel(DistributedDataParallel):
    """PyTorch's class, which also shows the attributes of the wrapped network, since a model may read them."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


def parallelize(model: Model, how: Parallel, mesh: DeviceMesh) -> None:
    """Make the step of `model` one part of a parallel step over the ranks of `mesh`.

    - `ddp`: the trained network in `DistributedDataParallel`.
    - `fsdp2`: `fully_shard` for each repeated block (`torchzoo.measure.blocks`) and for the network.
    - `tp`: `parallelize_module` with the model's own plan, or that of the network's library.

    All ranks must call it at the same time, and after casts, which would not reach the shards of the ranks.

    Raises:
        NotRunnable: there is no plan for this model; the message says why.
    """
    network = _parallel_network(model)
    _refuse_what_pytorch_can_not(model, network, how)
    before = dict(network.named_parameters())
    match how:
        case Parallel.DDP:
            _replace(model, network, _data_parallel(network, model.device, mesh))
        case Parallel.FSDP2:
            for block in blocks(network):
                fully_shard(block, mesh=mesh)
            fully_shard(network, mesh=mesh)
        case Parallel.TP:
            plan = model.tensor_parallel_plan() or library_plan(network)
            if plan is None:
                raise NotRunnable("this model has no plan for tensor parallelism")
            tied = _tied(network)
            try:
                parallelize_module(network, mesh, plan)
            except CanNotSplit as error:
                raise NotRunnable(str(error)) from error
            _tie(network, tied)
        case Parallel.NONE:
            raise ValueError("nothing to do")
    _hand_over(before, dict(network.named_parameters()), list(_optimizers(model)))


def _parallel_network(model: Model) -> nn.Module:
    networks = list(model.networks().values())
    if model.mode is Mode.TRAIN:
        networks = [one for one in networks if any(parameter.requires_grad for parameter in one.parameters())]
        if len(networks) != 1:
            raise NotRunnable(f"its step trains {len(networks)} networks: there is a plan for one only")
    elif len(networks) != 1:
        raise NotRunnable(f"its step has {len(networks)} networks: there is a plan for one only")
    return networks[0]


def _refuse_what_pytorch_can_not(model: Model, network: nn.Module, how: Parallel) -> None:
    if how is Parallel.TP and model.scaler is not None:
        raise NotRunnable(
            "its loss is scaled, and PyTorch can't unscale sharded and other gradients together: take amp_bf16"
        )
    has_sparse = any(getattr(module, "sparse", False) for module in network.modules())
    if (
        model.mode is Mode.TRAIN
        and has_sparse
        and (how is Parallel.FSDP2 or not device_of(model.device).reduces_sparse)
    ):
        other = "fully_shard" if how is Parallel.FSDP2 else "NCCL"
        raise NotRunnable(f"its embeddings have sparse gradients, which {other} can't average")


def _data_parallel(network: nn.Module, device: torch.device, mesh: DeviceMesh) -> DataParallel:
    ids = None if device.type == "cpu" else [device.index]
    return DataParallel(network, device_ids=ids, process_group=mesh.get_group())


def _replace(model: Model, network: nn.Module, wrapped: nn.Module) -> None:
    names = [name for name, value in vars(model).items() if value is network]
    for name in names:
        setattr(model, name, wrapped)
    if network in model.networks().values():
        raise NotRunnable("its network is not an attribute of the model, and can't be replaced by a wrapped one")


def _tied(network: nn.Module) -> list[list[str]]:
    """Return the names of parameters that are the same object, grouped by object."""
    names: dict[int, list[str]] = {}
    for name, parameter in network.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [same for same in names.values() if len(same) > 1]


def _tie(network: nn.Module, tied: list[list[str]]) -> None:
    """Make parameters the same object again: `parallelize_module` shards each of them separately."""
    for first, *others in tied:
        parameter = network.get_parameter(first)
        for name in others:
            if getattr(network.get_parameter(name), "placements", None) != getattr(parameter, "placements", None):
                raise NotRunnable(f"{first} and {name} are one parameter, and the plan shards them in different ways")
            module, _, attribute = name.rpartition(".")
            setattr(network.get_submodule(module), attribute, parameter)


def _optimizers(model: Model) -> Iterator[Optimizer]:
    for value in vars(model).values():
        for leaf in tree_leaves(value):
            if isinstance(leaf, Optimizer):
                yield leaf


def _hand_over(before: dict[str, nn.Parameter], after: dict[str, nn.Parameter], optimizers: list[Optimizer]) -> None:
    """Give the optimizers the parameters that replace those they have.

    Sharded and ordinary parameters are put into separate groups: an optimizer updates all tensors of a group in one
    call, which takes no mixture.
    """
    successors = {id(parameter): after[name] for name, parameter in before.items()}
    for optimizer in optimizers:
        if optimizer.state:
            raise ValueError("an optimizer has taken steps before its network was made parallel")
        for group in list(optimizer.param_groups):
            parameters = [successors.get(id(parameter), parameter) for parameter in group["params"]]
            group["params"], others = _apart(parameters)
            if others:
                optimizer.add_param_group({**group, "params": others})


def _apart(parameters: list[nn.Parameter]) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """Return the parameters of the same kind (sharded or ordinary) as the first, and the others."""
    kind = type(parameters[0].data)
    alike = [parameter for parameter in parameters if type(parameter.data) is kind]
    return alike, [parameter for parameter in parameters if type(parameter.data) is not kind]
