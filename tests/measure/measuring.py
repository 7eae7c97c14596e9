"""Measures cases of small models in the tests' own process."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchzoo.case import Backend, Case, Mode, Precision
from torchzoo.measure import case_rank
from torchzoo.measure import measure_case as case_module
from torchzoo.measure.measure_case import Assignment, measure_case
from torchzoo.record import Measured
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.zoo.catalog import find_models
from user_models import TINY, make_folder

SETTINGS = Settings(time_limit_s=0.1, min_time_s=0.05)


def measure(
    zoo: Path,
    code: str = TINY,
    *,
    mode: Mode = Mode.TRAIN,
    backend: str = "eager",
    precision: Precision = Precision.DEFAULT,
    ask: tuple[Pass, ...] = (),
    tell: Callable[[Stage], None] = lambda _: None,
    window: Callable[[], Any] = lambda: None,
) -> Measured:
    """Measure a model with this code on the CPU; its folder is made in `zoo`."""
    make_folder(zoo, "tiny", code)
    case = Case(model="tiny", mode=mode, device="cpu", backend=Backend(backend), precision=precision, batch_size=4)
    settings = Settings(time_limit_s=SETTINGS.time_limit_s, min_time_s=SETTINGS.min_time_s, passes=ask)
    spec = find_models([zoo]).spec("tiny")
    given = Assignment(case=case, spec=spec, device="cpu", settings=settings, tell=tell, window=window)
    found = measure_case(given)
    assert isinstance(found, Measured)
    return found


def spy(monkeypatch: pytest.MonkeyPatch, name: str, before: Callable[..., None]) -> None:
    """Call `before` with the arguments of each call of a function that `measure_case` uses."""
    module: Any = next(one for one in (case_rank, case_module) if hasattr(one, name))
    function = getattr(module, name)

    @functools.wraps(function)
    def spied(*args: Any, **kwargs: Any) -> Any:
        before(*args, **kwargs)
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, spied)
