"""Find the zoo's model for a name that dynamobench requests."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from torchzoo.files import read_yaml
from torchzoo.zoo import catalog as zoo_catalog
from torchzoo.zoo.catalog import Catalog

#: Prefix of names that dynamobench does not know, and treats without exceptions.
PLAIN = "torchzoo_"

#: Names that dynamobench measures otherwise than the model's folder says. Its list has the plain names instead.
CHANGED = {
    "vision_maskrcnn": "trains it with four boxes an image, in evaluation mode",
    "yolov3": "gives it images of its own, of 384 x 512",
}

#: Names whose treatment by dynamobench the zoo's models do not support, and the reason.
SPECIAL = {
    "torchrec_dlrm": "for this name dynamobench takes batches of TorchRec apart; take --only dlrm_dcnv2",
}


class TorchBenchNames(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`torchbench_names.yaml`: the zoo's model for each of TorchBench's, or `nothing`, and a remark after `; `."""

    core: dict[str, str]
    canary: dict[str, str]


class NameRefused(msgspec.Struct, frozen=True):
    """The reason why there is no model for a name."""

    reason: str


@functools.cache
def torchbench_names() -> TorchBenchNames:
    """The table of TorchBench's names."""
    return read_yaml(Path(zoo_catalog.__file__).with_name("torchbench_names.yaml"), TorchBenchNames)


def listed(name: str) -> str:
    """The name of a folder of the zoo in dynamobench's list of all models."""
    return f"{PLAIN}{name}" if name in CHANGED else name


def split(line: str) -> tuple[str, str]:
    """Split a line of the table into the zoo's model and the remark."""
    ours, _, remark = line.partition("; ")
    return ours, remark


def resolve(name: str, catalog: Catalog) -> str | NameRefused | None:
    """The zoo's model for a name; None if the name is unknown.

    The zoo's folders are searched first, then TorchBench's table.
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
