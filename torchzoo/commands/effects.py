"""When each option of `torchzoo run` has an effect, and the line for the user where one that was given has none."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import NamedTuple

from torchzoo.case import EAGER, Case, Mode
from torchzoo.settings import Pass


class Asked(NamedTuple):
    """A request as it was given, and the cases that it has on the machine that measures."""

    arguments: argparse.Namespace
    cases: Collection[Case]

    @property
    def compiles(self) -> bool:
        return any(case.backend != EAGER for case in self.cases)

    def has(self, one: Pass) -> bool:
        return one in (self.arguments.passes or ())


class Effect(NamedTuple):
    """When an option has an effect, and what to say where it has none."""

    when: Callable[[Asked], bool]
    says: str


#: The option always has an effect, or is refused where it has none.
ALWAYS = Effect(lambda _: True, "")
_EAGER_ALONE = "all cases are eager alone, which compiles nothing"
_NOT_TIMED = "--check-only times nothing"


def _compiles(option: str) -> Effect:
    return Effect(lambda asked: asked.compiles, f"{option} has no effect: {_EAGER_ALONE}")


def _timed(option: str) -> Effect:
    return Effect(lambda asked: not asked.has(Pass.CHECK_ONLY), f"{option} has no effect: {_NOT_TIMED}")


EFFECTS: dict[str, Effect] = {
    "models": ALWAYS,
    "--suite": ALWAYS,
    "--models-dir": ALWAYS,
    "--mode": ALWAYS,
    "--device": ALWAYS,
    "--backend": Effect(
        lambda asked: not _folds_eager(asked),
        "eager is measured beside each other backend, and not alone again",
    ),
    "--precision": ALWAYS,
    "--memory-format": ALWAYS,
    "--compile-scope": _compiles("--compile-scope"),
    "--batch-size": ALWAYS,
    "--world": ALWAYS,
    "--parallel": Effect(
        lambda asked: any(case.world > 1 for case in asked.cases),
        "--parallel has no effect: each case has one rank; --world N gives it more",
    ),
    "--batch-file": Effect(
        lambda asked: asked.arguments.bs is None and any(case.mode is Mode.EVAL for case in asked.cases),
        "--batch-file has no effect: its batches are those of evaluation without --bs",
    ),
    "--repeats": ALWAYS,
    "--seed": ALWAYS,
    "--threads": ALWAYS,
    "--time-limit": _timed("--time-limit"),
    "--timeout": ALWAYS,
    "--build-timeout": ALWAYS,
    "--compile-timeout": ALWAYS,
    "--measure-timeout": _timed("--measure-timeout"),
    "--alone-timeout": Effect(
        lambda asked: asked.compiles and asked.has(Pass.MEMORY_ALONE),
        "--alone-timeout has no effect: it limits the process of --memory-alone, and no case has one",
    ),
    "--jobs": Effect(
        lambda asked: not asked.arguments.exclusive, "--jobs has no effect: --exclusive prepares one case at a time"
    ),
    "--exclusive": ALWAYS,
    "--devices": Effect(
        lambda asked: any(case.device_type != "cpu" for case in asked.cases),
        "--devices has no effect: all cases are on the CPU",
    ),
    "--host-memory-limit": ALWAYS,
    "--cache": _compiles("--cache"),
    "--debug": ALWAYS,
    "--breakdown": ALWAYS,
    "--op-shapes": ALWAYS,
    "--flops": ALWAYS,
    "--check": ALWAYS,
    "--check-only": ALWAYS,
    "--memory-alone": _compiles("--memory-alone"),
    "--leak-check": ALWAYS,
    "--energy": Effect(
        lambda asked: any(case.device_type == "cuda" for case in asked.cases),
        "no energy will be known: --energy reads NVML's counter, which NVIDIA's GPUs have",
    ),
    "--api": ALWAYS,
    "--trace": ALWAYS,
    "--executor": ALWAYS,
    "--nodes": ALWAYS,
    "--host-kind": ALWAYS,
    "--sbatch": ALWAYS,
    "--output": ALWAYS,
    "--json": ALWAYS,
    "--quiet": ALWAYS,
    "--resume": ALWAYS,
    "--compile-stats": _compiles("--compile-stats"),
    "--retry-failed": ALWAYS,
    "--part": ALWAYS,
    "--dry-run": ALWAYS,
}


def option_of(action: argparse.Action) -> str:
    """The key of an argument in `EFFECTS`: the last way to write it."""
    return action.option_strings[-1] if action.option_strings else action.dest


def without_effect(arguments: argparse.Namespace, cases: Collection[Case]) -> list[str]:
    """A line for each option that was given and has no effect on these cases.

    Args:
        arguments: of `torchzoo run`.
        cases: all that are planned; empty: nothing can be said.
    """
    asked = Asked(arguments, cases)
    given = [action for action in arguments.parser._actions if action.help != argparse.SUPPRESS]
    effects = [EFFECTS[option_of(action)] for action in given if _is_given(action, arguments)]
    return [effect.says for effect in effects if cases and not effect.when(asked)]


def _is_given(action: argparse.Action, arguments: argparse.Namespace) -> bool:
    value = getattr(arguments, action.dest, action.default)
    return action.const in (value or ()) if isinstance(action.const, Pass) else value != action.default


def _folds_eager(asked: Asked) -> bool:
    names = {one.partition(":")[0] for one in asked.arguments.backend.split(",")}
    return str(EAGER) in names and len(names) > 1 and asked.compiles
