"""Options that have no effect where they are given: each says so in one line."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec
import pytest

from examples import CASE, INDUCTOR
from in_this_process import torchzoo
from torchzoo.case import EAGER, Case, Mode, Parallel
from torchzoo.commands.effects import ALWAYS, EFFECTS, option_of, without_effect
from torchzoo.commands.from_python import OPTIONS, parsed

COMPILED: dict[str, Any] = {"backend": INDUCTOR}
RANKS: dict[str, Any] = {"world": 2, "parallel": Parallel.TP}
ON_GPU: dict[str, Any] = {"device": "cuda"}
TRAINING: dict[str, Any] = {"mode": Mode.TRAIN}


def case(**changes: Any) -> Case:
    return msgspec.structs.replace(CASE, backend=changes.pop("backend", EAGER), **changes)


def actions() -> list[argparse.Action]:
    found = parsed(["tiny"]).parser._actions
    return [one for one in found if one.help != argparse.SUPPRESS and one.dest != "help"]


def test_each_option_of_run_says_when_it_has_an_effect() -> None:
    assert {option_of(action) for action in actions()} == set(EFFECTS)
    options = {name for action in actions() for name in action.option_strings}
    assert set(OPTIONS.values()) <= options  # Python's arguments are the same options


#: Words that have no effect beside these cases, and cases beside which they have one.
WITHOUT_EFFECT: dict[str, tuple[list[str], dict[str, Any], dict[str, Any]]] = {
    "--backend": (["--backend", "eager,inductor"], COMPILED, {}),
    "--compile-scope": (["--compile-scope", "step"], {}, COMPILED),
    "--parallel": (["--parallel", "tp"], {}, RANKS),
    "--batch-file": (["--batch-file", "f"], TRAINING, {}),
    "--time-limit": (["--time-limit", "3", "--check-only"], {}, {}),
    "--measure-timeout": (["--measure-timeout", "3", "--check-only"], {}, {}),
    "--alone-timeout": (["--alone-timeout", "3", "--memory-alone"], {}, COMPILED),
    "--jobs": (["-j", "2", "--exclusive"], {}, {}),
    "--devices": (["--devices", "0"], {}, ON_GPU),
    "--cache": (["--cache", "warm"], {}, COMPILED),
    "--memory-alone": (["--memory-alone"], {}, COMPILED),
    "--energy": (["--energy"], {}, ON_GPU),
    "--compile-stats": (["--compile-stats"], {}, COMPILED),
}
#: What gives an effect, where no other case does: other words.
OTHER_WORDS = {
    "--time-limit": ["--time-limit", "3"],
    "--measure-timeout": ["--measure-timeout", "3"],
    "--jobs": ["-j", "2"],
}


def test_the_options_below_are_those_that_may_have_none() -> None:
    assert set(WITHOUT_EFFECT) == {option for option, effect in EFFECTS.items() if effect is not ALWAYS}


@pytest.mark.parametrize("option", WITHOUT_EFFECT)
def test_an_option_without_effect_is_told_in_a_line_and_only_then(option: str) -> None:
    given, without, beside = WITHOUT_EFFECT[option]
    line = EFFECTS[option].says
    assert line in without_effect(parsed(["tiny", *given]), [case(**without)])
    assert "\n" not in line
    words = OTHER_WORDS.get(option, given)
    assert (
        line not in without_effect(parsed(["tiny", *words]), [case(**without), case(**beside)]) or option == "--backend"
    )
    assert without_effect(parsed(["tiny"]), [case(**without)]) == []  # nothing was given


def test_an_option_beside_another_that_it_needs() -> None:
    alone = EFFECTS["--alone-timeout"].says
    assert without_effect(parsed(["tiny", "--alone-timeout", "3"]), [case(**COMPILED)]) == [alone]
    batches = EFFECTS["--batch-file"].says
    assert without_effect(parsed(["tiny", "--batch-file", "f", "--bs", "4"]), [case()]) == [batches]
    assert without_effect(parsed(["tiny", "--backend", "eager"]), [case()]) == []
    assert without_effect(parsed(["tiny", "--backend", "eager,inductor"]), [case()]) == []  # no other one can run
    assert without_effect(parsed(["tiny", "--parallel", "tp"]), []) == []  # what there is is not known


def test_the_command_says_it() -> None:
    done = torchzoo("run", "lennard_jones", "--parallel", "tp", "-d", "cpu", "--dry-run")
    assert done.returncode == 0
    assert done.stderr.splitlines() == [f"torchzoo: {EFFECTS['--parallel'].says}"]
