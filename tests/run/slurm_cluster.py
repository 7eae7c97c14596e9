"""A Slurm cluster of its own on this machine: munged, slurmctld and two slurmd, for tests and to try things out.

    python tests/run/slurm_cluster.py FOLDER COMMAND ...

runs a command with the cluster, whose nodes are n1 and n2. It needs root, and Debian's slurm-wlm and munge.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

NODES = ("n1", "n2")
NEEDED = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "scontrol")

CONFIG = """
ClusterName=torchzoo
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=10
MinJobAge=300
JobRequeue=1
SlurmdTimeout=60
MpiDefault=none
SwitchType=switch/none
NodeName=n1 NodeHostname={host} NodeAddr={address} Port={port1} CPUs={cpus}
NodeName=n2 NodeHostname={host} NodeAddr={address} Port={port2} CPUs={cpus}
PartitionName=test Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str | None:
    """Why there can be no cluster here; None: there can."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    if lacking:
        return f"no {', '.join(lacking)} here: apt-get install slurm-wlm munge"
    return None if os.geteuid() == 0 else "slurmd needs root"


class SlurmCluster:
    """The cluster. Within the context its commands find it by the variable SLURM_CONF.

    Args:
        folder: for its files; its path must be short enough for a socket.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SlurmCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "state").mkdir(exist_ok=True)
        ports = [_free_port() for _ in range(3)]
        config = CONFIG.format(
            host=socket.gethostname().partition(".")[0],
            address=_address(),
            folder=self.folder,
            port=ports[0],
            port1=ports[1],
            port2=ports[2],
            cpus=os.cpu_count(),
        )
        (self.folder / "slurm.conf").write_text(config)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munged.pid",
            f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
        )
        _until((self.folder / "munge.socket").exists, "munged has no socket")
        self._start("slurmctld", "-D", "-i")
        for node in NODES:
            (self.folder / f"spool-{node}").mkdir(exist_ok=True)
            self._start("slurmd", "-D", "-N", node)
        _until(lambda: self.states() == dict.fromkeys(NODES, "idle"), f"its nodes are not idle: {self.folder}/*.log")
        return self

    def __exit__(self, *_: object) -> None:
        for daemon in reversed(self._daemons):
            daemon.terminate()
        for daemon in self._daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def call(self, *command: str) -> str:
        """What a command of Slurm prints."""
        done = subprocess.run(
            command, env={**os.environ, **self.variables}, check=False, capture_output=True, text=True, timeout=60
        )
        return done.stdout

    def states(self) -> dict[str, str]:
        """What each node does."""
        lines = self.call("sinfo", "--noheader", "--Node", "--format=%N %t").splitlines()
        pairs = [line.split() for line in lines]
        return {pair[0]: pair[1] for pair in pairs}

    def _start(self, *command: str) -> None:
        daemon = subprocess.Popen(
            command,
            env={**os.environ, **self.variables},
            stdin=subprocess.DEVNULL,
            stdout=(self.folder / f"{command[0]}.stdout").open("ab"),
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._daemons.append(daemon)


def _address() -> str:
    """The address of this machine by which Ray names it. No packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 1))
        return str(one.getsockname()[0])


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until(condition: object, otherwise: str, limit_s: float = 60.0) -> None:
    assert callable(condition)
    until_s = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > until_s:
            raise TimeoutError(otherwise)
        time.sleep(0.2)


if __name__ == "__main__":
    with SlurmCluster(Path(sys.argv[1])) as cluster:
        sys.exit(subprocess.run(sys.argv[2:], env={**os.environ, **cluster.variables}, check=False).returncode)
