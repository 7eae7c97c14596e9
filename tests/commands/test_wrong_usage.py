"""Wrong usage of `torchzoo run`: one clear line and status 2."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch

WRONG = [
    (["resnet81"], "did you mean resnet18"),
    (["resnet18", "--backend", "inductr"], "did you mean inductor?"),
    (["resnet18", "--backend", "inductor:fast"], "it has default"),
    (["resnet18", "--backend", "::"], "not a backend: '::'"),
    (["resnet18", "--precision", "fp23"], "did you mean fp32"),
    (["resnet18", "--memory-format", "nchw"], "known: contiguous"),
    (["resnet18", "-t", "trian"], "did you mean train?"),
    (["resnet18", "-d", "gpu0"], "not a device"),
    (["resnet18", "-d", "tpu"], "no tpu device"),
    (["resnet18", "--bs", "0"], "at least 1"),
    (["resnet18", "--bs", "-3"], "at least 1"),
    (["resnet18", "--bs", "many"], "at least 1"),
    (["resnet18", "--threads", "0"], "at least 1"),
    (["resnet18", "--repeats", "30000000"], "at most 1000"),
    (["resnet18", "-d", "cpu:1"], "no device cpu:1"),
    (["resnet18", "--time-limit", "nan"], "positive number"),
    (["resnet18", "--host-memory-limit", "big"], "such as 8GiB"),
    (["resnet18", "-o", ""], "expected a path"),
    (["resnet18", "-o", "/proc/nowhere"], "can't write to /proc/nowhere"),
    (["resnet18", "--models-dir", "/no/such"], "no such models folder"),
    (["resnet18", "--models-dir", "/" + "x" * 20_000], "File name too long"),
    (["resnet18", "--cache", "shared"], "name the folder"),
    (["resnet18", "--cache", "/proc/nowhere"], "can't make the folder"),
    (["resnet18", "-j", "1", "--devices", "0,1"], "only one worker lives at a time: add --jobs 2"),
    (["resnet18", "--retry-failed"], "goes with --resume"),
    (["resnet18", "--dry-run", "--json"], "leave out --json"),
    (["resnet18", "--dry-run", "--retry-failed"], "goes with --resume"),
    (["resnet18", "--dry-run", "--backend", "inductr"], "did you mean inductor?"),
    (["--resume", "/tmp", "--dry-run"], "leave out --dry-run"),
    (["--resume", "/no/such"], "no run in /no/such"),
    (["--resume", "/dev"], "no run in /dev"),
    (["resnet18", "--resume", "/tmp", "--bs", "3"], "leave out MODEL, --batch-size"),
    ([], "MODEL"),
    *([] if torch.cuda.is_available() else [(["resnet18", "-d", "cuda"], "no cuda device")]),
]


@pytest.fixture(scope="module")
def refusals() -> list[tuple[int, str, str]]:
    """Status, standard output and standard error of each wrong usage, all of them in one process."""
    code = """
import contextlib, io, json, sys
from torchzoo.cli import main

for arguments in json.loads(sys.argv[1]):
    streams = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        try:
            status = main(["run", *arguments])
        except SystemExit as end:  # argparse ends so
            status = end.code
    print(json.dumps([status, *(stream.getvalue() for stream in streams)]))
"""
    words = json.dumps([arguments for arguments, _ in WRONG])
    done = subprocess.run([sys.executable, "-c", code, words], check=True, capture_output=True, text=True, timeout=300)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("number", range(len(WRONG)), ids=[" ".join(arguments)[:40] for arguments, _ in WRONG])
def test_wrong_usage_is_one_clear_line_and_status_2(refusals: list[tuple[int, str, str]], number: int) -> None:
    status, stdout, stderr = refusals[number]
    assert status == 2, stderr
    (line,) = stderr.splitlines()
    assert WRONG[number][1] in line
    assert stdout == ""


def test_cuda_without_a_gpu_is_one_clear_line_and_status_2(refusals: list[tuple[int, str, str]]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    status, _, stderr = refusals[-1]
    assert status == 2
    assert "no cuda device" in stderr
    assert len(stderr.strip().splitlines()) == 1
