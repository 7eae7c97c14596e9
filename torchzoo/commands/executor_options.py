"""The options that choose where cases run: on this machine, or on the hosts of a cluster."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Sequence

import msgspec

from torchzoo.commands.arguments import positive_int
from torchzoo.errors import UsageError, unknown

#: The destinations of the options in argparse.
NAMES = ("executor", "host_kind", "nodes", "sbatch")


class Engine(enum.StrEnum):
    LOCAL = "local"  # this machine
    RAY = "ray"  # the hosts of a Ray cluster
    SLURM = "slurm"  # the hosts of a Slurm job, as a Ray cluster


class Executor(msgspec.Struct, frozen=True, kw_only=True):
    """An engine, and what it is told."""

    engine: Engine = Engine.LOCAL
    address: str | None = None  # of a Ray cluster; None: the one that runs here
    host_kind: str | None = None  # words of the kind of machine to use; `any`: all kinds; None: there must be one
    nodes: int | None = None  # how many hosts to use; None: all of a Ray cluster, one of Slurm
    sbatch: tuple[tuple[str, str], ...] = ()  # options for `sbatch`, without their dashes


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add the options that `executor_of` reads."""
    group = parser.add_argument_group(
        "executor", "where cases run; each GPU of a host, or the GPUs of one case together, has one case at a time"
    )
    group.add_argument(
        "--executor",
        default=Engine.LOCAL.value,
        metavar="E",
        help="local: this machine; ray or ray:ADDRESS: the hosts of a Ray cluster; slurm: the hosts of a job that "
        "torchzoo submits, and follows to its end (default: local)",
    )
    group.add_argument(
        "--nodes", type=positive_int, metavar="N", help="how many hosts to use (default: all of ray, one of slurm)"
    )
    group.add_argument(
        "--host-kind",
        metavar="WORDS",
        help="where hosts differ in hardware or software: use those of the kind that has these words, such as H200; "
        "any: mix them, but keep the repeats of a case on one kind",
    )
    group.add_argument(
        "--sbatch",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option for Slurm's sbatch, such as account=lab, partition=gpu, time=4:00:00 or gres=gpu:8; may be "
        "repeated",
    )


def executor_of(arguments: argparse.Namespace) -> Executor:
    """The executor that the options choose."""
    engine, address = parse_executor(arguments.executor)
    sbatch = parse_sbatch(arguments.sbatch)
    if engine is Engine.LOCAL and (arguments.host_kind or arguments.nodes):
        raise UsageError("--host-kind and --nodes choose among several hosts: they go with --executor ray or slurm")
    if engine is not Engine.SLURM and sbatch:
        raise UsageError("--sbatch goes with --executor slurm")
    return Executor(engine=engine, address=address, host_kind=arguments.host_kind, nodes=arguments.nodes, sbatch=sbatch)


def parse_executor(text: str) -> tuple[Engine, str | None]:
    """`ray:10.0.0.1:6379` as an engine and an address."""
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


def without_executor(words: Sequence[str]) -> list[str]:
    """The words of a command line without the options that choose the executor; `--nodes` and `--host-kind` stay."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--executor")
    parser.add_argument("--sbatch", action="append")
    return parser.parse_known_args(words)[1]
