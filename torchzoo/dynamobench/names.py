"""Which model of ours a name means that dynamobench asks for."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from torchzoo.files import read_yaml
from torchzoo.zoo import catalog as zoo_catalog
from torchzoo.zoo.catalog import Catalog

#: Before the name of a model of ours: dynamobench then knows nothing about it, and treats it as any other.
PLAIN = "torchzoo_"

#: Names under which dynamobench does not measure what the model's folder says. It is told the plain names instead.
CHANGED = {
    "vision_maskrcnn": "trains it with four boxes an image, in evaluation mode",
    "yolov3": "gives it images of its own, of 384 x 512",
}

#: Names that dynamobench treats in a way that our models do not bear, and how.
SPECIAL = {
    "torchrec_dlrm": "for this name dynamobench takes batches of TorchRec apart; take --only dlrm_dcnv2",
}


class TorchBenchNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`torchbench_names.yaml`: for each of TorchBench's models, ours or `nothing`, and after `; ` what differs."""

    core: dict[str, str]
    canary: dict[str, str]


class NameRefused(msgspec.Struct, frozen=True):
    """There is no model for a name, and why."""

    reason: str


@functools.cache
def torchbench_names() -> TorchBenchNames:
    """The table of TorchBench's names."""
    return read_yaml(Path(zoo_catalog.__file__).with_name("torchbench_names.yaml"), TorchBenchNames)


def listed(name: str) -> str:
    """The name of a folder of ours that dynamobench is told where it runs all models."""
    return f"{PLAIN}{name}" if name in CHANGED else name


def split(line: str) -> tuple[str, str]:
    """A line of the table: the model of ours, and the remark."""
    ours, _, remark = line.partition("; ")
    return ours, remark


def resolve(name: str, catalog: Catalog) -> str | NameRefused | None:
    """The model of ours that a name means; None if nothing has the name.

    A folder of ours counts first, then TorchBench's table.
    """
    if name in SPECIAL:
        return NameRefused(f"{name}: {SPECIAL[name]}")
    plain = name.removeprefix(PLAIN)
    if plain in catalog.folders:
        return plain
    table = torchbench_names()
    line = (table.core | table.canary).get(name)
    if line is None:
        return None
    ours, remark = split(line)
    return NameRefused(f"{name}: torchzoo has no model that does its work: {remark}") if ours == "nothing" else ours
