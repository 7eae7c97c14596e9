"""The imports that the fork server does once for all workers: torch, the measuring code, the models' libraries."""

from __future__ import annotations

import atexit
import gc
import os
import signal
import sys
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

# Inductor's and Triton's own source files are part of the keys of their caches. Each process would read them all.
if "torch._inductor.async_compile" in sys.modules:
    from torch._inductor.codecache import torch_key
    from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

    attempt(torch_key)
    if HAS_TRITON:
        attempt(triton_key)

# The garbage collector of a worker need not look at what the server has loaded, nor copy its pages.
gc.collect()
gc.freeze()
atexit.register(gc.unfreeze)  # what is frozen when Python ends looks like a leak to libraries that look for leaks
