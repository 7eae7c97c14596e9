"""The command line in the test's own process: no new Python, and the servers of the runs before."""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from torchzoo.cli import main
from torchzoo.run.pool import Pool


def torchzoo(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command. Tests of signals, the environment or imports need a process of their own instead."""
    arguments = [str(word) for word in words]
    output, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(messages), servers_that_stay():
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


#: What a pool has of its server.
_OF_SERVER = ("_process", "_reader", "_is_loaded", "preload", "refused")
_kept: dict[tuple[object, ...], dict[str, Any]] = {}
_close, _begin = Pool.close, Pool.begin


@contextlib.contextmanager
def servers_that_stay() -> Iterator[None]:
    """Inside, a server stays when its run has ended, for the next run that asks for the same one.

    A server takes seconds to import torch. Many tests need one for a moment.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pool, "close", _keep)
        patch.setattr(Pool, "begin", _take)
        yield


def _key(pool: Pool) -> tuple[object, ...]:
    """Return all that the state of a server depends on."""
    asked = (*pool.preload, *pool.refused, pool.import_limit_s, pool.name, pool._python, *pool._variables.items())
    variables = [one for one in os.environ.items() if one[0] != "PYTEST_CURRENT_TEST"]
    return (*asked, *variables, str(Path.cwd()), *sys.path)


def _keep(pool: Pool) -> None:
    for ticket in list(pool._scratch):
        pool.kill(ticket)
    if not pool._is_loaded or _key(pool) in _kept:
        _close(pool)
        return
    _kept[_key(pool)] = {name: getattr(pool, name) for name in _OF_SERVER}
    pool._process = None


def _take(pool: Pool) -> None:
    if pool._process is None and (found := _kept.pop(_key(pool), None)) is not None:
        for name, value in found.items():
            setattr(pool, name, value)
        if pool._process is not None and pool._process.poll() is None:
            return
        pool._process = None
    _begin(pool)


@atexit.register
def _end() -> None:
    for found in _kept.values():
        pool = Pool(())
        for name, value in found.items():
            setattr(pool, name, value)
        _close(pool)
