"""From a request to records: the plan, the machine's lanes, the scheduler and the worker processes.

This package can also be called: `torchzoo.run("resnet18")` is `torchzoo run resnet18`. (Python gives a package the name
under which its parent has it, so a function of that name can't stand beside it.)
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from os import PathLike
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    Words = str | Iterable[str]
    Numbers = int | str | Iterable[int | str]
    Paths = str | PathLike[str] | Iterable[str | PathLike[str]]


class _RunPackage(ModuleType):
    """The package `torchzoo.run`, as something that can be called."""

    def __call__(
        self,
        models: Words = (),
        *,
        suites: Words | None = None,
        modes: Words | None = None,
        devices: Words | None = None,
        backends: Words | None = None,
        precisions: Words | None = None,
        memory_formats: Words | None = None,
        compile_scopes: Words | None = None,
        batch_sizes: Numbers | None = None,
        worlds: Numbers | None = None,
        parallels: Words | None = None,
        repeats: int | None = None,
        seed: int | None = None,
        threads: int | None = None,
        time_limit_s: float | None = None,
        timeout_s: float | None = None,
        jobs: int | None = None,
        device_indices: Numbers | None = None,
        host_memory_limit_bytes: int | str | None = None,
        cache: str | PathLike[str] | None = None,
        passes: Words = (),
        models_dirs: Paths = (),
        batch_file: str | PathLike[str] | None = None,
        output: str | PathLike[str] | None = None,
        resume: str | PathLike[str] | None = None,
        progress: bool = True,
    ) -> pd.DataFrame:
        """Measure models, as the command `torchzoo run` does; `torchzoo run --help` explains each option.

        Each argument takes what its option takes: one value, or several as a list or with commas. None is the default
        of the option. A case that fails or is skipped is a row with a reason.

        Args:
            models: names, globs (`hf_*`), domains (`nlp`), or `all`.
            suites: lists of models, such as `torchbench`.
            modes: `train`, `eval`, and for models that generate `prefill`, `decode`.
            devices: `cpu`, `cuda`, `cuda:1`.
            backends: `eager`, `inductor`, `inductor:reduce-overhead`, ... Each is measured beside eager.
            precisions: `default`, `fp32`, `tf32`, `amp`, ...
            memory_formats: `contiguous`, `channels_last`.
            compile_scopes: `network`, `block`, `step`: what a backend is given.
            batch_sizes: numbers, or `default`, `smoke`, `serving`, `auto`.
            worlds: how many ranks share a step.
            parallels: what ranks do: `ddp`, `fsdp2`, `tp`.
            repeats: how many processes measure each case.
            seed: of weights and data.
            threads: CPU threads of PyTorch.
            time_limit_s: the most seconds of timing of a case.
            timeout_s: the most seconds of a stage.
            jobs: how many workers prepare at once.
            device_indices: accelerators to spread the cases over.
            host_memory_limit_bytes: of a worker's data; also as `8GiB`.
            cache: `cold`, `warm`, or a folder.
            passes: `breakdown`, `op_shapes`, `flops`, `check`, `leak_check`, `energy`, `api`, `memory_alone`.
            models_dirs: more folders of models.
            batch_file: evaluation batches by `torchzoo tune-batch`.
            output: a folder to keep the run in.
            resume: a run to go on with, with its own settings.
            progress: whether to show progress.

        Returns:
            A row for each case. The names of columns carry their units (`latency_s`, `host_peak_rss_bytes`), and
            `frame.attrs["columns"]` says what each column holds.

        Raises:
            TorchzooError: the request can't be carried out; the message is the one line of the command.
            KeyboardInterrupt: the kernel was interrupted. With `output`, what was measured is kept.
        """
        options = {name: value for name, value in locals().items() if name != "self"}
        models, passes, models_dirs = (options.pop(name) for name in ("models", "passes", "models_dirs"))
        is_shown = options.pop("progress")
        # By name, because commands stand above this layer and this is their way into Python.
        measured = import_module("torchzoo.commands.from_python").measured
        frame: pd.DataFrame = measured(models, passes, models_dirs, options, progress=is_shown)
        return frame


sys.modules[__name__].__class__ = _RunPackage
