"""`torchzoo doctor`: devices, versions, backends and models of this machine."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from torchzoo import backends
from torchzoo.commands.executor_options import add_executor, executor_of
from torchzoo.errors import UsageError
from torchzoo.machine.facts import MachineInfo
from torchzoo.report import terminal
from torchzoo.run.fork_server import ForkServer
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.programs import install_words
from torchzoo.zoo.requirements import is_installed


def add_parser(commands: Any) -> None:
    """Add `doctor` to argparse's subcommands."""
    parser = commands.add_parser("doctor", help="say what this machine can run")
    parser.add_argument(
        "--peaks",
        action="store_true",
        help="measure how fast matrix products and copies are at most, and keep it for reports",
    )
    add_executor(parser)
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Show devices, versions, backends and models: what can run here, and what to install for the rest."""
    executor = executor_of(arguments)
    if not executor.is_local:
        from torchzoo.commands.cluster import show_cluster

        if arguments.peaks:
            raise UsageError("--peaks measures this machine: run it on a host of the kind that you use")
        return show_cluster(executor)
    server = ForkServer([])
    machine = server.machine_info()
    if arguments.peaks:
        from torchzoo.commands.peaks import measure_and_keep_peaks

        measure_and_keep_peaks(server, machine)
        return 0
    _show_machine(machine)
    _show_backends(machine)
    _show_models()
    return 0


def _show_machine(machine: MachineInfo) -> None:
    environment = machine.environment
    memory_gib = environment["host_memory_bytes"] / 2**30
    cores = f"{environment['cpu_usable']} of {environment['cpu_count']} cores"
    print(f"torchzoo {environment['torchzoo']}, Python {environment['python']}, {environment['platform']}")
    print(f"torch {environment['torch']}, CUDA {environment['cuda']}, cuDNN {environment['cudnn']}")
    print(f"{environment['cpu']}, {cores}, {memory_gib:.0f} GiB")
    for gpu in environment["gpus"]:
        print(f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, driver {gpu['driver']}")
    print("devices: " + ", ".join(f"{kind} x {count}" for kind, count in machine.devices.items()))


def _show_backends(machine: MachineInfo) -> None:
    print("\nbackends")
    rows = []
    for name, info in backends.BACKENDS.items():
        is_absent = info.package is not None and importlib.util.find_spec(info.package) is None
        is_for_other_devices = info.devices and not set(info.devices) & set(machine.devices)
        rows.append((name, info.install if is_absent else info.why_limited if is_for_other_devices else "ready"))
    terminal.show(terminal.indented(terminal.table(("", ""), rows, has_headings=False)))
    others = sorted(set(machine.dynamo_backends) - set(backends.BACKENDS))
    terminal.show_line(f"  also, registered with Dynamo: {', '.join(others)}")


def _show_models() -> None:
    specs, errors = find_models().specs()
    missing = {spec.name: [one for one in spec.requirements if not is_installed(one)] for spec in specs}
    rows = [
        (name, f"{', '.join(some)} not installed: {' '.join(install_words())} {name}")
        for name, some in missing.items()
        if some
    ]
    print(f"\nmodels: {len(specs) - len(rows)} of {len(specs) + len(errors)} ready")
    terminal.show(terminal.indented(terminal.table(("", ""), rows, has_headings=False)))
    for error in errors:
        terminal.show_line(f"  {error}")
