"""What an exception of a case is in its record: its kind, one line, the end of its traceback."""

from __future__ import annotations

import traceback

from torchzoo.backends import NotFiniteByBackend
from torchzoo.errors import written
from torchzoo.record import Failed, FailureKind
from torchzoo.settings import Stage


def failure(error: BaseException, stage: Stage, log: str) -> Failed:
    """The failure that an exception is. Its message is cut to one line; the end of the traceback is kept."""
    text = " ".join(str(error).split())
    return Failed(
        kind=_kind(error),
        stage=stage,
        message=written(f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__),
        traceback=written("".join(traceback.format_exception(error))[-4000:]),
        log=log,
    )


def _kind(error: BaseException) -> FailureKind:
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__ or link.__context__
    if any(type(link).__name__ == "OutOfMemoryError" for link in chain):  # torch's, without importing torch
        return FailureKind.OOM_DEVICE
    refusals = ("can't allocate memory", "cannot allocate memory", "bad_alloc")
    if any(isinstance(link, MemoryError) or any(words in str(link).lower() for words in refusals) for link in chain):
        return FailureKind.OOM_HOST
    if isinstance(error, NotFiniteByBackend):
        return FailureKind.NOT_FINITE
    return FailureKind.ERROR
