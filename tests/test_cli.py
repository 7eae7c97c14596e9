"""The command line as a process: its errors are one line, and nothing that its streams are breaks it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

from examples import INDUCTOR, record
from kept_runs import against_eager, keep
from torchzoo import cli


def shell(command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A shell in which `torchzoo` is this one."""
    script = f'torchzoo() {{ "$PYTHON" -m torchzoo "$@"; }}; {command}'
    environment = {"PYTHON": sys.executable, "PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(cli.__file__).parents[1])}
    words = ["bash", "-c", script, "bash", *arguments]
    return subprocess.run(words, env=environment, check=False, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(keep(tmp_path_factory.mktemp("kept") / "run", [record(against_eager(2.0), backend=INDUCTOR, model="µ")]))


@pytest.mark.parametrize("streams", ["<&- >&-", "<&- >&- 2>&-", ">&-", "2>&-"])
def test_closed_streams_are_no_error(run: str, streams: str, tmp_path: Path) -> None:
    done = shell(f'torchzoo report "$1" --format csv -o "$2" {streams}', run, str(tmp_path / "a.csv"))
    assert (done.returncode, done.stdout) == (0, "")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8").startswith("run,model")
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_a_full_disk_behind_standard_output_is_one_line(run: str) -> None:
    done = shell('torchzoo report "$1" >/dev/full', run)
    assert done.returncode == cli.USAGE
    assert done.stderr == "torchzoo: error: No space left on device\n"


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = shell('cd "$1"; rmdir "$1"; torchzoo list', str(tmp_path / "gone"))
    assert done.returncode == cli.USAGE
    assert done.stderr == "torchzoo: error: the current folder was deleted: change to another one\n"


def test_a_reader_that_has_seen_enough_is_no_error(run: str) -> None:
    done = shell('torchzoo report "$1" --format json | head -c 1; exit ${PIPESTATUS[0]}', run)
    assert (done.returncode, done.stdout, done.stderr) == (0, "{", "")


def test_characters_that_an_encoding_lacks_are_escapes_and_json_stays_json(run: str) -> None:
    done = shell(
        'export PYTHONIOENCODING=ascii; torchzoo report "$1"; torchzoo report "$1" --format json >/dev/null', run
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xb5 eval cpu inductor" in done.stdout


def test_every_option_has_its_help() -> None:
    parser = cli.build_parser()
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    for name, command in commands.choices.items():
        assert command.format_help().startswith(f"usage: torchzoo {name}")


@pytest.mark.parametrize("line", cli.ELSEWHERE.values())
def test_what_replaces_a_command_is_there(line: str) -> None:
    assert cli.build_parser().parse_args(line.split()).command is not None
