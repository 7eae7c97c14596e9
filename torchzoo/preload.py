"""What the fork server imports once, so that each worker starts with it: torch, the measuring code, the models' libraries."""

from __future__ import annotations

import contextlib
import os
from importlib import import_module

VARIABLE = "TORCHZOO_PRELOAD"

# A library that can't be imported must not take the server down: the workers of the models that need it will say so.
for _name in ("torchzoo.measure.case", *filter(None, os.environ.get(VARIABLE, "").split(","))):
    with contextlib.suppress(Exception):
        import_module(_name)
