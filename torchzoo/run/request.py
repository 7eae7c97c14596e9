"""What a run is asked to do, before the machine and the models are looked at."""

from __future__ import annotations

import sys

import msgspec

from torchzoo.case import Axes
from torchzoo.run.budget import Budget
from torchzoo.settings import Settings


class Software(msgspec.Struct, frozen=True, kw_only=True):
    """A Python with its libraries, in which cases are measured; by default that of this process."""

    name: str = ""  # for messages and records
    python: str = sys.executable
    variables: dict[str, str] = {}  # to be set beside those of this process


class RunRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The models, the axes and the settings of a new run.

    `axes.devices` may be empty. The run then uses the accelerator, or the CPU where there is none.
    `settings.jobs` and `settings.compile_threads` are not used: they follow from `jobs` and from the machine. So does
    `settings.share_s`, from `budget`, the cases and the machine.
    """

    patterns: tuple[str, ...]  # model names, globs, domains or `all`
    suites: tuple[str, ...] = ()
    axes: Axes
    settings: Settings
    budget: Budget | None = None  # of timing, on each lane; None: none, each case may take `settings.time_limit_s`
    jobs: int | None = None  # None: as many as the cores allow
    device_indices: tuple[int, ...] | None = None
    models_dirs: tuple[str, ...] = ()
    batch_file: str | None = None  # a file of tuned batches; None: torchzoo's own
    command: tuple[str, ...] = ()  # the command line that asks for this; empty: that of this process
