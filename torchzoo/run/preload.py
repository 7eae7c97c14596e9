"""What the fork server imports once, so that workers start with it: torch, the measuring code, models' libraries."""

from __future__ import annotations

import os
import signal
from functools import partial
from importlib import import_module

from torchzoo.errors import attempt
from torchzoo.run.worker import PRELOAD_VARIABLE

signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the runner ends the others

# `module`, or `module:attribute`: transformers, for one, imports a submodule when its attribute is asked for.
# What can't be imported must not take the server down: the workers of the models that need it will say so.
for _name in ("torchzoo.measure.case", *filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))):
    _module, _, _attribute = _name.partition(":")
    _imported = attempt(partial(import_module, _module))
    if _attribute and not isinstance(_imported, Exception):
        attempt(partial(getattr, _imported, _attribute))
