"""Records and manifests from their JSON. What is read is whole: reports need not ask whether it makes sense.

Msgspec checks each field (`torchzoo.bounds`). Here is checked what it can't know: that the parts belong together.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from torchzoo.bounds import Count, PositiveCount
from torchzoo.case import EAGER
from torchzoo.errors import TorchzooError
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, SCHEMA_VERSION, Checked, Manifest, Measured, Record


class DecodeError(TorchzooError):
    """Bytes that are no record or no manifest. The message is one line."""


class _Versioned(msgspec.Struct):
    schema_version: int


class _Gpu(msgspec.Struct):
    name: str
    driver: str = ""
    memory_bytes: Count = 0


class _Environment(msgspec.Struct):
    """The facts of `torchzoo.environment.collect_environment` that are read again. None: could not be found out."""

    python: str | None = None
    cpu: str | None = None
    cpu_count: PositiveCount | None = None
    cpu_usable: PositiveCount | None = None
    host_memory_bytes: Count | None = None
    torchzoo: str | None = None
    torchzoo_commit: str | None = None
    torch: str | None = None
    torch_commit: str | None = None
    cuda: str | None = None
    hip: str | None = None
    cudnn: int | None = None
    packages: dict[str, str] = {}
    distributions: dict[str, str] = {}
    gpus: tuple[_Gpu, ...] = ()
    variables: dict[str, str] = {}


class _Facts(msgspec.Struct):
    environment: _Environment


_manifests, _records = msgspec.json.Decoder(Manifest), msgspec.json.Decoder(Record)
_UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # what msgspec raises, and what is raised here


def decode_record(line: bytes) -> Record:
    """The record of one line of `records.jsonl`.

    Raises:
        DecodeError: it is no record, or its parts do not belong together.
    """
    try:
        record = _records.decode(line)
        _check_times(record.started_at, record.finished_at)
        if isinstance(record.outcome, Measured):
            _check_measured(record, record.outcome)
        if isinstance(record.outcome, Checked) and record.case.batch_size is None:
            raise DecodeError("it was checked without a batch size")
    except _UNREADABLE as error:
        raise DecodeError(str(error)) from error
    return record


def decode_manifest(content: bytes) -> Manifest:
    """The manifest that `run.json` holds.

    Raises:
        DecodeError: it is none, or one of a newer torchzoo.
    """
    try:
        version = msgspec.json.decode(content, type=_Versioned).schema_version
        if version > SCHEMA_VERSION:
            raise DecodeError(f"it was written by a newer torchzoo (schema {version}): update torchzoo to read it")
        manifest = _manifests.decode(content)
        _check_times(manifest.created_at)
        msgspec.json.decode(content, type=_Facts)
    except _UNREADABLE as error:
        raise DecodeError(str(error)) from error
    return manifest


def _check_times(*times: str) -> None:
    for time in times:
        if datetime.fromisoformat(time).tzinfo is None:
            raise DecodeError(f"the time {time} has no offset from UTC")


def _check_measured(record: Record, measured: Measured) -> None:
    """The variants are those of the case, and their blocks stand as they were timed: A A A, or A B B A, B A A B."""
    a, b = EAGER_VARIANT, CANDIDATE_VARIANT
    rounds = [(a,)] if record.case.backend == EAGER else [(a, b, b, a), (b, a, a, b)]
    if set(measured.variants) != set(rounds[0]):
        raise DecodeError(f"its variants are not those of a case with the backend {record.case.backend}")
    named, length = tuple(block.variant for block in measured.blocks), len(rounds[0])
    if len(named) < length or not all(
        any(named[at : at + length] == one[: len(named) - at] for one in rounds) for at in range(0, len(named), length)
    ):
        raise DecodeError("its blocks are not in turns")
    if record.case.batch_size is None:
        raise DecodeError("it was measured without a batch size")
    flops, host = measured.flops, measured.host
    if flops is not None and flops.total != sum(sum(by_dtype.values()) for by_dtype in flops.by_operator.values()):
        raise DecodeError("its FLOPs are not the sum of its operators'")
    if host is not None and (host.was_slow or host.redone) and not (host.looks_s and host.undisturbed_s):
        raise DecodeError("its host was slow, but nothing says how slow")
