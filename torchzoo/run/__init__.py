"""From a request to records: the plan, the machine's lanes, the scheduler and the worker processes.

This package can also be called: `torchzoo.run("resnet18")` is `torchzoo run resnet18`. (Python gives a package the name
under which its parent has it, so a function of that name can't stand beside it.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd


class _RunPackage(ModuleType):
    """The package `torchzoo.run`, as something that can be called."""

    def __call__(self, models: str | Iterable[str] = (), **options: Any) -> pd.DataFrame:
        """Measure models, as the command `torchzoo run` does.

        A case that fails or is skipped is a row with a reason.

        Args:
            models: names, globs (`hf_*`), domains (`nlp`), or `all`.
            options: those of `torchzoo run`, which `torchzoo run --help` explains, with `_` for `-`. Each takes what it
                takes there: one value, or several as a list or with commas; one without a value takes True. For
                example `mode=["train", "eval"]`, `device="cuda"`, `backend="inductor"`, `precision="amp"`,
                `batch_size=16`, `repeats=3`, `time_limit=5.0`, `check=True`, `output="runs/today"`, `quiet=True`.

        Returns:
            A row for each case. The names of columns carry their units (`latency_s`, `host_peak_rss_bytes`), and
            `frame.attrs["columns"]` says what each column holds.

        Raises:
            TypeError: `torchzoo run` has no such option.
            TorchzooError: the request can't be carried out; the message is the one line of the command.
            KeyboardInterrupt: the kernel was interrupted. With `output`, what was measured is kept.
        """
        # By name, because commands stand above this layer and this is their way into Python.
        measured = import_module("torchzoo.commands.from_python").measured
        frame: pd.DataFrame = measured(models, options)
        return frame


sys.modules[__name__].__class__ = _RunPackage
