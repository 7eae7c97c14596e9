"""`torchzoo doctor`: devices, versions, backends and models of this machine."""

from __future__ import annotations

import argparse
import importlib.util
from typing import Any

from torchzoo import backends
from torchzoo.run.processes import ForkServer
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.requirements import is_installed


def add_parser(commands: Any) -> None:
    """Add `doctor` to argparse's subcommands."""
    parser = commands.add_parser("doctor", help="say what this machine can run")
    parser.add_argument(
        "--peaks", action="store_true", help="measure what matrix products and copies reach, and keep it for reports"
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Devices, versions, backends and models: what can run here, and what to do about the rest."""
    server = ForkServer([])
    machine = server.machine_info()
    if arguments.peaks:
        from torchzoo.commands.peaks import measure_peaks

        measure_peaks(server, machine)
        return 0
    environment = machine.environment
    print(f"torchzoo {environment['torchzoo']}, Python {environment['python']}, {environment['platform']}")
    print(f"torch {environment['torch']}, CUDA {environment['cuda']}, cuDNN {environment['cudnn']}")
    memory_gib = environment["host_memory_bytes"] / 2**30
    print(
        f"{environment['cpu']}, {environment['cpu_usable']} of {environment['cpu_count']} cores, {memory_gib:.0f} GiB"
    )
    for gpu in environment["gpus"]:
        print(f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, driver {gpu['driver']}")
    print("devices: " + ", ".join(f"{kind} x {count}" for kind, count in machine.devices.items()))
    print("\nbackends")
    for name, info in backends.BACKENDS.items():
        absent = info.package is not None and importlib.util.find_spec(info.package) is None
        other_device = info.devices and not set(info.devices) & set(machine.devices)
        state = info.install if absent else info.why_limited if other_device else "ready"
        print(f"  {name:12} {state}")
    print(f"  also, registered with Dynamo: {', '.join(sorted(set(machine.dynamo_backends) - set(backends.BACKENDS)))}")
    specs, errors = find_models().specs()
    ready = [spec for spec in specs if all(is_installed(requirement) for requirement in spec.requirements)]
    print(f"\nmodels: {len(ready)} of {len(specs) + len(errors)} ready")
    for spec in specs:
        if spec not in ready:
            lacking = [requirement for requirement in spec.requirements if not is_installed(requirement)]
            print(f"  {spec.name:24} {', '.join(lacking)} not installed: python install.py {spec.name}")
    for error in errors:
        print(f"  {error}")
    return 0
