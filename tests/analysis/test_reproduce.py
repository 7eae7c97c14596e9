"""The command that measures a case again: a shell reads back the very words, whatever is in a name."""

from __future__ import annotations

import os
import subprocess

import pytest

from examples import manifest, record
from torchzoo.analysis.command_lines import command


@pytest.mark.parametrize(
    "name", ["resnet18", "my model", "it's", "$HOME `id`", "a\x1b[2Jb", "two\nlines", "\u202eturned", "a\\b\tc'd\xe9"]
)
def test_a_shell_reads_the_words_back_and_a_terminal_obeys_none_of_them(name: str) -> None:
    line = command(record(model=name).case, manifest())
    assert line.isprintable()
    words = line.removeprefix("python run.py ")
    shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], check=True, capture_output=True).stdout
    assert os.fsdecode(shown.split(b"\0")[0]) == name
