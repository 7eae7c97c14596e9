"""What `--executor` says: who runs the cases of a run."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from pathlib import Path

import msgspec

from torchzoo.errors import UsageError, unknown
from torchzoo.run.spread.nodes import Nodes


class Engine(enum.StrEnum):
    LOCAL = "local"  # this machine
    RAY = "ray"  # the nodes of a Ray cluster
    SLURM = "slurm"  # tasks of a Slurm job


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, and what it is told."""

    engine: Engine = Engine.LOCAL
    address: str | None = None  # of a Ray cluster; None: the one that runs here
    host_kind: str | None = None  # words of the kind of machine to use; `any`: all kinds; None: there must be one
    nodes: int | None = None  # how many to use; None: all of a Ray cluster, one of Slurm
    sbatch: tuple[tuple[str, str], ...] = ()  # options for `sbatch`, without their dashes

    @property
    def is_local(self) -> bool:
        return self.engine is Engine.LOCAL


def parse_executor(text: str) -> tuple[Engine, str | None]:
    """`ray:10.0.0.1:6379` as an engine and an address.

    Raises:
        UsageError: no such engine, or an address where there can be none.
    """
    name, colon, address = text.partition(":")
    if name not in tuple(Engine):
        raise UsageError(unknown("executor", name, Engine))
    if colon and (name != Engine.RAY or not address):
        raise UsageError(f"--executor {text}: only ray has an address, as in ray:10.0.0.1:6379")
    return Engine(name), address or None


def parse_sbatch(words: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """`account=lab` as an option of `sbatch` and its value; the value of a flag such as `contiguous` is empty."""
    options = [word.lstrip("-").partition("=") for word in words]
    for word, (name, _, _) in zip(words, options, strict=True):
        if not name:
            raise UsageError(f"--sbatch {word}: write KEY=VALUE, as in --sbatch account=lab")
    return tuple((name, value) for name, _, value in options)


def open_nodes(executor: Executor, devices: Sequence[str], folder: Path) -> Nodes:
    """The nodes of an engine. Enter them to use them.

    Args:
        executor: not the local one.
        devices: what the cases need; empty: the accelerators, or the CPUs where there is none.
        folder: of the run.
    """
    if executor.engine is Engine.RAY:
        from torchzoo.run.spread.ray_nodes import RayNodes

        return RayNodes(executor.address, devices, executor.nodes)
    from torchzoo.run.spread.slurm_nodes import SlurmNodes

    return SlurmNodes(folder / "nodes", executor.nodes or 1, executor.sbatch)
