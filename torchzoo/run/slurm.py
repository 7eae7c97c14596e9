"""A run in a Slurm job: its hosts form a Ray cluster, which the command of the run uses on the first of them."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

import torchzoo
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.ray_hosts import ClusterError

#: Options of `sbatch` that a user may replace; the value `no` takes a flag away.
DEFAULTS = {"job-name": "torchzoo", "time": "4:00:00", "exclusive": ""}
LOOK_EVERY_S = 5.0  # at the job's state
POLL_S = 0.5
#: The time that Slurm has to end a job, and a network's file system to show what the job wrote last.
END_S = 90.0
SHOWN_S = 30.0
#: States of a job that does not run any more. `GONE`: Slurm has forgotten the job.
GONE = "GONE"
ENDED = frozenset(
    {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "OUT_OF_MEMORY", GONE}
)

#: `ray start` fails until the head runs, and the batch script's end ends the loop. A host whose Ray ends joins anew.
SCRIPT = r"""#!/bin/bash
# A job of torchzoo run --executor slurm. The options of sbatch are on its command line.
base={folder}/$SLURM_JOB_ID
ray="{python} -m ray.scripts.scripts"
head=$(scontrol --oneliner show node "$SLURMD_NODENAME" | grep -o ' NodeAddr=[^ ]*' | cut -d = -f 2)
port=$((20000 + SLURM_JOB_ID % 10000))
export PYTHONPATH={root}${{PYTHONPATH:+:$PYTHONPATH}} RAY_USAGE_STATS_ENABLED=0
srun --nodes={nodes} --ntasks={nodes} --ntasks-per-node=1 --cpu-bind=none --no-kill \
    --kill-on-bad-exit=0 bash -c '
    start="$1 start --block --object-store-memory=500000000"
    if [ "$SLURM_PROCID" = 0 ]; then exec $start --head --port="$3" --include-dashboard=false; fi
    while true; do $start --address="$2:$3"; sleep 2; done
' ray-on-a-host "$ray" "$head" "$port" &
for _ in $(seq 90); do $ray health-check --address "$head:$port" > /dev/null 2>&1 && break; sleep 1; done
if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -f {run}/run.json ]; then
    {run_command} --executor "ray:$head:$port" {resume} >> "$base.out" 2>> "$base.err"
else
    {run_command} --executor "ray:$head:$port" {words} >> "$base.out" 2>> "$base.err"
fi
echo $? > "$base.status"
"""


class SlurmJob:
    """A job that runs a command of torchzoo. Use as a context: on entering, it is submitted; on leaving, it has ended.

    Args:
        run: the folder of the run, which all hosts can write to. The files of the job are in its folder `slurm`.
        words: the words of the command line after `torchzoo run`, without an executor.
        resume: the same, for a job that Slurm begins again when the run has begun.
        nodes: the number of hosts.
        options: of `sbatch`, beside `DEFAULTS`.
        say: tells the user something, in a line.
    """

    def __init__(
        self,
        run: Path,
        words: Sequence[str],
        resume: Sequence[str],
        nodes: int,
        options: Sequence[tuple[str, str]],
        say: Callable[[str], None],
    ) -> None:
        self._run = run.resolve()
        self._folder = self._run / "slurm"
        self._words = words
        self._resume = resume
        self._nodes = nodes
        self._options = {**DEFAULTS, **dict(options)}
        self._say = say
        self._state = ""
        self._said = ""

    def _sbatch(self) -> list[str]:
        options = {
            **self._options,
            "nodes": str(self._nodes),
            "no-kill": "",
            "output": str(self._folder / "%j.log"),
            "open-mode": "append",
        }
        given = [f"--{name}={value}" if value else f"--{name}" for name, value in options.items() if value != "no"]
        return ["sbatch", "--parsable", *given, str(self._folder / "job.sh")]

    def _script(self) -> str:
        return SCRIPT.format(
            folder=shlex.quote(str(self._folder)),
            run=shlex.quote(str(self._run)),
            python=sys.executable,
            root=shlex.quote(str(Path(torchzoo.__file__).resolve().parent.parent)),
            nodes=self._nodes,
            run_command=shlex.join([sys.executable, "-P", "-m", "torchzoo", "run"]),
            words=shlex.join(self._words),
            resume=shlex.join(self._resume),
        )

    def __enter__(self) -> SlurmJob:
        if shutil.which("sbatch") is None:
            raise ClusterError("--executor slurm: there is no sbatch here; run torchzoo on a login node of the cluster")
        if importlib.util.find_spec("ray") is None:
            raise ClusterError("--executor slurm needs Ray on the hosts: pip install ray")
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / "job.sh").write_text(self._script())
        with Interrupts() as interrupts:  # a job that was submitted must be known
            columns = shutil.get_terminal_size().columns
            done = _slurm(*self._sbatch(), env={**os.environ, "COLUMNS": str(columns)})
        if done.returncode != 0:
            raise ClusterError(f"sbatch refuses the job: {' '.join(done.stderr.split())[:300]}")
        self.number = done.stdout.strip().partition(";")[0]
        self._is_interrupted = interrupts.came
        self._say(f"Slurm job {self.number} is submitted")
        return self

    def __exit__(self, *_: object) -> None:
        with Interrupts():  # a second Ctrl-C, too, must not leave a job
            if self._status() is None and self._state not in ENDED:
                _slurm("scancel", self.number)
            until_s = time.monotonic() + END_S
            while time.monotonic() < until_s and self._look() not in ENDED:
                time.sleep(POLL_S)

    def follow(self) -> int:
        """Print what the command prints until the job has ended. Return the exit status of the command.

        Raises:
            ClusterError: Slurm ended the job before the command had ended.
        """
        if self._is_interrupted:
            raise KeyboardInterrupt
        base = self._folder / self.number
        shown = [_Followed(base.with_suffix(".out"), sys.stdout), _Followed(base.with_suffix(".err"), sys.stderr)]
        looked_s = ended_s = None
        while True:
            status = self._status()  # first: what was printed before it was written is there then
            for one in shown:
                one.show()
            if status is not None:
                return status
            now_s = time.monotonic()
            if looked_s is None or now_s >= looked_s + LOOK_EVERY_S:
                looked_s = now_s
                ended_s = (ended_s or now_s) if self._look() in ENDED else None
            if ended_s is not None and now_s >= ended_s + SHOWN_S:
                raise ClusterError(
                    f"Slurm job {self.number} ended ({self._state.lower()}) before the run had: see "
                    f"{self._folder / self.number}.log"
                )
            time.sleep(POLL_S)

    def _status(self) -> int | None:
        """The exit status of the command, if it has ended."""
        with contextlib.suppress(OSError, ValueError):  # the file is not there, or not whole
            return int((self._folder / f"{self.number}.status").read_text())
        return None

    def _look(self) -> str:
        """Ask Slurm for the state of the job. The user is told where it runs, or what it waits for."""
        done = _slurm("squeue", "--noheader", "--states=all", f"--jobs={self.number}", "--format=%T|%N|%r")
        state, hosts, reason = (*done.stdout.strip().split("|"), "", "")[:3]
        if done.returncode != 0 and "Invalid job id" not in done.stderr:
            return self._state  # Slurm does not answer for a moment
        self._state = state or GONE
        says = ""
        if state == "RUNNING":
            says = f"runs on {hosts}"
        elif state == "PENDING" and reason != "None":
            says = f"is pending: {reason}"
        if says and says != self._said:
            self._said = says
            self._say(f"Slurm job {self.number} {says}")
        return self._state


class _Followed:
    """A file that another host appends to, copied to a stream. The file may not be there yet."""

    def __init__(self, path: Path, stream: TextIO) -> None:
        self._path = path
        self._stream = stream
        self._shown = 0

    def show(self) -> None:
        """Print what was added since the last call, up to the last whole line."""
        with contextlib.suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._shown)
            came = file.read()
            whole = came[: came.rfind(b"\n") + 1]
            self._shown += len(whole)
            self._stream.write(whole.decode(errors="replace"))
            self._stream.flush()


def _slurm(*command: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  the user's own Slurm
        command,
        check=False,
        capture_output=True,
        text=True,
        env=env,
        start_new_session=True,  # no Ctrl-C for it
    )
