"""The command line in the test's own process: no new Python, and the fork server of the runs before."""

from __future__ import annotations

import contextlib
import io
import subprocess

from torchzoo.cli import main


def torchzoo(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command. Tests of signals, the environment or imports need a process of their own instead."""
    arguments = [str(word) for word in words]
    output, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages):
        try:
            status = main(arguments)
        except SystemExit as end:  # argparse ends so
            status = end.code if isinstance(end.code, int) else 1
    return subprocess.CompletedProcess(arguments, status, output.getvalue(), messages.getvalue())


def refused(*words: object) -> str:
    """Return the one line by which a command refuses its arguments, with status 2 and no other output."""
    done = torchzoo(*words)
    assert (done.returncode, done.stdout) == (2, ""), done
    (line,) = done.stderr.splitlines()
    return line
