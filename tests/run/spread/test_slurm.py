"""A real Slurm of two nodes on this machine: the smoke suite is spread over them, whatever Slurm does to tasks."""

from __future__ import annotations

import os
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

pytest.importorskip("submitit", reason="submitit is not installed: pip install submitit")

pytestmark = [
    pytest.mark.xdist_group("spread"),
    pytest.mark.skipif("TORCHZOO_CLUSTER_TESTS" not in os.environ, reason="takes minutes: set TORCHZOO_CLUSTER_TESTS"),
    pytest.mark.skipif(why_not() is not None, reason=f"Slurm: {why_not()}"),
]

SMOKE = ("--suite", "smoke", "-t", "train,eval", "-d", "cpu", "--bs", "smoke", "--time-limit", "0.2", "-q")


@pytest.fixture
def cluster() -> Iterator[SlurmCluster]:
    with tempfile.TemporaryDirectory(prefix="tz-slurm-", dir="/tmp") as folder, SlurmCluster(Path(folder)) as made:
        yield made


def torchzoo(cluster: SlurmCluster, *words: str) -> subprocess.Popen[str]:
    variables = {**os.environ, **cluster.variables, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words, "--executor", "slurm", "--nodes", "2"],
        env=variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def rows(path: Path) -> int:
    records = path / "records.jsonl"
    return records.read_bytes().count(b"\n") if records.exists() else 0


def cancel_a_task(cluster: SlurmCluster) -> None:
    job = cluster.call("squeue", "--noheader", "--format=%F").split()[0]
    cluster.call("scancel", f"{job}_1")


def set_a_node_down(cluster: SlurmCluster) -> None:
    cluster.call("scontrol", "update", "nodename=n2", "state=down", "reason=test")


def requeue_a_task(cluster: SlurmCluster) -> None:
    job = cluster.call("squeue", "--noheader", "--format=%F").split()[0]
    cluster.call("scontrol", "requeue", f"{job}_1")  # Slurm starts it again two minutes later at the earliest


@pytest.mark.parametrize("disturb", [cancel_a_task, set_a_node_down, requeue_a_task])
def test_whatever_slurm_does_to_a_task_every_case_has_one_row(
    cluster: SlurmCluster, tmp_path: Path, disturb: Callable[[SlurmCluster], None]
) -> None:
    path = tmp_path / "run"
    running = torchzoo(cluster, *SMOKE, "-o", str(path))
    until(lambda: rows(path) >= 2 or running.poll() is not None, "no rows came")
    disturb(cluster)
    _, said = running.communicate(timeout=400)
    assert running.returncode == 0, said
    run = read_run(path)
    assert rows(path) == len(run.manifest.cases) == 12
    assert all(isinstance(record.outcome, Measured) for record in run.records)
    assert "is lost: Slurm" in said
    assert cluster.call("squeue", "--noheader") == ""


def test_a_runner_that_is_killed_leaves_no_task_and_what_nodes_told_is_not_lost(
    cluster: SlurmCluster, tmp_path: Path
) -> None:
    path = tmp_path / "run"
    running = torchzoo(cluster, "lennard_jones", *SMOKE[2:], "--repeats", "3", "-o", str(path))
    until(lambda: rows(path) >= 1 or running.poll() is not None, "no rows came")
    running.kill()
    running.communicate()
    until(lambda: cluster.call("squeue", "--noheader") == "", "a task was left", 60)
    done = subprocess.run([sys.executable, str(ROOT / "run.py"), "--resume", str(path), "-q"], check=False, timeout=300)
    assert done.returncode == 0
    assert rows(path) == len(read_run(path).records) == 6
