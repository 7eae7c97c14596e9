"""Compare two software environments in an A/B: the request, its folder, the measurement and the verdicts.

The sides are two run folders, `base` and `candidate`, measured in turns (`torchzoo.run.experiment`).
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from torchzoo.analysis.compare import RunComparison, compare_in_turns
from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment
from torchzoo.errors import TorchzooError, UsageError
from torchzoo.files import read_json
from torchzoo.history.ab_folder import FILE, Side
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
    """Write the request to the folder `path`, so that the measurement can be resumed.

    Raises:
        UsageError: the request can't be measured so, or the folder holds another measurement.
    """
    if AUTO in request.run.axes.batch_sizes:
        raise UsageError("--bs auto could choose other batches for each side: give numbers, smoke or default")
    if (path / FILE).exists():
        raise UsageError(f"{path} holds an A/B measurement already: go on with --resume {path}, or name another folder")
    path.mkdir(parents=True, exist_ok=True)
    write_json(path / FILE, request)


@contextlib.contextmanager
def begun(request: AbRequest, path: Path) -> Iterator[None]:
    """Call `begin`; if the body of the context fails before a side exists, restore `path` as it was.

    Raises:
        UsageError: as `begin`.
    """
    begin(request, path)
    try:
        yield
    except TorchzooError:
        if not any((path / side / "run.json").is_file() for side in Side):
            for side in Side:
                shutil.rmtree(path / side, ignore_errors=True)
            (path / FILE).unlink()
            with contextlib.suppress(OSError):  # the folder holds other files
                path.rmdir()
        raise


def read_request(path: Path) -> AbRequest:
    """Return the request of the measurement in `path`.

    Raises:
        AbError: there is no measurement. FileError: its file can't be read.
    """
    if not (path / FILE).is_file():
        raise AbError(f"no A/B measurement in {path}: there is no file {FILE}")
    return read_json(path / FILE, AbRequest)


def measure_sides(
    request: AbRequest,
    base: PythonEnvironment,
    candidate: PythonEnvironment,
    path: Path,
    *,
    on_record: OnRecord = ignore,
) -> None:
    """Measure what is missing of both sides below `path`.

    Raises:
        UsageError, CatalogError, ServerError, StoreError: the measurement can't be made; the message is one line.
    """
    places = {
        side.value: Place(software=environment, folder=path / side)
        for side, environment in ((Side.BASE, base), (Side.CANDIDATE, candidate))
    }
    experiment.measure(request.run, places, only=request.only, on_record=on_record)


def compare_sides(path: Path, *, threshold: float | None = None) -> RunComparison:
    """Return the verdicts of `compare`, whatever the sides differ in, since the difference is intended.

    Raises:
        StoreError: a side can't be read. UsageError: they have no case in common.
    """
    base, candidate = (read_run(path / side) for side in Side)
    return compare_in_turns(base, candidate, threshold=threshold)
