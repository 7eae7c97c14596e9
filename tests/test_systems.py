"""On systems other than Linux: what measures says so in one line, and what reads runs and models works."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from examples import INDUCTOR, record
from kept_runs import against_eager, keep
from torchzoo import cli

MEASURING = ["run", "ab", "bisect", "watch", "userbenchmark", "doctor"]

#: A Python that lacks what Python on Windows lacks. (Libraries that look for the system are imported before.)
WINDOWS = """
import argparse, importlib.metadata, multiprocessing.connection, os, signal, subprocess, sys, tempfile
import filelock, msgspec, numpy, pandas, psutil, rich.console, rich.table, yaml
for name in ("resource", "fcntl", "termios", "multiprocessing.forkserver", "multiprocessing.resource_tracker"):
    sys.modules[name] = None
for module, names in {
    os: ("fork", "setsid", "killpg", "sched_getaffinity", "sched_setaffinity", "O_NONBLOCK", "uname"),
    signal: ("SIGKILL", "SIGSTOP", "SIGCONT", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGCHLD", "SIGALRM", "pthread_sigmask"),
}.items():
    for name in names:
        delattr(module, name)
sys.platform = "win32"
from torchzoo import cli
run, folder = sys.argv[1:]
for arguments in (
    ["list"],
    ["list", "--suite", "torchbench", "--json"],
    ["report", run],
    ["compare", run, run],
    ["report", run, "--noise"],
    ["export", run, "--format", "hud-v3"],
    ["new", "mine", "--like", "resnet18", "--models-dir", folder],
    ["install", "--check", "--fast", "dcgan"],
):
    status = cli.main(arguments)
    assert status in (0, 1) if arguments[0] == "install" else status == 0, arguments
try:
    cli.main(["--help"])
except SystemExit as end:
    assert end.code == 0
assert cli.main(["run", "resnet18"]) == 2
"""


@pytest.mark.parametrize("command", MEASURING)
@pytest.mark.parametrize(("system", "way"), [("darwin", "use a virtual machine or a contai"), ("win32", "use WSL 2")])
def test_a_command_that_measures_says_in_one_line_that_it_needs_linux(
    command: str, system: str, way: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert cli.main([command, "--no-matter-what"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"torchzoo: error: `torchzoo {command}` needs Linux, ")
    assert f"this is {system}: {way}" in shown.err
    assert "work here: list, report, show, compare, " in shown.err
    assert shown.err.count("\n") == 1


def test_commands_that_do_not_measure_work_without_what_windows_lacks(tmp_path: Path) -> None:
    run = keep(tmp_path / "run", [record(against_eager(2.0), backend=INDUCTOR)])
    done = subprocess.run(
        [sys.executable, "-c", WINDOWS, str(run), str(tmp_path / "models")],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(cli.__file__).parents[1]), "PYTHONIOENCODING": "utf-8"},
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("needs Linux") == 1
    assert "(needs Linux)" in done.stdout
    assert (tmp_path / "models" / "mine" / "__init__.py").exists()
