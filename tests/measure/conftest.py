"""What the tests of measuring share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _cheap_collections() -> Iterator[None]:
    """Keep what is alive before a test out of its garbage collections: measuring makes many of them."""
    gc.freeze()
    yield
    gc.unfreeze()
