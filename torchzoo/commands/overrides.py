"""What the command line says about the plan of a userbenchmark or a study: models, and options in place of its own."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.case import Mode, Precision
from torchzoo.commands.arguments import backends_of, batch_sizes, choices, devices_of, words
from torchzoo.run.request import RunRequest
from torchzoo.studies.userbenchmark import Choice


def chosen(arguments: argparse.Namespace, folder: Path) -> Choice:
    """The models that the command line names, for a plan whose run is kept in `folder`."""
    return Choice(
        patterns=tuple(arguments.models),
        suites=words(arguments.suite),
        models_dirs=tuple(str(one.resolve()) for one in arguments.models_dir),
        folder=folder.resolve(),
    )


def overridden(request: RunRequest, arguments: argparse.Namespace) -> RunRequest:
    """The plan, with the options of the command line in place of its own."""
    axes: dict[str, Any] = {}
    if arguments.mode is not None:
        axes["modes"] = choices(arguments.mode, Mode, "mode")
    if arguments.device is not None:
        axes["devices"] = devices_of(arguments.device)
    if arguments.backend is not None:
        axes["backends"] = backends_of(arguments.backend)
    if arguments.precision is not None:
        axes["precisions"] = choices(arguments.precision, Precision, "precision")
    if arguments.bs is not None:
        axes["batch_sizes"] = batch_sizes(arguments.bs)
    if arguments.repeats is not None:
        axes["repeats"] = arguments.repeats
    settings = {"time_limit_s": arguments.time_limit, "threads": arguments.threads}
    settings = {name: value for name, value in settings.items() if value is not None}
    return msgspec.structs.replace(
        request,
        axes=msgspec.structs.replace(request.axes, **axes),
        settings=msgspec.structs.replace(request.settings, **settings),
        jobs=arguments.jobs or request.jobs,
        device_indices=arguments.devices,
    )
