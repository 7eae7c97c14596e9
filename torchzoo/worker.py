"""The life of a worker process: isolate it, measure one case, say what came of it. Torch is imported only inside."""

from __future__ import annotations

import faulthandler
import os
import resource
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from torchzoo.backends import NotRunnable
from torchzoo.record import Case, Failed, FailureKind, Outcome, Settings, Skipped, Stage
from torchzoo.spec import ModelSpec

#: Names the modules, by commas, that `torchzoo.preload` loads into the fork server.
PRELOAD_VARIABLE = "TORCHZOO_PRELOAD"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to know."""

    case: Case
    spec: ModelSpec
    settings: Settings
    log: str  # where its standard output and error go
    scratch: str  # an empty folder for compile caches, so that compilation starts cold


def work(request: Request, connection: Connection) -> None:
    """Report each stage as it begins, then the outcome."""
    os.setsid()  # a process group of its own, to be killed whole
    _redirect_output(request.log)
    faulthandler.enable()
    _limit_host_memory(request.settings.host_memory_limit_bytes)
    scratch = Path(request.scratch)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(scratch / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(scratch / "triton")
    stage = Stage.START

    def tell(new: Stage) -> None:
        nonlocal stage
        stage = new
        connection.send(new)

    outcome: Outcome
    try:
        from torchzoo.measure.case import measure_case

        outcome = measure_case(request.case, request.spec, request.settings, tell)
    except NotRunnable as reason:
        outcome = Skipped(reason=str(reason))
    except Exception as error:  # noqa: BLE001  the one broad except: what a model or a library raises is its row's outcome
        traceback.print_exc()
        outcome = failure(error, stage, request.log)
    connection.send(outcome)


def tell_facts(connection: Connection) -> None:
    """Send what the machine has, or one line that says why torch can't tell."""
    try:
        from torchzoo.environment import collect_facts

        connection.send(collect_facts())
    except (ImportError, OSError, RuntimeError) as error:
        connection.send(f"torch can't be used here: {' '.join(str(error).split())[:300]}")


def _redirect_output(log: str) -> None:
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _limit_host_memory(limit_bytes: int | None) -> None:
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))


def failure(error: BaseException, stage: Stage, log: str) -> Failed:
    """Classify an exception. Its message is cut to one line; the traceback's tail keeps the rest."""
    text = " ".join(str(error).split())
    return Failed(
        kind=_kind(error),
        stage=stage,
        message=f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__,
        traceback="".join(traceback.format_exception(error))[-4000:],
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
    return FailureKind.ERROR
