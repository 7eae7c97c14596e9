"""A real Slurm of two nodes on this machine: a run has one row for each case, whatever becomes of its job and nodes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster, why_not

from examples import ROOT
from torchzoo.record import Measured
from torchzoo.store import read_run
from waiting import until

pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif("TORCHZOO_CLUSTER_TESTS" not in os.environ, reason="takes minutes: set TORCHZOO_CLUSTER_TESTS"),
    pytest.mark.skipif(why_not() is not None, reason=f"Slurm: {why_not()}"),
]

OPTIONS = ("-t", "train,eval", "-d", "cpu", "--bs", "smoke", "--time-limit", "0.2", "-q")
EXECUTOR = ("--executor", "slurm", "--nodes", "2")


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    with tempfile.TemporaryDirectory(prefix="tz-slurm-", dir="/tmp") as folder, SlurmCluster(Path(folder)) as made:
        yield made


def torchzoo(cluster: SlurmCluster, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words],
        env={**os.environ, **cluster.variables, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def rows(path: Path) -> int:
    records = path / "records.jsonl"
    return records.read_bytes().count(b"\n") if records.exists() else 0


def has_two_hosts(path: Path) -> bool:
    return (path / "run.json").exists() and len(read_run(path).manifest.hosts) == 2


def test_a_suite_runs_in_a_job_though_a_node_goes_down(cluster: SlurmCluster, tmp_path: Path) -> None:
    path = tmp_path / "run"
    running = torchzoo(cluster, "--suite", "smoke", *OPTIONS, *EXECUTOR, "-o", str(path))
    until(lambda: (rows(path) >= 2 and has_two_hosts(path)) or running.poll() is not None, "no rows came")
    cluster.call("scontrol", "update", "nodename=n2", "state=down", "reason=test")
    shown, said = running.communicate(timeout=400)
    assert running.returncode == 0, said
    assert " is lost: " in said
    assert "resnet18" in shown
    assert rows(path) == len(read_run(path).manifest.cases) == 12
    assert all(isinstance(record.outcome, Measured) for record in read_run(path).records)
    assert cluster.call("squeue", "--noheader") == ""


def requeue(cluster: SlurmCluster, running: subprocess.Popen[str], _: Path) -> None:
    """Requeue the job: Slurm starts it again some two minutes later, and it goes on by itself."""
    cluster.call("scontrol", "requeue", cluster.call("squeue", "--noheader", "--format=%i").split()[0])
    _, said = running.communicate(timeout=500)
    assert running.returncode == 0, said


def interrupt(cluster: SlurmCluster, running: subprocess.Popen[str], path: Path) -> None:
    """Interrupt the program, which cancels the job, and resume."""
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=120)
    assert running.returncode == 130
    assert f"torchzoo run --executor slurm --nodes 2 --resume {path}" in said
    assert cluster.call("squeue", "--noheader") == ""
    resumed = torchzoo(cluster, "--resume", str(path), "-q", *EXECUTOR)
    _, said = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, said


@pytest.mark.parametrize("disturb", [interrupt, requeue])
def test_a_job_that_ends_early_keeps_its_rows_and_goes_on(
    cluster: SlurmCluster,
    tmp_path: Path,
    disturb: Callable[[SlurmCluster, subprocess.Popen[str], Path], None],
) -> None:
    path = tmp_path / "run"
    running = torchzoo(cluster, "lennard_jones", *OPTIONS, "--repeats", "3", *EXECUTOR, "-o", str(path))
    until(lambda: rows(path) >= 1 or running.poll() is not None, "no rows came")
    disturb(cluster, running, path)
    assert rows(path) == len(read_run(path).records) == 6
    assert cluster.call("squeue", "--noheader") == ""


def test_a_command_that_fails_gives_its_status_and_message(cluster: SlurmCluster, tmp_path: Path) -> None:
    running = torchzoo(cluster, "lennard_jones", "-d", "cuda", *EXECUTOR, "-o", str(tmp_path / "run"))
    _, said = running.communicate(timeout=200)
    assert running.returncode == 2
    assert "torchzoo: error: " in said
