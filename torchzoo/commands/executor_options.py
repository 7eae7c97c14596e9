"""The options that choose where cases run: on this machine, or on the nodes of an engine."""

from __future__ import annotations

import argparse

from torchzoo.commands.arguments import positive_int
from torchzoo.errors import UsageError
from torchzoo.run.spread.executor import Engine, Executor, parse_executor, parse_sbatch

#: The destinations of the options in argparse.
NAMES = ("executor", "host_kind", "nodes", "sbatch")


def add_executor(parser: argparse.ArgumentParser) -> None:
    """Add the options that `executor_of` reads."""
    group = parser.add_argument_group(
        "executor", "where cases run; each GPU of a host, or the GPUs of one case together, has one case at a time"
    )
    group.add_argument(
        "--executor",
        default=Engine.LOCAL.value,
        metavar="E",
        help="local: this machine; ray or ray:ADDRESS: the nodes of a Ray cluster; slurm: tasks of an array job that "
        "torchzoo submits, one for each host (default: local)",
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
    """The executor that the options choose.

    Raises:
        UsageError: an option has an unknown word, or options contradict each other.
    """
    engine, address = parse_executor(arguments.executor)
    executor = Executor(
        engine=engine,
        address=address,
        host_kind=arguments.host_kind,
        nodes=arguments.nodes,
        sbatch=parse_sbatch(arguments.sbatch),
    )
    if executor.is_local and (executor.host_kind or executor.nodes):
        raise UsageError("--host-kind and --nodes choose among several hosts: they go with --executor ray or slurm")
    if engine is not Engine.SLURM and executor.sbatch:
        raise UsageError("--sbatch goes with --executor slurm")
    return executor
