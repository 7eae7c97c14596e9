"""Memory of a device is lent while Dynamo compiles, and asked for again before the step goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from measuring import SETTINGS
from torch import Tensor

from torchzoo.case import Backend, Case, Mode
from torchzoo.measure import case as case_module
from torchzoo.measure.case import measure_case
from torchzoo.measure.clock import PatientClock
from torchzoo.measure.compilation import watch_compilation
from torchzoo.measure.lending import COMPILATIONS, Lending
from torchzoo.record import Measured
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.zoo.catalog import find_models
from user_models import TINY, make_folder

CPU = torch.device("cpu")
WAIT_S = 0.3


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is lent and asked for, on a device whose allocator holds 3 bytes and has held 7."""
    found: list[object] = []
    monkeypatch.setattr(torch.accelerator, "empty_cache", lambda: found.append("empty"))
    monkeypatch.setattr(torch.accelerator, "memory_reserved", lambda: 3)
    monkeypatch.setattr(torch.accelerator, "max_memory_reserved", lambda: 7)
    return found


def lending(events: list[object], wait_s: float = 0.0) -> Lending:
    def take_back() -> None:
        events.append("ask")
        time.sleep(wait_s)

    return Lending(lambda *sizes: events.append(sizes), take_back)


def compiled(events: list[object]) -> Callable[[Tensor], Tensor]:
    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        events.append("compile")

        def run(*args: object) -> object:
            events.append("run")
            return graph(*args)

        return run

    torch._dynamo.reset()
    return torch.compile(lambda x: x + 1, backend=backend, dynamic=False)


def test_it_lends_while_it_compiles_and_asks_before_it_runs(events: list[object]) -> None:
    function = compiled(events)
    with lending(events).while_compiling():
        function(torch.zeros(2))
        assert events == ["empty", (3, 7), "compile", "ask", "run"]
        function(torch.zeros(2))
    assert events[5:] == ["run"]
    events.clear()
    function(torch.zeros(3))
    assert events == ["compile", "run"]  # it watches no longer


def test_it_lends_for_the_first_compilations_alone(events: list[object]) -> None:
    function, lender = compiled(events), lending(events)
    for _ in range(2):
        torch._dynamo.reset()
        with lender.while_compiling():
            for size in range(2, 4 + COMPILATIONS):
                function(torch.zeros(size))
    assert events.count("compile") == 2 * (COMPILATIONS + 2)
    assert events.count("ask") == events.count((3, 7)) == 2 * COMPILATIONS


def test_a_compilation_that_fails_asks_too_and_a_reset_in_between_does_no_harm(events: list[object]) -> None:
    def fails(*_: object) -> Callable[..., object]:
        raise ValueError("no")

    torch._dynamo.reset()
    function = torch.compile(lambda x: x + 1, backend=fails)
    with pytest.raises(Exception, match="no"), lending(events).while_compiling():
        function(torch.zeros(2))
    assert events == ["empty", (3, 7), "ask"]
    with lending(events).while_compiling():
        torch._dynamo.reset()


def test_waiting_for_memory_is_no_part_of_the_times_of_compiling(events: list[object]) -> None:
    function, lender = compiled(events), lending(events, WAIT_S)
    clock, watch = PatientClock(CPU, lambda: lender.waited_s), watch_compilation(lambda: lender.waited_s)
    began_ns, began = clock.now_ns(), time.perf_counter()
    with lender.while_compiling():
        function(torch.zeros(2))
    took_s, all_s = (clock.now_ns() - began_ns) / 1e9, time.perf_counter() - began
    assert WAIT_S <= lender.waited_s < all_s
    assert took_s == pytest.approx(all_s - lender.waited_s, abs=0.05)
    compile_s = watch.counts(None).compile_s
    assert compile_s is not None
    assert 0 < compile_s <= took_s


def test_without_a_runner_nothing_is_lent() -> None:
    events: list[object] = []
    function, lender = compiled(events), Lending()
    lender.lend()
    lender.take_back()
    with lender.while_compiling():
        function(torch.zeros(2))
    assert events == ["compile", "run"]
    assert lender.waited_s == 0


def measure(zoo: Path, events: list[object], backend: str, passes: tuple[Pass, ...] = ()) -> Measured:
    make_folder(zoo, "tiny", TINY)
    case = Case(model="tiny", mode=Mode.TRAIN, device="cpu", backend=Backend(backend), batch_size=4)
    settings = Settings(time_limit_s=SETTINGS.time_limit_s, min_time_s=SETTINGS.min_time_s, passes=passes)

    def tell(stage: Stage) -> None:
        events.append(stage.value)

    spec = find_models([zoo]).spec("tiny")
    return measure_case(case, spec, "cpu", settings, tell, lambda: None, lending=lending(events))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_case_lends_while_it_waits_and_asks_before_it_is_examined(
    tmp_path: Path, events: list[object], backend: str
) -> None:
    measure(tmp_path, events, backend)
    lent = ["empty", (3, 7)]
    compiles = [] if backend == "eager" else ["compile", *lent, "ask"]
    assert without_repetition(events) == [
        *["import", "build", "prepare", "warm_up", *compiles],
        *[*lent, "wait", "measure", *lent, "examine", "ask"],  # said before the stage in which it holds
    ]


def without_repetition(events: list[object]) -> list[object]:
    """How many graphs are compiled is PyTorch's choice: here it counts as one."""
    found: list[object] = []
    for event in events:
        found.append(event)
        if found[-6:] == 2 * ["empty", (3, 7), "ask"]:
            del found[-3:]
    return found


def test_a_check_lends_while_it_compiles_once_more(
    tmp_path: Path, events: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(case_module, "has_code_to_check", lambda _: False)
    measured = measure(tmp_path, events, "aot_eager", (Pass.CHECK,))
    assert measured.check is not None
    assert measured.check.status == "correct"
    assert without_repetition(events[events.index("check") :]) == ["check", "empty", (3, 7), "ask"]
