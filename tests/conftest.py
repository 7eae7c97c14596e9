"""Markers: `gpu` tests run where there is a CUDA device, and are skipped with that reason elsewhere."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: threads that wait for busy cores only spin

import pytest

# A shell starts what runs in the background with Ctrl-C ignored, and whatever that starts ignores it, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    import torch

    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
