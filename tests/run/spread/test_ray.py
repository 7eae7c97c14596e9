"""A real Ray cluster of two nodes on this machine, and the smoke suite spread over it. One of the nodes is killed."""

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
from torchzoo.record import Failed, Measured
from torchzoo.store import read_run
from waiting import until

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")

pytestmark = [
    pytest.mark.xdist_group("spread"),
    pytest.mark.skipif("TORCHZOO_CLUSTER_TESTS" not in os.environ, reason="takes minutes: set TORCHZOO_CLUSTER_TESTS"),
]

SMOKE = ("--suite", "smoke", "-t", "train,eval", "-d", "cpu", "--bs", "smoke", "--time-limit", "0.2", "-q")


def torchzoo(*words: str, cluster: Any, **options: Any) -> subprocess.Popen[str]:
    """A command of torchzoo on the cluster."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *words, "--executor", f"ray:{cluster.address}"],
        env=variables,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        **options,
    )


def one_cpu() -> dict[str, int]:
    """What a node of Ray is started with. On a busy machine it gives up before its helpers have chosen ports."""
    ports = ("metrics_agent_port", "dashboard_agent_listen_port", "metrics_export_port", "runtime_env_agent_port")
    return {"num_cpus": 1, "object_store_memory": 2 * 10**8, **{name: free_port() for name in ports}}


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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def node_processes() -> list[psutil.Process]:
    """The processes of torchzoo's nodes on this machine, and all below them."""
    nodes = [
        one for one in psutil.process_iter(["cmdline"]) if "torchzoo.run.spread.node" in (one.info["cmdline"] or ())
    ]
    return [process for node in nodes for process in (node, *node.children(recursive=True))]


def rows(path: Path) -> int:
    records = path / "records.jsonl"
    return records.read_bytes().count(b"\n") if records.exists() else 0


def test_the_smoke_suite_is_spread_and_outlives_a_node_that_is_killed(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "run"
    running = torchzoo(*SMOKE, "-o", str(path), cluster=cluster)
    until(lambda: rows(path) >= 3 or running.poll() is not None, "no rows came")
    until(lambda: len(read_run(path).manifest.hosts) == 2 or running.poll() is not None, "only one node joined")
    lost = cluster.worker_nodes.copy().pop()
    cluster.remove_node(lost, allow_graceful=False)
    _, said = running.communicate(timeout=400)
    assert running.returncode == 0, said
    run = read_run(path)
    assert rows(path) == len(run.manifest.cases) == 12  # none is missing, none is there twice
    assert {record.case for record in run.records} == set(run.manifest.cases)
    assert all(isinstance(record.outcome, Measured) for record in run.records)
    assert len(run.manifest.hosts) == 2
    lanes = {record.lane for record in run.records}
    assert lanes <= {lane for host in run.manifest.hosts for lane in host.lanes}
    assert "is lost: " in said
    until(lambda: not node_processes(), "a process was left", 60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_runner_that_is_ended_leaves_no_process_and_its_run_goes_on_with_another_executor(
    cluster: Any, tmp_path: Path, number: signal.Signals
) -> None:
    path = tmp_path / "run"
    running = torchzoo("lennard_jones", *SMOKE[2:], "--repeats", "3", "-o", str(path), cluster=cluster)
    until(lambda: rows(path) >= 1 or running.poll() is not None, "no rows came")
    running.send_signal(number)
    running.communicate(timeout=120)
    until(lambda: not node_processes(), "a process was left", 60)
    done = subprocess.run([sys.executable, str(ROOT / "run.py"), "--resume", str(path), "-q"], check=False, timeout=300)
    assert done.returncode == 0
    assert rows(path) == len(read_run(path).records) == 6
    assert not [one for one in read_run(path).records if isinstance(one.outcome, Failed)]
