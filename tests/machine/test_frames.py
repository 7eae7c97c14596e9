"""No depth of the stack makes calls slow."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from in_this_process import torchzoo
from torchzoo.machine.process import with_room
from user_models import TINY, make_folder

pytestmark = pytest.mark.skipif(
    platform.python_implementation() != "CPython" or sys.platform != "linux",
    reason="it is about CPython's frames; page faults of a thread are Linux's",
)

CALLS, DEPTHS = 200, range(700)


def faults_of_calls() -> int:
    """The pages that the system has to give while a function is called again and again."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    for _ in range(CALLS):
        does_nothing()
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before


def does_nothing() -> None:
    pass


def at_depth(depth: int, do: Callable[[], int]) -> int:
    return at_depth(depth - 1, do) if depth else do()


def most_faults() -> int:
    return max(at_depth(depth, faults_of_calls) for depth in DEPTHS)


def test_with_room_no_depth_of_the_stack_costs_a_page_for_each_call() -> None:
    if most_faults() < CALLS:
        pytest.skip("this Python keeps its chunks")
    assert with_room(most_faults)() < CALLS / 10


def test_arguments_results_and_names_pass() -> None:
    @with_room
    def divide(a: int, *, by: int) -> float:
        """Says what it does."""
        return a / by

    assert divide(3, by=2) == 1.5
    assert (divide.__name__, divide.__doc__) == ("divide", "Says what it does.")
    with pytest.raises(ZeroDivisionError):
        divide(3, by=0)


#: A step that fails if calls at some depth below it cost a page each.
CALLS_FUNCTIONS = """
    def eval_step(self):
        import resource

        def does_nothing():
            pass

        def at_depth(depth):
            if depth:
                return at_depth(depth - 1)
            before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
            for _ in range(100):
                does_nothing()
            return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before

        if max(map(at_depth, range(400))) > 50:
            raise RuntimeError("a page for each call")
        return super().eval_step()
"""


@pytest.mark.xdist_group("run")
def test_a_step_of_a_measured_case_has_room(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "calls_functions", TINY + CALLS_FUNCTIONS)
    done = torchzoo(
        *("run", "calls_functions", "--models-dir", tmp_path / "zoo", "-t", "eval", "-d", "cpu", "--threads", 1),
        *("--time-limit", 0.3, "-o", tmp_path / "run"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
