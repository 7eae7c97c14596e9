"""Words of the command line: what is taken, within which bounds, and that the rest is refused in a line."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples import ROOT
from torchzoo.case import Backend
from torchzoo.commands import arguments
from torchzoo.commands.arguments import MOST_REPEATS, MOST_SECONDS
from torchzoo.errors import UsageError

OVERFLOWS = ("9" * 30, "9" * 5000)  # Python itself reads 4,300 digits at most


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (arguments.positive_int, "1", 1),
        (arguments.positive_int, "2147483647", 2**31 - 1),
        (arguments.repeat_count, str(MOST_REPEATS), MOST_REPEATS),
        (arguments.seed, "-1", -1),
        (arguments.seed, str(2**63 - 1), 2**63 - 1),
        (arguments.seconds, "1e-300", 1e-300),
        (arguments.seconds, "1e308", MOST_SECONDS),
        (arguments.budget, "90", 90.0),
        (arguments.budget, "90s", 90.0),
        (arguments.budget, "1.5m", 90.0),
        (arguments.budget, "1h", 3600.0),
        (arguments.budget, "1e300h", MOST_SECONDS),
        (arguments.budget, "auto", "auto"),
        (arguments.indices, "0,1,1", (0, 1)),
        (arguments.size_in_bytes, "8GiB", 8 * 2**30),
        (arguments.size_in_bytes, str(2**63 - 1), 2**63 - 1),
        (arguments.batch_sizes, f"4,smoke,{2**63 - 1}", (4, "smoke", 2**63 - 1)),
        (arguments.devices_of, "cpu", ("cpu",)),
        (arguments.devices_of, "cpu:0,cpu", ("cpu",)),
        (arguments.devices_of, "cuda:01,cuda", ("cuda:1", "cuda")),
        (
            arguments.backends_of,
            "eager,inductor:max-autotune,eager",
            (Backend("eager"), Backend("inductor", "max-autotune")),
        ),
    ],
)
def test_what_is_meant_is_taken(read: Callable[[str], Any], text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "texts"),
    [
        (arguments.positive_int, ["0", "-1", "1.5", "", " 1", "1_000", "\u0663", "2147483648", *OVERFLOWS]),
        (arguments.repeat_count, ["0", str(MOST_REPEATS + 1), *OVERFLOWS]),
        (arguments.seed, ["", "-", "--1", "1.0", str(2**63), str(-(2**63) - 1), *OVERFLOWS]),
        (arguments.seconds, ["0", "-1", "nan", "inf", "1e400", "x"]),
        (arguments.budget, ["", "0", "0m", "-1m", "m", "1d", "15 min", "nans", "infh", "Auto"]),
        (arguments.indices, ["", "0,", "-1", "x", "1001", *OVERFLOWS]),
        (arguments.size_in_bytes, ["", "0", "GiB", "-1GiB", f"{'9' * 18}GiB", *OVERFLOWS]),
        (arguments.batch_sizes, ["", "0", "-4", "many", *OVERFLOWS]),
        (
            arguments.devices_of,
            ["", ",", ":", "0", "cuda:", "cuda:x", "cuda:-1", "cpu:0:0", *(f"cuda:{one}" for one in OVERFLOWS)],
        ),
        (arguments.backends_of, ["", ",", ":", "::", ":x", "inductor::"]),
    ],
)
def test_the_rest_is_refused(read: Callable[[str], Any], texts: list[str]) -> None:
    for text in texts:
        with pytest.raises((argparse.ArgumentTypeError, UsageError)):
            read(text)


def test_a_path_is_one_that_the_system_takes(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for text in ("x", str(tmp_path), str(tmp_path / "not" / "there"), "\udcff"):
        assert arguments.usable_path(text) == Path(text)
    for text, words in (("", "found ''"), ("x" * 5000, "too long"), (str(tmp_path / "loop"), "symbolic links")):
        with pytest.raises(argparse.ArgumentTypeError, match=words):
            arguments.usable_path(text)


def test_a_path_that_a_run_keeps_is_text(tmp_path: Path) -> None:
    assert arguments.recorded_path(os.fspath(tmp_path)) == tmp_path
    with pytest.raises(argparse.ArgumentTypeError, match="not UTF-8"):
        arguments.recorded_path("\udcff")


def test_ctrl_c_while_python_ends_prints_nothing() -> None:
    """What is done at the end (multiprocessing removes its folder) was interrupted with a traceback."""
    code = (
        "import atexit, os, signal, sys; import torchzoo.__main__ as m;"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT);"
        "sys.argv = ['torchzoo', 'list', 'smoke-nothing']; sys.exit(m.main())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1
