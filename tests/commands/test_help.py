"""What helps to type a command: examples in its help, completion by the shell, and columns of the list."""

from __future__ import annotations

import argparse
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchzoo import install
from torchzoo.cli import SHELLS, build_parser, main
from torchzoo.commands.examples import EXAMPLES
from torchzoo.commands.listing import COLUMNS
from torchzoo.zoo.catalog import find_models
from user_models import METADATA, make_folder


def leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parsers of the commands that do something."""
    parts = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    if not parts:
        yield parser
    for action in parts:
        for one in action.choices.values():
            yield from leaves(one)


def examples(parser: argparse.ArgumentParser) -> list[str]:
    """The examples as the help shows them."""
    _, heading, text = parser.format_help().partition("\nexamples:\n")
    assert heading, parser.prog
    return [line.strip() for line in text.splitlines()]


COMMANDS = {one.prog: one for one in leaves(build_parser()) if one.prog != "torchzoo install"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_of_a_command_are_true(name: str) -> None:
    shown = examples(COMMANDS[name])
    assert 1 <= len(shown) <= 3
    for line in shown:
        assert f"{line} ".startswith(f"{name} ")
        assert build_parser().parse_args(shlex.split(line)[1:]).command is not None


def test_the_examples_of_install_are_true() -> None:
    parser = install._parser("torchzoo install")
    shown = examples(parser)
    assert 1 <= len(shown) <= 3
    for line in shown:
        parser.parse_args(shlex.split(line)[2:])


def test_the_models_of_the_examples_are_there() -> None:
    catalog = find_models()
    chosen = [build_parser().parse_args(shlex.split(line)[1:]) for lines in EXAMPLES.values() for line in lines]
    patterns = [pattern for one in chosen for pattern in getattr(one, "models", [])]
    assert len(patterns) > 8
    assert all(catalog.select([pattern]) for pattern in patterns)


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last word."""
    code = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_torchzoo; echo "${COMPREPLY[@]}"'
    command = ["bash", "-c", code, "bash", str(script), "torchzoo", *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=30)
    return done.stdout.split()


def test_bash_completes_commands_options_models_and_paths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_folder(tmp_path / "zoo", "my_model")
    monkeypatch.setenv("TORCHZOO_PATH", str(tmp_path / "zoo"))
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--print-completion", "bash"])
    script = tmp_path / "torchzoo.bash"
    script.write_text(capsys.readouterr().out)
    assert completed(script, "com") == ["compare"]
    assert completed(script, "history", "reg") == ["regressions"]
    assert completed(script, "run", "resnet1") == ["resnet152", "resnet18"]
    assert completed(script, "run", "resnet18", "my_") == ["my_model"]
    assert completed(script, "run", "--retry") == ["--retry-failed"]
    assert completed(script, "run", "--precision", "amp_") == ["amp_fp16", "amp_bf16"]
    assert completed(script, "run", "--suite", "study_c") == ["study_cnn"]
    assert completed(script, "new", "x", "--like", "hf_GPT2_") == ["hf_GPT2_large", "hf_GPT2_xl"]
    assert completed(script, "list", "--columns", "par") == ["parameters"]
    assert completed(script, "install", "--no") == ["--no-constraints"]
    assert completed(script, "report", f"{tmp_path}/z") == [f"{tmp_path}/zoo"]
    assert completed(script, "report", f"{tmp_path}/tor") == []  # a run is a folder


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_each_shell_names_models_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^0$"):
        main(["--print-completion", shell])
    text = capsys.readouterr().out
    assert "resnet18" in text
    assert "retry-failed" in text


def test_every_column_has_a_cell_for_a_model_that_has_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = METADATA.replace("requirements: []", "requirements: [timm, numpy]").replace(
        "{train: 4, eval: 4}", "{train: 4, eval: 4, prefill: 1, decode: 1}\ntokens: {prompt: 2, cache: 3}"
    )
    folder = make_folder(tmp_path, "tiny", metadata=metadata + "device_memory_gib: {train: 9.5}\n")
    assert main(["list", "tiny", "--models-dir", str(tmp_path), "--columns", ",".join(COLUMNS)]) == 0
    headings, line = capsys.readouterr().out.splitlines()
    assert headings.split() == list(COLUMNS)
    numbers = ["4", "4", "1", "1", "2", "72"]
    assert line.split() == [
        *("tiny", "other", "testing", *numbers, "train", "9.5", "fp32", "torchzoo's", "tests", "https://example.org"),
        *("timm,", "numpy", str(folder)),
    ]
