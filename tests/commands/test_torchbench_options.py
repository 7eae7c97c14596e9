"""TorchBench's options: each is understood, or answered in one line that names an option that we have."""

from __future__ import annotations

import argparse
import re

import pytest

from torchzoo.cli import COMMANDS, build_parser, main
from torchzoo.commands.options import run_request
from torchzoo.commands.torchbench_options import _MANY, ANSWERED, UNDERSTOOD, VALUES
from torchzoo.run.request import RunRequest


def request(*words: str) -> RunRequest:
    """What `torchzoo run resnet18 ...` asks for."""
    return run_request(build_parser(["run"]).parse_args(["run", "resnet18", *words]))


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What `torchzoo` says, in one line and with status 2."""
    with pytest.raises(SystemExit) as stopped:
        main(words)
    assert stopped.value.code == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err.strip()


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("-d cuda -t train --torchdynamo inductor", "-d cuda -t train --backend inductor"),
        ("--inductor", "--backend inductor"),
        ("--backend torchscript", "--backend torchscript"),
        ("-m eager", "--backend eager"),
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


@pytest.mark.parametrize("option", sorted(ANSWERED | dict.fromkeys(_MANY, "")))
def test_options_that_are_answered(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, star, _ = option.partition("*")
    said = refusal(capsys, "run", "resnet18", name, *(["1"] if star else []))
    assert said.startswith(f"torchzoo run: error: {name} is not here: ")
    assert said.endswith("; see `torchzoo run --help`")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("-m jit", "-m jit is not here: use --backend torchscript"),
        ("-m resnet18", "-m resnet18 is not here: name the models without an option"),
        ("--torchdynamo eager", "--torchdynamo eager is not here: eager is without Dynamo; use --backend aot_eager"),
        *(
            (f"--{option} {word}", f"--{option} {word} is not here: {answer}")
            for option, answers in VALUES.items()
            for word, answer in answers.items()
        ),
        ("--backend eager,cudagraph", "--backend cudagraph is not here: use --backend cudagraphs"),
    ],
)
def test_values_that_are_answered(words: str, answer: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer in refusal(capsys, "run", "resnet18", *words.split())


def run_parser(command: str = "run") -> argparse.ArgumentParser:
    [subparsers] = (
        action for action in build_parser([command])._actions if isinstance(action, argparse._SubParsersAction)
    )
    return subparsers.choices[command]


def test_the_answers_name_what_exists() -> None:
    """Options of ours, commands of ours, backends and precisions."""
    shown = {
        option
        for action in run_parser()._actions
        for option in action.option_strings
        if action.help is not argparse.SUPPRESS
    }
    shown |= {"--format"}  # of report
    answers = [*ANSWERED.values(), *(text for answers in VALUES.values() for text in answers.values())]
    assert {option for text in answers for option in re.findall(r"(?<!\w)--?[a-z][\w-]*", text)} <= shown
    assert {name for text in answers for name in re.findall(r"torchzoo ([a-z]+)", text) if name != "starts"} <= set(
        COMMANDS
    )
    for text in answers:
        for backend in re.findall(r"--backend ([\w:-]+)", text):
            request("--backend", backend)
        for precision in re.findall(r"--precision (\w+)", text):
            request("--precision", precision)


def test_they_are_not_in_the_help() -> None:
    shown = run_parser().format_help()
    assert not [option for option in UNDERSTOOD if re.search(rf"(?<!\w){option}\b", shown)]


def test_userbenchmarks_answer_too(capsys: pytest.CaptureFixture[str]) -> None:
    parser = run_parser("userbenchmark")
    assert parser.parse_args(["breakdown", "--torchdynamo", "inductor", "--amp"]).precision == "amp"
    said = refusal(capsys, "userbenchmark", "breakdown", "--channels-last")
    assert "--channels-last is not here: `torchzoo run` has --channels-last" in said
    assert "use --backend cudagraphs" in refusal(capsys, "userbenchmark", "breakdown", "--backend", "cudagraph")
