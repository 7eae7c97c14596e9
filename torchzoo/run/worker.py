"""The life of a worker process: isolate it, measure one case, send the outcome. Torch is imported only inside."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import queue
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable, cache_variables
from torchzoo.case import EAGER, Case
from torchzoo.errors import TorchzooError, attempt, written
from torchzoo.machine import process
from torchzoo.machine.limits import physical_cores, pin
from torchzoo.machine.process import with_room
from torchzoo.record import Checked, Failed, Measured, Outcome, Skipped, Took
from torchzoo.run import protocol
from torchzoo.run.debugging import case_folder
from torchzoo.run.failures import STACKS_SIGNAL, died, failure
from torchzoo.run.lanes import Lane
from torchzoo.run.lines import write_line
from torchzoo.run.plan import Before
from torchzoo.run.ranks import Rank, Watch, fork_ranks
from torchzoo.run.workers import Timed
from torchzoo.settings import Pass, Settings, Stage
from torchzoo.zoo.spec import ModelSpec

if TYPE_CHECKING:
    from torchzoo.measure.host import HostGate

#: Inductor's own variable: how many processes compile kernels.
COMPILE_THREADS_VARIABLE = "TORCHINDUCTOR_COMPILE_THREADS"

#: PyTorch records the last collectives, 2,000 by default. The memory of this record grows until it is full. With few
#: of them it is full before the leak check begins.
FLIGHT_RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
COLLECTIVES_RECORDED = 10


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to know."""

    case: Case
    spec: ModelSpec
    settings: Settings
    lane: Lane
    cores: tuple[int, ...]  # that the run may use; libgomp may have bound the server to one (OMP_PROC_BIND)
    undisturbed_loop_s: float | None  # `environment.host_loop_s` of a host that does nothing else; None: not known
    log: str  # where its standard output and error go
    scratch: str  # an empty folder, for packages of compiled code
    caches: str  # the folder of compile caches
    before: Before | None = None  # do this in place of measuring


class _Compiled(TorchzooError):
    """Ends a process that fills the caches: all is compiled."""


@with_room
def work(argument: bytes, connection: Connection) -> None:
    """Send each stage as it begins, wait for the measuring window, then send the outcome. `argument` is a `Request`."""
    request = msgspec.json.decode(argument, type=Request)
    _redirect_output(request.log)
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL)
    _limit_host_memory(request.settings.host_memory_limit_bytes)
    _set_environment(request)
    process.keep_freed()
    may_use = request.lane.near_cores or request.cores
    pin(may_use)
    stage = Stage.START
    send = partial(write_line, connection.fileno())

    def tell(new: Stage) -> None:
        nonlocal stage
        stage = new
        if new is Stage.EXAMINE:
            if own_cores:
                pin(may_use)  # all of them again: the window is over
            tracing.close()  # a check compiles once more
        if new is Stage.WAIT and request.before is Before.PRIME:
            raise _Compiled
        send(protocol.encode(new))
        if (new is Stage.EXAMINE and ranks) or new is Stage.HOLD:
            # Other cases with several ranks are measured on these devices, or others use the memory.
            wait_for(Stage.CHECK if new is Stage.HOLD else Stage.EXAMINE)

    def wait_for(stage: Stage) -> protocol.Proceed:
        permission = permissions.get()
        assert permission.stage is stage, f"{stage} comes next, not {permission.stage}"
        return permission

    tracing = contextlib.ExitStack()
    ranks = _fork_ranks(request, connection)
    tracing.callback(_start_trace(request))
    own_cores = request.lane.cores_of(0)
    permissions = _listen(connection)

    def window() -> float | None:
        permission = wait_for(Stage.MEASURE)
        if own_cores:  # else its threads stay where they are: OpenMP may have bound each to a core
            pin(own_cores)
        return permission.limit_s

    watch = Watch(
        ranks,
        died=lambda rank, code: died(code, Stage.START, Path(request.log), who=f"rank {rank}"),
        send=lambda why: send(_outcome_line(why, stage, request.log)),
    )
    result = attempt(partial(_measure, request, tell, window=window, ranks=ranks, keep=partial(_keep, send)))
    cause = watch.cause(time.monotonic()) if isinstance(result, Exception) else None
    line = _outcome_line(cause or result, stage, request.log)
    watch.end(lambda: send(line))


def _keep(send: Callable[[bytes], None], measured: Measured) -> None:
    """Send what is measured so far. If it can't be recorded, the outcome will say why."""
    line = attempt(lambda: protocol.encode(Timed(measured)))
    if isinstance(line, bytes):
        send(line)


def _outcome_line(result: Outcome | Exception, stage: Stage, log: str) -> bytes:
    """The message of what came of the case in that stage."""
    outcome: Outcome
    if isinstance(result, NotRunnable):
        outcome = Skipped(reason=written(str(result)))
    elif isinstance(result, Exception):
        traceback.print_exception(result)
        outcome = failure(result, stage, log)
    else:
        outcome = msgspec.structs.replace(result, stage=stage) if isinstance(result, Failed) else result
    line = attempt(lambda: protocol.encode(outcome))
    if isinstance(line, Exception):
        failed = failure(line, stage, log)
        text = f"what the model says of itself can't be recorded: {failed.message}"
        line = protocol.encode(msgspec.structs.replace(failed, message=text))
    return line


def _fork_ranks(request: Request, connection: Connection) -> list[Rank]:
    if request.case.world == 1:
        return []
    return fork_ranks(
        request.lane.devices,
        [request.lane.cores_of(rank) for rank in range(request.case.world)],
        follow=partial(_follow, request),
        failure=lambda error: failure(error, Stage.START, request.log),
        close=[connection],
    )


def _follow(request: Request, number: int, device: str, line: Connection) -> None:
    """What a rank other than the first does."""
    from torchzoo.measure.case_rank import new_rank
    from torchzoo.measure.case_ranks import Line, follow

    _limit_compile_processes(request)
    _start_trace(request, number)
    rank = new_rank(request.case, request.spec, device, _threads(request, number), number, _gate(request, number))
    follow(rank, Line(line))


def _start_trace(request: Request, rank: int = 0) -> Callable[[], None]:
    """Let what compiling does be traced, where that was asked for. The function that is returned ends it."""
    if request.settings.debug_dir is None or request.case.backend == EAGER or request.before is not None:
        return lambda: None
    from torchzoo.measure.trace import StructuredTrace

    trace = StructuredTrace(case_folder(request.settings.debug_dir, request.case), rank)
    trace.start()
    return trace.stop


def _threads(request: Request, rank: int = 0) -> int | None:
    """The threads of the CPU that a rank uses: PyTorch's own choice, but no more than its physical cores.

    Where more threads than cores compute together, they spin while they wait for each other: Adam on the CPU took a
    hundred times as long with two threads on one core as with one.
    """
    cores = request.lane.cores_of(rank)
    if request.settings.threads is not None or cores is None:
        return request.settings.threads
    import torch

    return min(torch.get_num_threads(), len(physical_cores(cores)))


def _gate(request: Request, rank: int = 0) -> HostGate:
    """The gate of a rank. What computes on the CPU needs all of its cores, fast or slow."""
    from torchzoo.measure.host import HostGate

    cores = None if request.case.device_type == "cpu" else request.lane.cores_of(rank)
    return HostGate(request.undisturbed_loop_s, time.perf_counter_ns, cores)


def _limit_compile_processes(request: Request) -> None:
    """Let inductor use this worker's part of the cores. Several ranks have more: few such cases prepare at once.

    Where the user has set inductor's own variable, that holds.
    """
    if COMPILE_THREADS_VARIABLE in os.environ:
        return
    from torchzoo.measure.compilation import set_compile_processes

    count = request.settings.compile_threads
    if count is not None:
        cores = request.lane.cores or request.cores
        set_compile_processes(count if request.case.world == 1 else max(count, len(cores) // (2 * request.case.world)))


def _measure(
    request: Request,
    tell: Callable[[Stage], None],
    window: Callable[[], float | None],
    ranks: Sequence[Rank],
    keep: Callable[[Measured], object],
) -> Measured | Checked | Took:
    from torchzoo.measure.case_ranks import Line
    from torchzoo.measure.measure_case import Assignment, measure_alone, measure_case

    _limit_compile_processes(request)
    settings = msgspec.structs.replace(request.settings, threads=_threads(request))
    if request.before is Before.ALONE:
        tell(Stage.ALONE)
        found = measure_alone(request.case, request.spec, request.lane.device, settings)
        return Took(result=msgspec.to_builtins(found))
    given = Assignment(
        case=request.case,
        spec=request.spec,
        device=request.lane.device,
        settings=settings,
        gate=_gate(request),
        lines=[Line(rank.line) for rank in ranks],
        tell=tell,
        window=window,
        keep=keep,
    )
    try:
        return measure_case(given)
    except _Compiled:
        return Took(result={})


def _listen(connection: Connection) -> queue.SimpleQueue[protocol.Proceed]:
    """Return a queue of the permissions that the runner gives this worker, each to begin a stage.

    If the runner or the server is gone, the worker ends itself.
    """
    permissions: queue.SimpleQueue[protocol.Proceed] = queue.SimpleQueue()

    def listen() -> None:
        reader = os.fdopen(connection.fileno(), "rb", closefd=False)
        with contextlib.suppress(OSError):
            for line in reader:
                permissions.put(msgspec.json.decode(line, type=protocol.Proceed))
        os.killpg(0, signal.SIGKILL)

    os.register_at_fork(after_in_child=connection.close)  # compilers' processes have nothing to say
    threading.Thread(target=listen, daemon=True, name="torchzoo-parent").start()
    return permissions


def _set_environment(request: Request) -> None:
    """Set the places of what is compiled, before torch compiles anything, and the length of PyTorch's own records."""
    os.environ[SCRATCH_VARIABLE] = request.scratch
    os.environ.update(cache_variables(Path(request.caches)))
    if request.case.world > 1 and Pass.LEAK_CHECK in request.settings.passes:
        os.environ.update(dict.fromkeys(FLIGHT_RECORDER_SIZES, str(COLLECTIVES_RECORDED)))


def _redirect_output(log: str) -> None:
    """To the log; to nowhere if its folder was deleted or the disk is full."""
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    except OSError:
        descriptor = os.open(os.devnull, os.O_WRONLY)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _limit_host_memory(limit_bytes: int | None) -> None:
    if limit_bytes is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, limit_bytes))
