"""A real Ray cluster of two nodes on this machine, and suites that run over it while nodes and runners are killed."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from examples import ROOT
from torchzoo.record import Measured
from torchzoo.store import read_run
from waiting import until

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

pytestmark = [
    pytest.mark.xdist_group("cluster"),
    pytest.mark.skipif("TORCHZOO_CLUSTER_TESTS" not in os.environ, reason="takes minutes: set TORCHZOO_CLUSTER_TESTS"),
]

OPTIONS = ("-t", "train,eval", "-d", "cpu", "--bs", "smoke", "--time-limit", "0.2", "-q")


def torchzoo(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def one_cpu() -> dict[str, int]:
    """What a node of Ray is started with. On a busy machine it gives up before its helpers have chosen ports."""
    ports = ("metrics_agent_port", "dashboard_agent_listen_port", "metrics_export_port", "runtime_env_agent_port")
    return {"num_cpus": 1, "object_store_memory": 2 * 10**8, **{name: free_port() for name in ports}}


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two nodes of Ray, each with one CPU."""
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args=one_cpu())
    made.add_node(**one_cpu())
    try:
        yield made
    finally:
        made.shutdown()


def host_processes() -> list[psutil.Process]:
    """The processes on the hosts, and all below them."""
    hosts = [
        one for one in psutil.process_iter(["cmdline"]) if "torchzoo.run.host_process" in (one.info["cmdline"] or ())
    ]
    return [process for host in hosts for process in (host, *host.children(recursive=True))]


def rows(path: Path) -> int:
    records = path / "records.jsonl"
    return records.read_bytes().count(b"\n") if records.exists() else 0


def test_the_smoke_suite_outlives_a_node_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    executor = f"ray:{cluster.address}"
    running = torchzoo("--suite", "smoke", *OPTIONS, "--executor", executor, "--nodes", "2", "-o", str(path))
    until(lambda: rows(path) >= 3 or running.poll() is not None, "no rows came")
    cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
    _, said = running.communicate(timeout=400)
    assert running.returncode == 0, said
    assert " is lost: " in said
    run = read_run(path)
    assert rows(path) == len(run.manifest.cases) == 12  # none is missing, none is there twice
    assert {record.case for record in run.records} == set(run.manifest.cases)
    assert all(isinstance(record.outcome, Measured) for record in run.records)
    assert len(run.manifest.hosts) == 2
    assert {record.lane for record in run.records} <= {lane for host in run.manifest.hosts for lane in host.lanes}
    until(lambda: not host_processes(), "a process was left", 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_runner_that_is_ended_leaves_no_process_and_its_run_goes_on(
    cluster: Any, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "run"
    executor = ("--executor", f"ray:{cluster.address}")
    running = torchzoo("lennard_jones", *OPTIONS, "--repeats", "3", *executor, "-o", str(path))
    until(lambda: rows(path) >= 1 or running.poll() is not None, "no rows came")
    running.send_signal(number)
    _, said = running.communicate(timeout=120)
    assert "Traceback" not in said
    assert number == signal.SIGKILL or f"--resume {path}" in said
    until(lambda: not host_processes(), "a process was left", 60)
    resumed = torchzoo("--resume", str(path), "-q", *(executor if number == signal.SIGINT else ()))
    _, said = resumed.communicate(timeout=300)
    assert resumed.returncode == 0, said
    assert rows(path) == 6
    assert all(isinstance(record.outcome, Measured) for record in read_run(path).records)
    until(lambda: not host_processes(), "a process was left", 60)
