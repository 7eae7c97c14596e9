"""Batch sizes for evaluation by class of device. They are found by doubling and kept in a file that people review.

The file has device names, below each the models, and for each model the batch and the throughputs behind the choice:

    NVIDIA H200:
      resnet18: {batch_size: 512, precision: default, torch: 2.11.0, date: 2026-11-21, samples_per_s: {64: 9000.0, ...}}
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import TypeVar

import msgspec

from torchzoo.errors import TorchzooError
from torchzoo.files import FileError, read_yaml

#: If throughput rises by less than this factor, doubling the batch was not worthwhile.
WORTHWHILE = 1.05

#: The most seconds that the timing of one batch size may take.
TIME_LIMIT_S = 2.0

#: The most that is read of a file: some 200 bytes for each model and class of device.
MOST_BYTES = 4 * 2**20

_Key = TypeVar("_Key", bound=Hashable)


class TunedBatch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The batch size of one model on one class of device, and the throughputs by batch size behind the choice."""

    batch_size: int
    precision: str
    torch: str
    date: str
    samples_per_s: dict[int, float]


Tuned = dict[str, dict[str, TunedBatch]]


class BatchFileError(TorchzooError):
    """A file of tuned batches can't be read or written."""


def default_file() -> Path:
    """torchzoo's own file, beside this module. In a checkout it is reviewed and committed."""
    return Path(__file__).resolve().parent / "tuned_batches.yaml"


def read_tuned(path: Path) -> Tuned:
    """The batches in the file at `path`; none if there is no file.

    Raises:
        BatchFileError: the file has other contents, or can't be read.
    """
    try:
        return read_yaml(path, Tuned, MOST_BYTES)
    except FileError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise BatchFileError(f"can't read {error}") from error


def write_tuned(path: Path, tuned: Tuned) -> None:
    """Raises `BatchFileError` where `path` can't be written."""
    import yaml

    heading = (
        "# By `torchzoo doctor --batches`: evaluation batches by class of device, and the throughputs behind each.\n"
    )
    plain = msgspec.to_builtins(tuned)
    try:
        path.write_text(heading + yaml.safe_dump(plain, default_flow_style=None, width=120), encoding="utf-8")
    except OSError as error:
        raise BatchFileError(f"can't write {path}: {error.strerror}") from error


def tune(
    starts: dict[_Key, int], throughputs: Callable[[dict[_Key, int]], dict[_Key, float | None]], *, largest: int = 2**16
) -> dict[_Key, dict[int, float]]:
    """Throughput by batch size of each model. The batch is doubled until throughput stops rising or nothing runs.

    Args:
        starts: the first batch size of each model (or of each case).
        throughputs: gives the samples per second of models at batch sizes; None for one that does not run.
        largest: the largest batch that is tried.
    """
    curves: dict[_Key, dict[int, float]] = {name: {} for name in starts}
    rising = dict(starts)
    while rising:
        found = throughputs(rising)
        for name, batch_size in list(rising.items()):
            rate = found.get(name)
            before = list(curves[name].values())
            if rate is not None:
                curves[name][batch_size] = rate
            if rate is None or (before and rate < WORTHWHILE * before[-1]) or 2 * batch_size > largest:
                del rising[name]
            else:
                rising[name] = 2 * batch_size
    return curves


def best_batch(samples_per_s: dict[int, float]) -> int:
    """The smallest batch after which doubling was not worthwhile.

    Raises:
        ValueError: no batch size ran.
    """
    if not samples_per_s:
        raise ValueError("no batch size ran")
    sizes = sorted(samples_per_s)
    for size, larger in itertools.pairwise(sizes):
        if samples_per_s[larger] < WORTHWHILE * samples_per_s[size]:
            return size
    return sizes[-1]
