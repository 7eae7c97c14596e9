"""Write a collection's table of models: build each one, and call it where tensors have shapes but no data.

    python benchmarks/collection_table.py timm                # all of it
    python benchmarks/collection_table.py timm 'resnet*'      # some models, only to look at their lines

Each candidate of `collections/<name>/candidates.py` is built for training on the meta device. Its loss is computed
there, and its outputs in evaluation. What it has of parameters, and what it needs of memory, becomes its line in
`models.csv`. A question such as whether a mask hides nothing is answered there, as `Answers` says. One that needs other
data is tried on the CPU if it is small. One that does not build, or fails, goes to `left_out.csv` with the reason.
`--kept FILE` keeps what was found, so that a second call goes on where the first one was cut short.

Memory is estimated: in training weights, gradients, Adam's two moments and what autograd saves for the backward pass;
in evaluation the weights and four times the largest tensor.
"""

from __future__ import annotations

import argparse
import csv
import fnmatch
import gc
import json
import re
import resource
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from torchzoo.case import Mode
from torchzoo.errors import attempt, one_line
from torchzoo.measure.without_data import answers
from torchzoo.model.tasks import SupervisedModel
from torchzoo.model.tensors import tensors_in
from torchzoo.zoo.catalog import NEEDS_DATA
from torchzoo.zoo.folders import bundled, import_folder
from torchzoo.zoo.waiting import synchronising_operators

GIB = 2**30
BATCH_SIZE = 2  # of the steps that are taken

#: A batch that nobody has chosen is the largest power of two, up to the collection's own limit, that needs less than
#: this; one that somebody has chosen is halved until it needs less than `MOST_GIB`.
COMFORTABLE_GIB, MOST_GIB = 36.0, 70.0

#: Parameters of models that one GPU of 80 GB can hold in fp32: for evaluation, and for training with Adam.
MOST_TO_EVALUATE, MOST_TO_TRAIN = 16_000_000_000, 4_200_000_000

#: A model with more parameters than this is not tried on the CPU.
MOST_ON_CPU = 200_000_000

#: The most memory of this process. A model that does not fit fails, instead of the machine.
MOST_ADDRESS_SPACE = 14 * GIB

#: What a case needs beside its tensors: what the allocator can't use, the context of the device, workspaces.
OVERHEAD, OVERHEAD_GIB = 1.1, 1.0


class Saved:
    """The sizes of what autograd saves for the backward pass, parameters left out."""

    def __init__(self) -> None:
        self.storages: dict[int, torch.UntypedStorage] = {}

    def pack(self, tensor: Tensor) -> Tensor:
        if not isinstance(tensor, torch.nn.Parameter):
            storage = tensor.untyped_storage()
            self.storages[storage._cdata] = storage
        return tensor

    def sizes(self, network: nn.Module) -> list[int]:
        """Bytes of each, without the weights of `network` (of which views may be saved)."""
        weights = {one.untyped_storage()._cdata for one in network.parameters()}
        return [storage.nbytes() for key, storage in self.storages.items() if key not in weights]


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002  as torch's function
    scale: float | None = None,
    enable_gqa: bool = False,  # noqa: FBT001, FBT002
) -> Tensor:
    """Attention as a GPU computes it, in one kernel. (On the meta device PyTorch would take the unfused formula.)"""
    if enable_gqa:
        key, value = (one.repeat_interleave(query.shape[-3] // one.shape[-3], -3) for one in (key, value))
    bias = None
    if attn_mask is not None:
        shape = (*query.shape[:-1], key.shape[-2])
        added = attn_mask if attn_mask.is_floating_point() else torch.empty_like(attn_mask, dtype=query.dtype)
        bias = added.expand(shape).flatten(0, -4)
    four = (one.flatten(0, -4) if one.ndim > 3 else one.unsqueeze(0) for one in (query, key, value))
    attend = torch.ops.aten._scaled_dot_product_efficient_attention
    arguments = {"compute_log_sumexp": True, "dropout_p": dropout_p, "is_causal": is_causal, "scale": scale}
    result: Tensor = attend(*four, bias, **arguments)[0]
    return result.reshape(*query.shape[:-1], value.shape[-1])


@contextmanager
def fused(device: str) -> Iterator[None]:
    """Fused attention on the meta device."""
    if device != "meta":
        yield
        return
    with mock.patch("torch.nn.functional.scaled_dot_product_attention", fused_attention):
        yield


class Facts:
    """What was found out about one model, on one device. Making it raises whatever the model's library raises."""

    def __init__(self, model_class: type[SupervisedModel], device: str) -> None:
        model = model_class(Mode.TRAIN, device, BATCH_SIZE)
        self.parameters = sum(one.numel() for one in model.network.parameters())
        if self.parameters > MOST_TO_EVALUATE:
            raise ValueError(f"{self.parameters / 1e9:.0f} billion parameters: more than one GPU of 80 GB holds")
        saved = Saved()
        with waits(device) as seen_in_training, fused(device), saved_tensors_hooks(saved.pack, lambda one: one):
            loss = model.compute_loss(model.forward(), model.batch.targets)
        if loss.ndim:
            raise ValueError(f"the loss has {loss.ndim} dimensions")
        with waits(device), fused(device):
            self.unused = unused_parameters(model.network, loss)
        sizes = [*saved.sizes(model.network), *(one.nbytes for one in tensors_in(model.batch))]
        model.network.eval()
        with waits(device) as seen_in_evaluation, fused(device):
            outputs = tensors_in(model.eval_step())
        if not any(one.is_floating_point() for one in outputs):
            raise ValueError("evaluation gives no floating-point tensor")
        largest = max(one.nbytes for one in outputs)
        self.bytes_per_sample = {
            Mode.TRAIN: sum(sizes) / BATCH_SIZE,
            Mode.EVAL: 4 * max(*sizes, largest) / BATCH_SIZE,
        }
        seen = {Mode.TRAIN: seen_in_training, Mode.EVAL: seen_in_evaluation}
        self.waits = [mode for mode, operators in seen.items() if operators]
        self.inputs = model.batch.inputs

    def gib(self, mode: Mode, batch_size: int) -> float:
        """The device memory that a case needs."""
        weights = (16 if mode is Mode.TRAIN else 4) * self.parameters
        return OVERHEAD * (weights + self.bytes_per_sample[mode] * batch_size) / GIB + OVERHEAD_GIB


def waits(device: str) -> AbstractContextManager[set[str]]:
    """The operators that wait for the device."""
    return answers() if device == "meta" else synchronising_operators()


def unused_parameters(network: nn.Module, loss: Tensor) -> list[str]:
    """The parameters that the loss does not depend on, as globs where those of all layers are none of its."""
    seen: set[Any] = set()
    used: set[int] = set()
    to_see = [loss.grad_fn]
    while to_see:
        node = to_see.pop()
        if node is not None and node not in seen:
            seen.add(node)
            used.add(id(getattr(node, "variable", None)))
            to_see += [source for source, _ in node.next_functions]
    parameters = {name: one for name, one in network.named_parameters() if one.requires_grad}
    unused = {name for name, one in parameters.items() if id(one) not in used}
    if unused and attempt(loss.backward) is None:  # a function with a backward pass of its own, such as Reformer's
        unused = {name for name in unused if parameters[name].grad is None}  # layers, hides what it uses
        network.zero_grad()
    found: dict[str, None] = {}
    for name in sorted(unused):
        glob = re.sub(r"(?<=\.)\d+(?=\.)", "*", name)
        found[glob if set(fnmatch.filter(parameters, glob)) <= unused else name] = None
    return list(found)


def row_of(name: str, candidates: ModuleType, factory: ModuleType) -> dict[str, object]:
    """The line of one model. Raises whatever its library raises."""
    if (reason := candidates.other_work(name)) is not None:
        raise ValueError(reason)
    model_class: type[SupervisedModel] = factory.model_class(name)
    given: dict[str, object] | None = candidates.row(name)
    if given is not None:
        model = model_class(Mode.DECODE, "meta", BATCH_SIZE)
        return {"name": name, "parameters": sum(one.numel() for one in model.network.parameters()), **given}
    try:
        facts = Facts(model_class, "meta")
    except NEEDS_DATA as error:
        on_cpu = attempt(lambda: _on_cpu(model_class))
        if not isinstance(on_cpu, Facts):
            raise (on_cpu or error) from error
        facts = on_cpu
    row: dict[str, object] = {"name": name, "parameters": facts.parameters, **candidates.cells(name, facts.inputs)}
    chosen = candidates.batch_size(name)
    for mode in (Mode.TRAIN, Mode.EVAL):
        if mode is Mode.TRAIN and facts.parameters > MOST_TO_TRAIN:
            needed_gb = 16 * facts.parameters / 1e9
            row["no_train"] = f"weights, gradients and Adam's moments take {needed_gb:.0f} GB in fp32"
            continue
        batch_size = chosen or candidates.LARGEST_BATCH
        while batch_size > 1 and facts.gib(mode, batch_size) > (MOST_GIB if chosen else COMFORTABLE_GIB):
            batch_size //= 2
        row |= {mode.value: batch_size, f"{mode}_gib": float(f"{facts.gib(mode, batch_size):.3g}")}
    return {**row, "unused": " ".join(facts.unused), "waits": " ".join(facts.waits)}


def _on_cpu(model_class: type[SupervisedModel]) -> Facts | None:
    """The facts from tensors with data, of a model that is small; None if it is not."""
    model = attempt(lambda: model_class(Mode.TRAIN, "meta", BATCH_SIZE))
    if isinstance(model, Exception):
        model = model_class(Mode.TRAIN, "cpu", 1)
    count = sum(one.numel() for one in model.network.parameters())
    return Facts(model_class, "cpu") if count <= MOST_ON_CPU else None


def main() -> int:
    """Write `models.csv` and `left_out.csv`; with globs, print the lines of these models instead."""
    parser = argparse.ArgumentParser(description="Write a collection's table of models.")
    parser.add_argument("collection")
    parser.add_argument("globs", nargs="*")
    parser.add_argument("--kept", type=Path, help="a file of what was found before; what is found is added to it")
    arguments = parser.parse_intermixed_args()
    folder, full_name = bundled("collections") / arguments.collection, f"torchzoo_collections.{arguments.collection}"
    factory, candidates = import_folder(folder, full_name), import_module(f"{full_name}.candidates")
    warnings.simplefilter("ignore")
    _limit_memory()
    gc.freeze()  # what the library has made need not be looked at after each model
    rows = _kept(arguments.kept)
    for name in candidates.names():
        is_asked = not arguments.globs or any(fnmatch.fnmatchcase(name, glob) for glob in arguments.globs)
        if is_asked and name not in rows:
            row = attempt(lambda name=name: row_of(name, candidates, factory))  # type: ignore[misc]
            if isinstance(row, Exception):
                row = {"name": name, "reason": f"{type(row).__name__}: {one_line(row)}"}
            rows[name] = row
            print(json.dumps(row), flush=True)
            if arguments.kept:
                with arguments.kept.open("a", encoding="utf-8") as file:
                    file.write(f"{json.dumps(row)}\n")
            gc.collect()
    if not arguments.globs:
        write(folder / "models.csv", [row for row in rows.values() if "reason" not in row])
        write(folder / "left_out.csv", [row for row in rows.values() if "reason" in row])
    return 0


def _limit_memory() -> None:
    """A lower limit that the shell has set stays."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MOST_ADDRESS_SPACE if hard == resource.RLIM_INFINITY else min(hard, MOST_ADDRESS_SPACE)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))


def _kept(path: Path | None) -> dict[str, dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path is not None and path.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """A table, with a column for each key that has a value in some line."""
    columns = dict.fromkeys(key for row in rows for key in row)
    filled = [key for key in columns if any(row.get(key, "") != "" for row in rows)] or ["name", "reason"]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, filled, restval="", extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: str(row["name"])))


if __name__ == "__main__":
    sys.exit(main())
