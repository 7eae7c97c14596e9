"""Install torchzoo and the libraries of the models asked for, by pip, and say what is ready.

It imports only the standard library before pip has run: this is what a fresh checkout starts with. A model's libraries
count as ready when their versions are the wanted ones and, in a process of their own, they import.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import importlib.metadata
import importlib.util
import os
import re
import site
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent  # the checkout, or site-packages
TO_READ_METADATA = ("msgspec", "pyyaml")
TIED_TO_TORCH = ("torchvision", "torchaudio")  # each release works with one release of torch: pip must choose both
READY, NOT_READY, USAGE, INTERRUPTED = 0, 1, 2, 130

Run = Callable[[Sequence[str]], "subprocess.CompletedProcess[str]"]


def main(argv: Sequence[str], prog: str = "python install.py", run: Run | None = None) -> int:
    """Install, unless only asked to check, and print what is ready.

    Returns: the exit status: 0 all is ready, 1 something is not, 2 wrong usage, 130 interrupted.
    """
    run = run or _run
    options = _parser(prog).parse_args(argv)
    try:
        folders = select(options.models, model_folders(options.models_dir))
        pip = None if options.check else Pip(run=run, constraints=_constraints_file(options))
        errors = pip.install_torchzoo_and(folders) if pip else {}
        looking = Looking(run=run, constraints=_constraints(_constraints_file(options)), fast=options.fast)
        return report(looking, folders, errors, prog)
    except UsageError as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return USAGE
    except UnusablePip as error:
        print(f"{prog}: error: {error}", file=sys.stderr)
        return NOT_READY
    except KeyboardInterrupt:
        print(f"{prog}: interrupted", file=sys.stderr)
        return INTERRUPTED
