"""TorchBench's options: each is understood, or refused in one line that names the page for them."""

from __future__ import annotations

import argparse
import re

import pytest

from in_this_process import refused
from torchzoo.case import Precision
from torchzoo.cli import build_parser
from torchzoo.commands.options import run_request
from torchzoo.commands.torchbench_options import PAGE, REFUSED, UNDERSTOOD
from torchzoo.run.request import RunRequest


def request(*words: str) -> RunRequest:
    """What `torchzoo run resnet18 ...` asks for."""
    return run_request(build_parser(["run"]).parse_args(["run", "resnet18", *words]))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("-d cuda -t train --torchdynamo inductor", "-d cuda -t train --backend inductor"),
        ("--inductor", "--backend inductor"),
        ("--backend torchscript", "--backend torchscript"),
        ("--test train", "-t train"),
        ("--bs 32", "--batch-size 32"),
        ("--amp", "--precision amp"),
        ("--precision fp16 --channels-last", "--precision fp16 --memory-format channels_last"),
        ("--accuracy", "--check-only"),
        ("--cold-start", "--cache cold"),
    ],
)
def test_options_that_are_understood(theirs: str, ours: str) -> None:
    assert request(*theirs.split()) == request(*ours.split())


def test_an_understood_option_changes_the_request() -> None:
    """The test above would pass if both sides were ignored."""
    assert request("--torchdynamo", "inductor") != request()
    assert request("--accuracy").settings.passes == ("check_only",)
    assert len({str(request(*words.split())) for words in ("", "--amp", "--channels-last", "--test train")}) == 4


@pytest.mark.parametrize("option", REFUSED.split())
def test_the_others_are_refused_in_one_line_that_names_the_page(option: str) -> None:
    for words in ([option], [option, "1"]):
        said = refused("run", "resnet18", *words)
        assert said.startswith(f"torchzoo run: error: {option} ")
        assert PAGE in said


def test_dynamos_eager_is_not_taken_for_eager() -> None:
    assert "use --backend aot_eager" in refused("run", "resnet18", "--torchdynamo", "eager")


def run_parser(command: str = "run") -> argparse.ArgumentParser:
    [subparsers] = (
        action for action in build_parser([command])._actions if isinstance(action, argparse._SubParsersAction)
    )
    return subparsers.choices[command]


def test_they_are_not_in_the_help() -> None:
    shown = run_parser().format_help()
    assert not [option for option in UNDERSTOOD if re.search(rf"(?<!\w){option}\b", shown)]


def test_userbenchmarks_understand_and_refuse_too() -> None:
    parser = run_parser("userbenchmark")
    assert parser.parse_args(["breakdown", "--torchdynamo", "inductor", "--amp"]).precision == (Precision.AMP,)
    assert PAGE in refused("userbenchmark", "breakdown", "--channels-last")  # an option of `run` alone
