"""Waiting in a test for what another process does."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], otherwise: str = "it never happened", limit_s: float = 120.0) -> None:
    """Return once the condition holds.

    Raises:
        AssertionError: it does not hold within the time.
    """
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.05)
