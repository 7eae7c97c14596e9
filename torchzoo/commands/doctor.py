"""`torchzoo doctor`: show what this machine or a cluster can run, and measure its speed and suitable batch sizes."""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from torchzoo import backends
from torchzoo.analysis.peaks import PATHS, datasheet, keep_measured, measured_file, measured_key, read_measured
from torchzoo.case import EAGER, Axes, Mode, Precision
from torchzoo.commands.arguments import (
    add_models,
    check_given,
    choices,
    chosen_models,
    devices_of,
    positive_int,
    seconds,
    usable_path,
)
from torchzoo.commands.executor_options import NAMES as EXECUTOR_OPTIONS
from torchzoo.commands.executor_options import Engine, Executor, add_executor, executor_of
from torchzoo.errors import UsageError
from torchzoo.machine.differences import MachineKind, differences_of_kinds, machine_kind
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import MeasuredPeaks
from torchzoo.report import terminal
from torchzoo.report.document import Column, table
from torchzoo.run.batches import TIME_LIMIT_S, TunedBatch, default_file, read_tuned, write_tuned
from torchzoo.run.cluster import Cluster
from torchzoo.run.experiment import here, ready
from torchzoo.run.host_process import HostStart
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.plan import AUTO
from torchzoo.run.pool import Pool
from torchzoo.run.ray_hosts import ClusterError, RayHosts
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import RunStore
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.programs import install_words
from torchzoo.zoo.requirements import is_installed


def add_parser(commands: Any) -> None:
    """Add `doctor` to argparse's subcommands."""
    parser = commands.add_parser("doctor", help="say what this machine can run, and measure what suits it")
    parser.add_argument(
        "--peaks",
        action="store_true",
        help="measure how fast matrix products and copies are at most, and keep it for reports",
    )
    parser.add_argument(
        "--batches",
        action="store_true",
        help="find evaluation batch sizes: double the batch of each MODEL until throughput stops rising (by 5%%) or "
        "memory is out, and keep what was found in --file; `torchzoo run` uses torchzoo's own file where the device "
        "matches",
    )
    add_models(parser)
    tuning = parser.add_argument_group("batches", "with --batches")
    tuning.add_argument("-d", "--device", metavar="D", help="cpu, cuda, ... (default: the accelerator, else cpu)")
    tuning.add_argument("--precision", default="default", metavar="P", help=f"{', '.join(Precision)}")
    tuning.add_argument(
        "--file", type=usable_path, default=default_file(), metavar="F", help="(default: torchzoo's own)"
    )
    tuning.add_argument("--time-limit", type=seconds, default=TIME_LIMIT_S, metavar="S", help="of timing a batch size")
    tuning.add_argument("-j", "--jobs", type=positive_int, metavar="N", help="as for run")
    add_executor(parser)
    parser.set_defaults(command=run, parser=parser)


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Show devices, versions, backends and models: what can run here, and what to install for the rest.

    With --batches or --peaks, only measure those; with an executor other than `local`, only show its hosts.
    """
    if arguments.batches:
        obeyed = ("batches", "models", "suite", "models_dir", "device", "precision", "file", "time_limit", "jobs")
        check_given(arguments, obeyed, "--batches measures models on this machine")
        return _tune_batches(arguments)
    check_given(arguments, ("peaks", *EXECUTOR_OPTIONS), "without --batches no model is measured")
    executor = executor_of(arguments)
    if executor.engine is not Engine.LOCAL:
        if arguments.peaks:
            raise UsageError("--peaks measures this machine: run it on a host of the kind that you use")
        return _show_cluster(executor)
    with Pool([]) as pool:
        machine = pool.machine_info()
        if arguments.peaks:
            measure_and_keep_peaks(pool, machine)
            return 0
    _show_machine(machine)
    _show_backends(machine)
    _show_models()
    return 0


# --- this machine ---


def _show_machine(machine: MachineInfo) -> None:
    environment = machine.environment
    memory_gib = environment.host_memory_bytes / 2**30
    cores = f"{environment.cpu_usable} of {environment.cpu_count} cores"
    print(f"torchzoo {environment.torchzoo}, Python {environment.python}, {environment.platform}")
    print(f"torch {environment.torch}, CUDA {environment.cuda}, cuDNN {environment.cudnn}")
    print(f"{environment.cpu}, {cores}, {memory_gib:.0f} GiB")
    for gpu in environment.gpus:
        print(f"{gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, driver {gpu.driver}")
    print("devices: " + ", ".join(f"{kind} x {count}" for kind, count in machine.devices.items()))


def _show_backends(machine: MachineInfo) -> None:
    print("\nbackends")
    rows = []
    for name, info in backends.BACKENDS.items():
        is_absent = info.package is not None and importlib.util.find_spec(info.package) is None
        is_for_other_devices = info.devices and not set(info.devices) & set(machine.devices)
        rows.append((name, info.install if is_absent else info.why_limited if is_for_other_devices else "ready"))
    _show_rows(rows)
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
    _show_rows(rows)
    for error in errors:
        terminal.show_line(f"  {error}")


def _show_rows(rows: Sequence[tuple[str, ...]]) -> None:
    headings = [""] * max(map(len, rows), default=1)
    terminal.show(terminal.indented(terminal.table(headings, rows, has_headings=False)))


# --- batches ---


def _tune_batches(arguments: argparse.Namespace) -> int:
    from torchzoo.commands.run import say_tried

    tuned = read_tuned(arguments.file)  # raises now, not after the search, if the file can't be read
    patterns, suites = chosen_models(arguments)
    devices = devices_of(arguments.device)[:1] if arguments.device is not None else ()
    precision = choices(arguments.precision, Precision, "precision")[0]
    request = RunRequest(
        patterns=patterns,
        suites=suites,
        axes=Axes(
            modes=(Mode.EVAL,),
            devices=devices,
            backends=(EAGER,),
            precisions=(precision,),
            batch_sizes=(AUTO,),
        ),
        settings=Settings(time_limit_s=arguments.time_limit),
        jobs=arguments.jobs,
        models_dirs=tuple(map(str, arguments.models_dir)),
    )
    with tempfile.TemporaryDirectory(prefix="torchzoo-tune-") as folder, RunStore(Path(folder) / "run") as store:
        experiment = ready(here(store), request, on_tried=say_tried)
        with experiment.workers:
            (part,) = experiment.parts.values()
    for planned in part.left:
        if planned.resolved is not None:
            say_tried(planned.case, planned.resolved, None)
    found = {
        curve.case.model: TunedBatch(
            batch_size=curve.case.batch_size or 1,
            precision=precision,
            torch=part.machine.environment.torch,
            date=f"{dt.datetime.now(dt.UTC):%Y-%m-%d}",
            samples_per_s={size: float(f"{rate:.4g}") for size, rate in curve.samples_per_s.items()},
        )
        for curve in part.manifest.batch_curves
    }
    for name, one in found.items():
        curve = ", ".join(f"{size}: {rate:g}" for size, rate in one.samples_per_s.items())
        terminal.show_line(f"{name}: batch {one.batch_size} (samples/s at {curve})")
    if found:
        tuned.setdefault(part.machine.device_class(part.manifest.cases[0].device), {}).update(found)
        write_tuned(arguments.file, tuned)
    terminal.say(f"kept in {arguments.file}")
    return 0 if found else 1


# --- peaks ---


def measure_and_keep_peaks(pool: Pool, machine: MachineInfo) -> None:
    """Measure, show and keep the peaks of one device of each name and of the CPU, each in a process of its own."""
    file = measured_file()
    read_measured(file)  # raises now, not after the measurement, if the file can't be read
    for device in devices_to_measure(machine):
        terminal.say(f"measuring {device} ...")
        name, threads, peaks = pool.measured_peaks(device)
        key = measured_key(name, threads)
        keep_measured(file, key, peaks)
        print(f"\n{key}, torch {peaks.torch}: the best of several sizes, each the median of its runs")
        print("\n".join(beside_datasheet(key, peaks)))
        alike = devices_alike(machine, device)
        for world in worlds(len(alike)):
            key, rates = measured_key(name, None, world), pool.bus_peaks(alike[:world])
            today = f"{dt.datetime.now(dt.UTC):%Y-%m-%d}"
            keep_measured(file, key, MeasuredPeaks(bus_gb_per_s=rates, torch=version("torch"), date=today))
            told = ", ".join(f"{collective} {rate:,.4g} GB/s" for collective, rate in rates.items())
            print(f"\n{key}: bus bandwidth (as nccl-tests counts it) {told}")
    print(f"\nkept in {file}; reports use it for what a device's datasheet does not say")


def devices_alike(machine: MachineInfo, device: str) -> list[str]:
    """Return all devices with this device's name; for the CPU return it twice, for two processes that share it."""
    kind, _, index = device.partition(":")
    if not index:
        return [device] * 2
    name = machine.accelerators[int(index)].name
    return [f"{kind}:{number}" for number, one in enumerate(machine.accelerators) if one.name == name]


def worlds(count: int) -> list[int]:
    """Return the numbers of devices to measure together: 2, 4, 8 and so on, and all."""
    powers = [2**power for power in range(1, count.bit_length()) if 2**power <= count]
    return sorted({*powers, *([count] if count > 1 else [])})


def devices_to_measure(machine: MachineInfo) -> list[str]:
    """`cpu`, and the first accelerator of each name: `cuda:0`."""
    first = {
        accelerator.name: f"{kind}:{index}"
        for kind in machine.devices
        if kind != "cpu"
        for index, accelerator in reversed(list(enumerate(machine.accelerators)))
    }
    return ["cpu", *sorted(first.values())]


def beside_datasheet(key: str, peaks: MeasuredPeaks) -> list[str]:
    """The lines of a table of each path and of copying: measured, and in the datasheet if there is one."""
    sheet = datasheet(key)
    stated = {path: sheet.best_tflop_per_s(path) for path in PATHS} | {"copy": sheet.gb_per_s} if sheet else {}
    rows = []
    for path, measured in [*((one, peaks.tflop_per_s.get(one)) for one in PATHS), ("copy", peaks.gb_per_s)]:
        unit, known = "GB/s" if path == "copy" else "TFLOP/s", stated.get(path)
        values = ["" if value is None else f"{value:,.4g} {unit}" for value in (measured, known)]
        if any(values):
            rows.append([path, *values, f"{measured / known:.0%}" if measured is not None and known else ""])
    columns = (Column("path"), *(Column(name, is_number=True) for name in ("measured", "datasheet", "reached")))
    lines = terminal.lines(terminal.indented(terminal.render([table(columns, rows).used()])))
    return lines if sheet is None else [*lines, f"  datasheet: {sheet.title}, dense, {sheet.url}"]


# --- a cluster ---


def _show_cluster(executor: Executor) -> int:
    if executor.engine is Engine.SLURM:
        return _show_slurm()
    with RayHosts(executor.address, (), executor.nodes) as hosts:
        cluster = Cluster(hosts, terminal.say)
        cluster.gather(HostStart(settings=Settings()))
    kinds: dict[MachineKind, int] = {}
    rows = []
    for name, machine in ((name, one.machine) for name, one in cluster.ready.items()):
        devices = ", ".join(f"{kind} x {count}" for kind, count in machine.devices.items())
        number = kinds.setdefault(machine_kind(machine.environment), len(kinds) + 1)
        rows.append((name, devices, machine.device_class(machine.default_device), f"kind {number}"))
    print("hosts that --executor ray would use")
    _show_rows(rows)
    if len(kinds) == 1:
        terminal.show_line("all are of one kind: " + ", ".join(f"{name} {value}" for name, value in next(iter(kinds))))
        return 0
    terminal.show_line("they differ: choose one kind with --host-kind WORDS, or mix them with --host-kind any")
    for number, text in enumerate(differences_of_kinds(list(kinds)), start=1):
        terminal.show_line(f"  kind {number}: {text}")
    return 0


def _show_slurm() -> int:
    """Show Slurm's list of hosts. Their software is inspected when a run has them."""
    if shutil.which("sinfo") is None:
        raise ClusterError("--executor slurm: there is no sinfo here; run torchzoo on a login node of the cluster")
    asked = subprocess.run(
        ["sinfo", "--noheader", "--format=%P|%D|%t|%c|%G|%l"],  # noqa: S607  the user's own sinfo
        check=False,
        capture_output=True,
        text=True,
    )
    if asked.returncode != 0:
        raise ClusterError(f"Slurm does not answer: {' '.join(asked.stderr.split())[:200]}")
    rows = [tuple(line.split("|")) for line in asked.stdout.splitlines()]
    print("what --executor slurm can use: a job of --nodes N whole hosts, chosen by --sbatch KEY=VALUE")
    _show_rows([("partition", "hosts", "state", "CPUs", "GPUs (gres)", "time limit"), *rows])
    return 0
