"""The imports that the fork server does once for all workers: torch, the measuring code, the models' libraries."""

from __future__ import annotations

import os
import signal
from functools import partial
from importlib import import_module

from torchzoo.errors import attempt
from torchzoo.run.worker import PRELOAD_VARIABLE

signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes of a terminal: the runner ends the others

# Each name is `module` or `module:attribute`. (Some libraries, transformers for example, import a submodule only when
# its attribute is read.) A library that can't be imported must not end the server: the workers of its models report it.
for _name in ("torchzoo.measure.case", *filter(None, os.environ.get(PRELOAD_VARIABLE, "").split(","))):
    _module, _, _attribute = _name.partition(":")
    _imported = attempt(partial(import_module, _module))
    if _attribute and not isinstance(_imported, Exception):
        attempt(partial(getattr, _imported, _attribute))
