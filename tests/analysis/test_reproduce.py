"""The command that measures a case again: a shell reads back the very words, whatever is in a name."""

from __future__ import annotations

import os
import shlex
import subprocess

import msgspec
import pytest

from examples import INDUCTOR, manifest, record
from torchzoo.analysis.command_lines import again, command
from torchzoo.case import Mode, Parallel
from torchzoo.commands.from_python import parsed
from torchzoo.commands.options import run_request
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings


@pytest.mark.parametrize(
    "name", ["resnet18", "my model", "it's", "$HOME `id`", "a\x1b[2Jb", "two\nlines", "\u202eturned", "a\\b\tc'd\xe9"]
)
def test_a_shell_reads_the_words_back_and_a_terminal_obeys_none_of_them(name: str) -> None:
    line = command(record(model=name).case, manifest())
    assert line.isprintable()
    words = line.removeprefix("python run.py ")
    shown = subprocess.run(["bash", "-c", f"printf '%s\\0' {words}"], check=True, capture_output=True).stdout
    assert os.fsdecode(shown.split(b"\0")[0]) == name


# --- several cases of a run ---


def asked(line: str) -> RunRequest:
    """The request of the command in this line."""
    program, script, *words = shlex.split(line)
    assert (program, script) == ("python", "run.py")
    return run_request(parsed(words))


def test_the_command_for_several_cases_has_the_values_of_all_of_them() -> None:
    eval_case = record(model="a", device="cuda", backend=INDUCTOR).case
    train = msgspec.structs.replace(eval_case, model="b c", mode=Mode.TRAIN, world=2, parallel=Parallel.DDP)
    passes, folder = (Pass.FLOPS,), "/my zoo"
    run = manifest(
        settings=Settings(passes=passes, share_s=2.0), models_dirs=(folder,), device_indices=(0, 1), cases=(train,)
    )
    request = asked(again([eval_case, train], run, time_limit_s=12.0))
    assert request.patterns == ("a", "b c")
    axes = request.axes
    assert (set(axes.modes), axes.devices, axes.backends) == ({Mode.EVAL, Mode.TRAIN}, ("cuda",), (INDUCTOR,))
    assert (axes.worlds, axes.parallels, axes.batch_sizes) == ((1, 2), (Parallel.DDP,), (4,))
    assert (request.settings.time_limit_s, request.settings.passes) == (12.0, passes)
    assert (request.models_dirs, request.device_indices) == ((folder,), (0, 1))
    assert request.budget is None


def test_cases_of_unlike_batch_sizes_get_the_word_of_the_run() -> None:
    cases = [record(model="a", batch_size=4).case, record(model="b", batch_size=64).case]
    for given, batch_sizes in (([], (None,)), (["--bs", "smoke"], ("smoke",)), (["--batch-size=8,16"], (8, 16))):
        run = manifest(command=("torchzoo", "run", "a", *given), cases=tuple(cases))
        assert asked(again(cases, run, time_limit_s=10.0)).axes.batch_sizes == batch_sizes


def test_repeats_and_the_default_time_limit_are_in_the_command_for_several_cases() -> None:
    cases = [record(repeat=repeat).case for repeat in range(3)]
    request = asked(again(cases[:1], manifest(cases=tuple(cases)), time_limit_s=Settings().time_limit_s))
    assert (request.axes.repeats, request.settings.time_limit_s) == (3, Settings().time_limit_s)
    assert "--time-limit 10" in again(cases[:1], manifest(cases=tuple(cases)), time_limit_s=10.0)  # else a budget
