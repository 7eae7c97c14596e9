"""What the fork server imports once, so that workers start with it: torch, the measuring code, libraries."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module

from torchzoo.worker import PRELOAD_VARIABLE

# A library that can't be imported must not take the server down: the workers of the models that need it will say so.
for _name in ("torchzoo.measure.case", *filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))):
    with contextlib.suppress(Exception):
        import_module(_name)
