"""`torchzoo doctor --executor ray`: the hosts that a spread run would use, and what is missing there."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from torchzoo.machine.differences import MachineKind, differences_of_kinds
from torchzoo.report import terminal
from torchzoo.run.spread import protocol
from torchzoo.run.spread.crew import Crew, Member
from torchzoo.run.spread.executor import Engine, Executor, open_nodes
from torchzoo.run.spread.nodes import EngineError
from torchzoo.zoo.folders import bundled


def show_cluster(executor: Executor) -> int:
    """Say what the engine has: hosts, devices, and the kinds of machines.

    Raises:
        EngineError: the engine can't be used; the message says what is missing.
    """
    if executor.engine is Engine.SLURM:
        return _show_slurm()
    with tempfile.TemporaryDirectory() as folder, open_nodes(executor, (), Path(folder)) as nodes:
        prepare = protocol.Prepare(models=(), backends=(), import_limit_s=600.0, models_root=str(bundled("models")))
        crew = Crew(nodes, prepare, terminal.say)
        crew.gather(lambda member: member.prepared is not None)
        _show_hosts([member for member in crew.members.values() if member.prepared is not None])
    return 0


def _show_hosts(members: list[Member]) -> None:
    kinds: dict[MachineKind, int] = {}
    rows = []
    for member in members:
        assert member.prepared is not None
        machine = member.prepared.machine
        devices = ", ".join(f"{kind} x {count}" for kind, count in machine.devices.items())
        number = kinds.setdefault(member.facts, len(kinds) + 1)
        rows.append((member.host, devices, machine.device_class(machine.default_device), f"kind {number}"))
    print("hosts that --executor ray would use")
    terminal.show(terminal.indented(terminal.table(("", "", "", ""), rows, has_headings=False)))
    if len(kinds) == 1:
        terminal.show_line("all are of one kind: " + ", ".join(f"{name} {value}" for name, value in next(iter(kinds))))
        return
    terminal.show_line("they differ: choose one kind with --host-kind WORDS, or mix them with --host-kind any")
    for number, text in enumerate(differences_of_kinds(list(kinds)), start=1):
        terminal.show_line(f"  kind {number}: {text}")


def _show_slurm() -> int:
    """What Slurm says of its nodes. Their software is looked at when a run has them."""
    try:
        import submitit  # noqa: F401
    except ImportError as error:
        raise EngineError("--executor slurm needs submitit: pip install submitit") from error
    if shutil.which("sinfo") is None:
        raise EngineError("--executor slurm: there is no sinfo here; run torchzoo on a login node of the cluster")
    asked = subprocess.run(
        ["sinfo", "--noheader", "--format=%P|%D|%t|%c|%G|%l"],  # noqa: S607  the user's own sinfo
        check=False,
        capture_output=True,
        text=True,
    )
    if asked.returncode != 0:
        raise EngineError(f"Slurm does not answer: {' '.join(asked.stderr.split())[:200]}")
    rows = [tuple(line.split("|")) for line in asked.stdout.splitlines()]
    print("what --executor slurm can use: --nodes N tasks, each with a host of its own, chosen by --sbatch KEY=VALUE")
    headings = ("partition", "hosts", "state", "CPUs", "GPUs (gres)", "time limit")
    terminal.show(terminal.indented(terminal.table(headings, rows)))
    return 0
