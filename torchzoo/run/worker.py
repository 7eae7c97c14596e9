"""The life of a worker process: isolate it, measure one case, send the outcome. Torch is imported only inside."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable, cache_variables
from torchzoo.case import EAGER, Case
from torchzoo.errors import attempt, written
from torchzoo.machine import process
from torchzoo.machine.facts import MachineInfo
from torchzoo.machine.limits import physical_cores, pin
from torchzoo.machine.process import with_room
from torchzoo.record import Alone, Checked, Failed, FailureKind, Measured, Outcome, Skipped
from torchzoo.run import messages
from torchzoo.run.alone import alone_in_process, with_alone
from torchzoo.run.debugging import case_folder
from torchzoo.run.failures import STACKS_SIGNAL, failure
from torchzoo.run.lanes import Lane
from torchzoo.run.ranks import Rank, Watch, fork_ranks
from torchzoo.run.workers import Timed
from torchzoo.settings import CacheMode, Pass, Settings, Stage
from torchzoo.zoo.spec import ModelSpec

if TYPE_CHECKING:
    from torchzoo.measure.host import HostGate

#: The environment variable with the modules, separated by commas, that `torchzoo.run.preload` loads.
PRELOAD_VARIABLE = "TORCHZOO_PRELOAD"

#: The environment variable with the file in which `torchzoo.run.preload` reports on each of them.
REPORT_VARIABLE = "TORCHZOO_PRELOAD_REPORT"

#: Inductor's own variable: how many processes compile kernels.
COMPILE_THREADS_VARIABLE = "TORCHINDUCTOR_COMPILE_THREADS"

#: PyTorch records the last collectives, 2,000 by default. The memory of this record grows until it is full. With few
#: of them it is full before the leak check begins.
FLIGHT_RECORDER_SIZES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
COLLECTIVES_RECORDED = 10

#: The message that opens a worker's measuring window, lets it begin its check, or ends the wait of a case with several
#: ranks after its window.
GO = "go"


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """All that a worker needs to know."""

    case: Case
    spec: ModelSpec
    settings: Settings
    lane: Lane
    cores: tuple[int, ...]  # that the run may use; libgomp may have bound the fork server to one (OMP_PROC_BIND)
    undisturbed_loop_s: float | None  # `environment.host_loop_s` of a host that does nothing else; None: not known
    log: str  # where its standard output and error go
    scratch: str  # an empty folder, for packages of compiled code and for compile caches that start cold


@with_room
def work(request: Request, connection: Connection) -> None:
    """Send each stage as it begins, wait for the measuring window, then send the outcome."""
    os.setsid()  # a process group of its own, to be stopped and killed whole
    _close_inherited()
    _redirect_output(request.log)
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL)
    _limit_host_memory(request.settings.host_memory_limit_bytes)
    _set_environment(request)
    process.keep_freed()
    may_use = request.lane.near_cores or request.cores
    pin(may_use)
    stage = Stage.START

    def tell(new: Stage) -> None:
        nonlocal stage
        stage = new
        if new is Stage.EXAMINE:
            if own_cores:
                pin(may_use)  # all of them again: the window is over
            tracing.close()  # a check compiles once more
        messages.send(connection, messages.encode(new))
        if (new is Stage.EXAMINE and ranks) or new is Stage.HOLD:
            go.acquire()  # other cases with several ranks are measured on these devices; or others use the memory

    tracing, alone = contextlib.ExitStack(), None
    if Pass.MEMORY_ALONE in request.settings.passes and request.case.backend != EAGER:
        tell(Stage.ALONE)
        alone = _alone(request)
    if request.settings.cache is CacheMode.WARM and request.case.backend != EAGER and not isinstance(alone, Alone):
        tell(Stage.PRIME)
        _prime(request)
    ranks = _fork_ranks(request, connection)
    tracing.callback(_start_trace(request))
    own_cores = request.lane.cores_of(0)
    go = _listen(connection)

    def window() -> None:
        go.acquire()
        if own_cores:  # else its threads stay where they are: OpenMP may have bound each to a core
            pin(own_cores)

    watch = Watch(
        ranks,
        died=lambda rank, code: _rank_died(rank, code, request.log),
        send=lambda why: messages.send(connection, _outcome_line(why, stage, request.log)),
    )
    keep = partial(_keep, connection, alone)
    measure = partial(_measure, request, tell, window=window, ranks=ranks, keep=keep)
    result = attempt(lambda: with_alone(measure(), alone))
    cause = watch.cause(time.monotonic()) if isinstance(result, Exception) else None
    line = _outcome_line(cause or result, stage, request.log)
    watch.end(lambda: messages.send(connection, line))


def _keep(connection: Connection, alone: Alone | Skipped | Failed | None, measured: Measured) -> None:
    """Send what is measured so far. If it can't be recorded, the outcome will say why."""
    line = attempt(lambda: messages.encode(Timed(with_alone(measured, alone))))
    if isinstance(line, bytes):
        messages.send(connection, line)


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
    line = attempt(lambda: messages.encode(outcome))
    if isinstance(line, Exception):
        failed = failure(line, stage, log)
        text = f"what the model says of itself can't be recorded: {failed.message}"
        line = messages.encode(msgspec.structs.replace(failed, message=text))
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
    if request.settings.debug_dir is None or request.case.backend == EAGER:
        return lambda: None
    from torchzoo.measure.trace import StructuredTrace

    trace = StructuredTrace(case_folder(request.settings.debug_dir, request.case), rank)
    trace.start()
    return trace.stop


def _rank_died(rank: int, code: int, log: str) -> Failed:
    how = signal.Signals(-code).name if code < 0 else f"status {code}"
    message = f"rank {rank} ended with {how}, and said nothing"
    return Failed(kind=FailureKind.CRASHED, stage=Stage.START, message=message, log=log)


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
    window: Callable[[], object],
    ranks: Sequence[Rank] = (),
    keep: Callable[[Measured], object] = lambda _: None,
) -> Measured | Checked:
    from torchzoo.measure.case_ranks import Line
    from torchzoo.measure.measure_case import Assignment, measure_case

    _limit_compile_processes(request)
    given = Assignment(
        case=request.case,
        spec=request.spec,
        device=request.lane.device,
        settings=msgspec.structs.replace(request.settings, threads=_threads(request)),
        gate=_gate(request),
        lines=[Line(rank.line) for rank in ranks],
        tell=tell,
        window=window,
        keep=keep,
    )
    return measure_case(given)


def _prime(request: Request) -> None:
    """Fill the compile caches: compile the case once in a process that is forked before this one touches a device.

    What fails there fails here again, and is reported then.
    """
    pid = os.fork()
    if pid:
        os.waitpid(pid, 0)
        return
    try:  # the copy of the worker must not run on, whatever happens in it
        _measure(request, tell=lambda _: None, window=lambda: os._exit(0))
    finally:
        os._exit(1)


def _alone(request: Request) -> Alone | Skipped | Failed:
    """The candidate in a process that is forked before this one touches a device, or why there is no figure of it.

    It compiles into an empty folder. Where this process should find warm caches, that is the folder which this process
    reads afterwards, so that nothing is compiled a third time. Else this process does not see it.
    """
    from torchzoo.measure.measure_case import measure_alone, why_never_alone

    if (why := why_never_alone(request.case)) is not None:
        return Skipped(reason=why)

    def measure() -> Alone:
        if request.settings.cache is not CacheMode.WARM:
            os.environ.update(cache_variables(Path(request.scratch) / "alone"))
        _limit_compile_processes(request)
        settings = msgspec.structs.replace(request.settings, threads=_threads(request))
        return measure_alone(request.case, request.spec, request.lane.device, settings)

    return alone_in_process(measure, request.settings.limits.alone_s, request.log)


def tell_machine_info(connection: Connection) -> None:
    """Send what the machine has, or one line that says why torch can't tell."""
    answer: MachineInfo | str
    try:
        from torchzoo.machine.facts import collect_machine_info

        answer = collect_machine_info()
    except (ImportError, OSError, RuntimeError) as error:
        why = import_error("torch") or " ".join(str(error).split())
        answer = f"torch can't be used here: {why[:300]}"
    with contextlib.suppress(BrokenPipeError):  # who asked was interrupted
        connection.send(answer)


def import_error(module: str) -> str:
    """The last line of what importing a module says in a new Python; empty if that works.

    The server, of which this process is a fork, has tried to import it before. After that, a second try may fail
    because it is the second.
    """
    done = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True, text=True, check=False)  # noqa: S603
    lines = done.stderr.strip().splitlines()
    return lines[-1] if done.returncode and lines else ""


def tell_measured_peaks(connection: Connection, device_name: str) -> None:
    """Send the name of a device, its threads (of a CPU) and its measured peaks; or one line that says why not."""
    try:
        import torch

        from torchzoo.devices import device_of
        from torchzoo.measure.passes.measured_peaks import measure_peaks

        device = torch.device(device_name)
        if device.type != "cpu":
            torch.accelerator.set_device_index(device)
        threads = torch.get_num_threads() if device.type == "cpu" else None
        connection.send((device_of(device).name(), threads, measure_peaks(device)))
    except (ImportError, OSError, RuntimeError) as error:
        connection.send(f"can't measure {device_name}: {' '.join(str(error).split())[:300]}")


def tell_host_speed(connection: Connection, cores: tuple[int, ...]) -> None:
    """Send how long the host's loop takes on an undisturbed one of these cores, in seconds."""
    from torchzoo.measure.host import undisturbed_loop_s

    connection.send(undisturbed_loop_s(cores))


def _listen(connection: Connection) -> threading.Semaphore:
    """A semaphore that the parent raises with each `GO`. If the parent is gone, the worker ends itself."""
    go = threading.Semaphore(0)

    def listen() -> None:
        try:
            while connection.recv() == GO:
                go.release()
        except (EOFError, OSError):
            os.killpg(0, signal.SIGKILL)

    os.register_at_fork(after_in_child=connection.close)  # compilers' processes must not hold the parent's pipe open
    threading.Thread(target=listen, daemon=True, name="torchzoo-parent").start()
    return go


def _set_environment(request: Request) -> None:
    """Set the places of what is compiled, before torch compiles anything, and the length of PyTorch's own records."""
    os.environ[SCRATCH_VARIABLE] = request.scratch
    os.environ.update(cache_variables(Path(request.settings.cache_dir or request.scratch)))
    if request.case.world > 1 and Pass.LEAK_CHECK in request.settings.passes:
        os.environ.update(dict.fromkeys(FLIGHT_RECORDER_SIZES, str(COLLECTIVES_RECORDED)))


def _close_inherited() -> None:
    """Close what multiprocessing shares among all its processes: whoever writes garbage there ends the fork server.

    Code of a model that needs them starts a fork server or a resource tracker of its own.
    """
    for shared, name in ((forkserver._forkserver, "_forkserver_alive_fd"), (resource_tracker._resource_tracker, "_fd")):
        if (descriptor := getattr(shared, name, None)) is not None:
            setattr(shared, name, None)
            with contextlib.suppress(OSError):
                os.close(descriptor)


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
