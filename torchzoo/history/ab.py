"""Compare two software environments in an A/B: the request, its folder, the measurement and the verdicts.

The sides are two run folders, `base` and `candidate`, measured in turns (`torchzoo.run.experiment`).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from torchzoo.analysis.compare import AB_FILE, RunComparison, Side, compare_in_turns
from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment
from torchzoo.errors import TorchzooError, UsageError
from torchzoo.files import read_json
from torchzoo.run import experiment
from torchzoo.run.experiment import OnRecord, Place, ignore
from torchzoo.run.plan import AUTO
from torchzoo.run.request import RunRequest
from torchzoo.store import read_run, write_json


class AbRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The cases to measure, and the two environments (SPECs, see `torchzoo.environments.parsing`)."""

    base: str
    candidate: str
    run: RunRequest
    only: tuple[Case, ...] = ()  # if any: only these of its cases, given with repeat 0


class AbError(TorchzooError):
    """A folder of an A/B measurement can't be used. The message is one line."""


def begin(request: AbRequest, path: Path) -> None:
    """Write the request to the folder `path`, so that the measurement can be resumed once a side has a run."""
    if AUTO in request.run.axes.batch_sizes:
        raise UsageError("--bs auto could choose other batches for each side: give numbers, smoke or default")
    if any((path / side / "run.json").is_file() for side in Side):
        raise UsageError(f"{path} holds an A/B measurement already: go on with --resume {path}, or name another folder")
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / AB_FILE, request)


def read_request(path: Path) -> AbRequest:
    """Return the request of the measurement in `path`."""
    if not (path / AB_FILE).is_file():
        raise AbError(f"no A/B measurement in {path}: there is no file {AB_FILE}")
    return read_json(path / AB_FILE, AbRequest)


def measure_sides(
    request: AbRequest,
    base: PythonEnvironment,
    candidate: PythonEnvironment,
    path: Path,
    *,
    on_record: OnRecord = ignore,
) -> None:
    """Measure what is missing of both sides below `path`."""
    places = {
        side.value: Place(software=environment, folder=path / side)
        for side, environment in ((Side.BASE, base), (Side.CANDIDATE, candidate))
    }
    experiment.measure(request.run, places, only=request.only, on_record=on_record)


def compare_sides(path: Path, *, threshold: float | None = None) -> RunComparison:
    """Return the verdicts of `compare`, whatever the sides differ in, since the difference is intended."""
    base, candidate = (read_run(path / side) for side in Side)
    return compare_in_turns(base, candidate, threshold=threshold)
