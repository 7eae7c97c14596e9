"""Options that have no effect where they are given: each says so in one line."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from examples import CASE, INDUCTOR
from in_this_process import torchzoo
from torchzoo.case import EAGER, Case, Mode, Parallel
from torchzoo.commands.from_python import parsed
from torchzoo.commands.options import EFFECTS, without_effect

COMPILED: dict[str, Any] = {"backend": INDUCTOR}
RANKS: dict[str, Any] = {"world": 2, "parallel": Parallel.TP}
ON_GPU: dict[str, Any] = {"device": "cuda"}
TRAINING: dict[str, Any] = {"mode": Mode.TRAIN}


def case(**changes: Any) -> Case:
    return msgspec.structs.replace(CASE, backend=changes.pop("backend", EAGER), **changes)


#: What is said of each option that may have no effect.
FLAGS = {name: f"--{name.replace('_', '-')}" for name in EFFECTS}
SAID = {flag: f"{flag} has no effect: {EFFECTS[name][1]}" for name, flag in FLAGS.items()}


#: Words that have no effect beside these cases, and cases beside which they have one.
WITHOUT_EFFECT: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
    "--backend": (["--backend", "eager,inductor"], COMPILED, {}),
    "--compile-scope": (["--compile-scope", "step"], {}, COMPILED),
    "--parallel": (["--parallel", "tp"], {}, RANKS),
    "--batch-file": (["--batch-file", "f"], TRAINING, {}),
    "--time-limit": (["--time-limit", "3", "--check-only"], {}, {}),
    "--budget": (["--budget", "3m", "--check-only"], {}, {}),
    "--measure-timeout": (["--measure-timeout", "3", "--check-only"], {}, {}),
    "--alone-timeout": (["--alone-timeout", "3", "--memory-alone"], {}, COMPILED),
    "--jobs": (["-j", "2", "--exclusive"], {}, {}),
    "--devices": (["--devices", "0"], {}, ON_GPU),
    "--cache": (["--cache", "warm"], {}, COMPILED),
    "--memory-alone": (["--memory-alone"], {}, COMPILED),
    "--compile-stats": (["--compile-stats"], {}, COMPILED),
    "--energy": (["--energy"], {}, ON_GPU),
}
#: What gives an effect, where no other case does: other words.
OTHER_WORDS = {
    "--time-limit": ["--time-limit", "3"],
    "--budget": ["--budget", "3m"],
    "--measure-timeout": ["--measure-timeout", "3"],
    "--jobs": ["-j", "2"],
}


def test_the_options_above_are_those_that_may_have_none() -> None:
    assert set(WITHOUT_EFFECT) == set(SAID)


@pytest.mark.parametrize("option", WITHOUT_EFFECT)
def test_an_option_without_effect_is_told_in_a_line_and_only_then(option: str) -> None:
    given, without, beside = WITHOUT_EFFECT[option]
    line = SAID[option]
    assert line in without_effect(parsed(["tiny", *given]), [case(**without)])
    assert "\n" not in line
    words = OTHER_WORDS.get(option, given)
    assert (
        line not in without_effect(parsed(["tiny", *words]), [case(**without), case(**beside)]) or option == "--backend"
    )
    assert without_effect(parsed(["tiny"]), [case(**without)]) == []  # nothing was given


def test_an_option_beside_another_that_it_needs() -> None:
    alone = SAID["--alone-timeout"]
    assert without_effect(parsed(["tiny", "--alone-timeout", "3"]), [case(**COMPILED)]) == [alone]
    batches = SAID["--batch-file"]
    assert without_effect(parsed(["tiny", "--batch-file", "f", "--bs", "4"]), [case()]) == [batches]
    assert without_effect(parsed(["tiny", "--backend", "eager"]), [case()]) == []
    assert without_effect(parsed(["tiny", "--backend", "eager,inductor"]), [case()]) == []  # no other one can run
    assert without_effect(parsed(["tiny", "--parallel", "tp"]), []) == []  # what there is is not known


def test_the_command_says_it() -> None:
    done = torchzoo("run", "lennard_jones", "--parallel", "tp", "-d", "cpu", "--dry-run")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"torchzoo: {SAID['--parallel']}"]
