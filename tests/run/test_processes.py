"""How processes die, hang and garble, and how a run is interrupted: each costs its own case, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from examples import CASE, ROOT, SPEC, measured
from torchzoo.devices.foreign import foreign_processes, run_ancestor
from torchzoo.files import to_json
from torchzoo.machine.limits import this_thread_on, usable_cores
from torchzoo.record import Failed, FailureKind, Skipped, Took
from torchzoo.run import lines, protocol
from torchzoo.run.failures import failure
from torchzoo.run.interrupts import Interrupts
from torchzoo.run.lanes import Lane
from torchzoo.run.lines import Garbled, LineReader
from torchzoo.run.plan import PlannedCase
from torchzoo.run.pool import STARTS, Pool, PoolRun, PoolWorkers, ServerError, TorchUnusable
from torchzoo.run.process_tree import descendants
from torchzoo.run.scheduler import Scheduler
from torchzoo.run.workers import Exited, Message
from torchzoo.settings import Settings, Stage, StageLimits
from user_models import TINY, make_folder
from waiting import until

pytestmark = pytest.mark.xdist_group("run")

HERE = "process_functions"
LANE = Lane(device="cpu")


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    """A pool whose server has loaded torch alone. Its processes find the functions of tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(map(str, (ROOT / "tests", Path(__file__).parent))))
        with Pool([]) as found:
            yield found


#: Starts a process with a ticket, a function of `process_functions`, an argument, and a scratch folder.
Start = Callable[..., None]


@pytest.fixture(params=["fork", "fresh"])
def start(request: pytest.FixtureRequest, pool: Pool, tmp_path: Path) -> Start:
    """Starts a process in each of the two ways: the ends of both are the same."""
    fresh_log = str(tmp_path / "log") if request.param == "fresh" else ""

    def call(ticket: int, function: str, argument: bytes = b"{}", scratch: str = "") -> None:
        pool.start(ticket, f"{HERE}:{function}", argument, scratch, fresh_log)

    return call


@pytest.fixture
def scratch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="tz-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield Path(folder)


def messages_of(pool: Pool, ticket: int, until_last: type = Exited) -> list[Message]:
    """Return the messages of a process up to the first of that kind."""
    found: list[Message] = []

    def is_over() -> bool:
        found.extend(message for other, message in pool.said() if other == ticket)
        return any(isinstance(message, until_last) for message in found)

    until(is_over)
    return found


def assert_end(pids: list[int]) -> None:
    alive = [process for process in psutil.process_iter() if process.pid in pids]
    until(lambda: all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in alive))


def begun(path: Path) -> list[int]:
    """The ids of a process that hangs and of those that it has started."""
    until(path.exists)
    return [int(word) for word in path.read_text().split()]


# --- one process ---


@pytest.mark.parametrize(
    ("function", "messages"),
    [
        ("tells", [Stage.BUILD, Stage.COMPILE, measured(), Exited(0)]),
        ("is_killed", [Stage.BUILD, Exited(-signal.SIGKILL)]),
        ("crashes", [Stage.BUILD, Exited(-signal.SIGSEGV)]),
        ("exits", [Stage.BUILD, Exited(7)]),
        ("raises", [Exited(1)]),
        ("is_not_there", [Exited(1)]),
    ],
)
def test_the_end_of_a_process_comes_after_its_messages(
    pool: Pool, start: Start, function: str, messages: list[Message]
) -> None:
    start(1, function)
    assert messages_of(pool, 1) == messages
    pool.kill(1)


@pytest.mark.parametrize("function", ["garbles", "sends_another_message", "nests"])
def test_after_garbage_nothing_is_read(pool: Pool, start: Start, function: str) -> None:
    start(1, function)
    first, second = messages_of(pool, 1, Garbled)
    assert first is Stage.BUILD
    assert isinstance(second, Garbled)
    pool.kill(1)
    start(1, "tells")
    assert messages_of(pool, 1)[0] is Stage.BUILD  # another process of that number is heard
    pool.kill(1)


def test_a_process_is_stopped_continued_and_killed_with_all_that_it_has_started(
    pool: Pool, start: Start, tmp_path: Path, scratch: Path
) -> None:
    (scratch / "of the process").mkdir()
    start(1, "hangs", to_json(str(tmp_path / "pids")), str(scratch / "of the process"))
    pids = begun(tmp_path / "pids")
    hanging = psutil.Process(pids[0])
    pool.pause(1)
    until(lambda: hanging.status() == psutil.STATUS_STOPPED)
    pool.tell(protocol.Resume(ticket=1))
    until(lambda: hanging.status() == psutil.STATUS_SLEEPING)
    pool.kill(1)
    assert_end(pids)
    assert list(scratch.iterdir()) == []
    assert pool.said() == []


def test_a_worker_proceeds_to_the_stage_that_is_named(pool: Pool) -> None:
    pool.start(1, f"{HERE}:waits", b"{}")
    limits_s = {Stage.MEASURE: 2.5, Stage.EXAMINE: None, Stage.CHECK: None}
    for stage, limit_s in limits_s.items():
        pool.tell(protocol.Proceed(ticket=1, stage=stage, limit_s=limit_s))
    found: list[Message] = []
    until(lambda: found.extend(message for _, message in pool.said()) or len(found) == 7)
    said = [message for stage, limit_s in limits_s.items() for message in (stage, Took(result={"limit_s": limit_s}))]
    assert found == [Stage.WAIT, *said]
    pool.kill(1)


# --- questions ---


def test_a_process_that_tells_something_is_started_again_when_it_is_killed(pool: Pool, tmp_path: Path) -> None:
    assert pool.told(int, f"{HERE}:tells_third", to_json(str(tmp_path))) == 2
    with pytest.raises(TorchUnusable, match=f"died {STARTS} times"):
        pool.told(int, f"{HERE}:tells_never", to_json(str(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 3 + STARTS


def test_what_a_process_can_not_tell_is_one_line(pool: Pool) -> None:
    with pytest.raises(TorchUnusable, match=r"^can't measure nonsense:0: [^\n]*$"):
        pool.measured_peaks("nonsense:0")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or len(usable_cores()) < 2, reason="needs two cores")
def test_a_server_that_starts_while_the_runner_keeps_to_one_core_has_all_of_them() -> None:
    """Each repeat has a server of its own, and its processes must not have the runner's core only."""
    every = usable_cores()
    found = []
    with Pool([]) as pool, this_thread_on(every[:1]):
        for _ in range(2):
            found.append(pool.told(tuple[int, list[int], int, bool], f"{HERE}:cores", b"{}"))
            pool.renew()
        assert usable_cores() == every[:1]
    (first, *of_first), (second, *of_second) = found
    assert first != second
    assert of_first == of_second
    assert of_first[0] == list(every)
    assert of_first[2]  # a process group of its own


# --- the server ---


def test_workers_end_with_their_server_and_the_next_start_has_a_new_one(
    pool: Pool, start: Start, tmp_path: Path, scratch: Path
) -> None:
    (scratch / "of the process").mkdir()
    start(1, "hangs", to_json(str(tmp_path / "pids")), str(scratch / "of the process"))
    worker, *_ = begun(tmp_path / "pids")
    os.kill(psutil.Process(worker).ppid(), signal.SIGKILL)
    assert messages_of(pool, 1) == [Exited(-signal.SIGKILL, with_server=True)]
    assert_end([worker])
    assert list(scratch.iterdir()) == []
    pool.kill(1)
    pool.pause(1)  # what is asked too late is nothing
    start(2, "tells")
    assert messages_of(pool, 2)[-1] == Exited(0)
    pool.kill(2)
    for pid in begun(tmp_path / "pids")[1:]:  # nobody knows of them any more
        os.kill(pid, signal.SIGKILL)


def test_a_server_that_is_stopped_is_ended_with_its_processes(
    pool: Pool, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchzoo.run.pool.ANSWER_LIMIT_S", 0.3)
    start(1, "hangs", to_json(str(tmp_path / "pids")))
    worker, *_ = begun(tmp_path / "pids")
    server = psutil.Process(worker).ppid()
    os.kill(server, signal.SIGSTOP)
    pool.pause(1)
    assert_end([server, worker])
    assert messages_of(pool, 1) == [Exited(-signal.SIGKILL, with_server=True)]
    pool.kill(1)
    monkeypatch.undo()
    start(2, "tells")
    assert messages_of(pool, 2)[-1] == Exited(0)
    pool.kill(2)


def scripted(path: Path, code: str) -> str:
    """An interpreter that runs a shell script in place of the server."""
    (path / "python").write_text(f"#!/bin/sh\n{code}\n")
    (path / "python").chmod(0o755)
    return str(path / "python")


REFUSED = to_json(protocol.Refused(message="torch is of no use here: no libfoo")).decode()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (f"echo '{REFUSED}'; cat > /dev/null", "one: torch is of no use here: no libfoo"),
        ("echo 'Fatal: [1, 2'; cat > /dev/null", "one: its server can't be understood"),
        ("exit 3", "one: importing torch ends the process"),
        ("kill -9 $$", "one: importing torch ends the process"),
    ],
    ids=["refused", "garbage", "exited", "killed"],
)
def test_a_server_that_can_not_serve_is_one_line(tmp_path: Path, code: str, message: str) -> None:
    with Pool([], name="one", python=scripted(tmp_path, code)) as pool, pytest.raises(ServerError) as error:
        pool.machine_info()
    assert str(error.value).startswith(message)
    assert "\n" not in str(error.value)
    assert error.value.environment == "one"


def test_a_python_that_is_not_there_is_one_line() -> None:
    with Pool([], name="one", python="/no/python") as pool, pytest.raises(ServerError) as error:
        pool.machine_info()
    assert str(error.value) == "one: can't start /no/python: No such file or directory"


def test_a_torch_that_can_not_be_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no libfoo')")
    variables = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    with Pool([], variables=variables) as pool, pytest.raises(TorchUnusable) as error:
        pool.machine_info()
    assert str(error.value).startswith("torch can't be used here: ImportError: no libfoo")


def test_a_process_of_another_environment_on_the_same_device_is_not_foreign(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of an A/B asks, while a worker of the other side has the device open."""
    pool.start(1, f"{HERE}:hangs", to_json(str(tmp_path / "pids")))
    worker, *_ = begun(tmp_path / "pids")
    for name, value in psutil.Process(worker).environ().items():
        monkeypatch.setenv(name, value)
    with subprocess.Popen(["sleep", "600"]) as other:
        assert foreign_processes([worker, other.pid, 1], own=worker, ancestor=run_ancestor()) == 1
        other.kill()
    pool.kill(1)


# --- the workers of a scheduler ---


def run_one_case(
    pool: Pool,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    function: str,
    settings: Settings = Settings(),  # noqa: B008
) -> Failed:
    """The failure of a case whose worker is that function."""
    monkeypatch.setattr("torchzoo.run.pool.WORK", f"{HERE}:{function}")
    with PoolWorkers({"": PoolRun(pool=pool, settings=settings)}) as workers:
        scheduler = Scheduler(workers, [LANE], settings, log_path=lambda _: folder / "log")
        (record,) = scheduler.run((PlannedCase(case=CASE, spec=SPEC),))
    assert isinstance(record.outcome, Failed)
    return record.outcome


@pytest.mark.parametrize(
    ("function", "words"),
    [
        ("is_killed", "ended by SIGKILL in build"),
        ("garbles", "can't be understood"),
    ],
)
def test_a_worker_that_dies_or_garbles_is_a_crash(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, scratch: Path, function: str, words: str
) -> None:
    failed = run_one_case(pool, monkeypatch, scratch, function)
    assert (failed.kind, failed.stage) == (FailureKind.CRASHED, Stage.BUILD)
    assert words in failed.message
    assert list(scratch.iterdir()) == []


def test_a_case_that_the_signal_for_its_stacks_wakes_is_a_timeout(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    settings = Settings(limits=StageLimits(build_s=60, compile_s=60, measure_s=0.3))
    failed = run_one_case(pool, monkeypatch, scratch, "sleeps_with_the_lock", settings)
    assert (failed.kind, failed.stage) == (FailureKind.TIMEOUT, Stage.MEASURE)
    assert "Current thread" in failed.traceback


@pytest.mark.parametrize("moments", [("start", "kill"), ("kill", "close")], ids="+".join)
def test_an_interrupt_while_a_worker_starts_or_is_killed_leaves_nothing(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, scratch: Path, moments: tuple[str, ...]
) -> None:
    def interrupted(name: str) -> None:
        method = getattr(Pool, name)

        def call(*arguments: object) -> object:
            os.kill(os.getpid(), signal.SIGINT)
            done = method(*arguments)
            os.kill(os.getpid(), signal.SIGINT)
            return done

        monkeypatch.setattr(Pool, name, call)

    pool.machine_info()  # the server has loaded
    for moment in moments:
        interrupted(moment)
    assert pool._process is not None
    below = {pool._process.pid, *descendants(pool._process.pid)}
    with pytest.raises(KeyboardInterrupt):
        run_one_case(pool, monkeypatch, scratch, "is_killed")
    assert_end(sorted(below))
    assert list(scratch.iterdir()) == []
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_after_the_last_wait_is_not_lost(pool: Pool) -> None:
    with pytest.raises(KeyboardInterrupt), PoolWorkers({"": PoolRun(pool=pool, settings=Settings())}):
        os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupt_while_a_server_is_ended_is_not_lost(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    end = pool._end
    monkeypatch.setattr(pool, "_end", lambda: (os.kill(os.getpid(), signal.SIGINT), end()))
    with pytest.raises(KeyboardInterrupt):
        pool.renew()
    assert pool._process is None


# --- the runner ---


def test_any_number_of_interrupts_fits_in() -> None:
    interrupts = Interrupts()
    with interrupts:
        for _ in range(100_000):
            interrupts._on_signal()
    assert interrupts.came


HOLDS = """
    import sys, tempfile
    from torchzoo.files import to_json
    from torchzoo.run.pool import Pool

    pool = Pool(sys.argv[3:])
    if not sys.argv[2]:
        pool.machine_info()  # the server has loaded
    scratch = tempfile.mkdtemp(prefix="torchzoo-scratch-")
    pool.start(1, "process_functions:hangs", to_json(sys.argv[1]), scratch, fresh_log=sys.argv[2])
    while True:
        pool.said()
"""


@pytest.mark.parametrize(
    ("fresh_log", "library"),
    [("", ""), ("log", ""), ("", "hanging")],
    ids=["a worker runs", "a fresh process runs", "a library is imported"],
)
def test_when_the_runner_is_killed_nothing_is_left(
    tmp_path: Path, temporary: Path, fresh_log: str, library: str
) -> None:
    flag = tmp_path / "pids"
    (tmp_path / "hanging.py").write_text(
        f"import os, time\nopen({str(flag)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    folders = os.pathsep.join(map(str, (ROOT, ROOT / "tests", Path(__file__).parent, tmp_path)))
    command = [sys.executable, "-c", textwrap.dedent(HOLDS), str(flag), fresh_log, *filter(None, [library])]
    runner = subprocess.Popen(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": folders, "TMPDIR": str(temporary)}
    )
    until(flag.exists)
    children = psutil.Process(runner.pid).children(recursive=True)
    runner.kill()
    runner.wait()
    assert_end([child.pid for child in children])
    until(lambda: not list(temporary.glob("torchzoo-*")), limit_s=20)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("numbers", "whole_terminal"),
    [((signal.SIGINT,), True), ((signal.SIGTERM,), False), ((signal.SIGINT, signal.SIGINT), False)],
    ids=["Ctrl-C", "kill", "Ctrl-C twice"],
)
@pytest.mark.parametrize("imports", [False, True], ids=["a worker runs", "a library is imported"])
def test_an_interrupted_run_ends_all_at_once(
    tmp_path: Path, temporary: Path, *, numbers: tuple[signal.Signals, ...], whole_terminal: bool, imports: bool
) -> None:
    """Ctrl-C comes to all processes of a terminal, `kill` to the runner alone."""
    flag = tmp_path / "flag"
    (tmp_path / "slowlibrary.py").write_text(f"import time\nopen({str(flag)!r}, 'w').close()\ntime.sleep(600)\n")
    if imports:
        make_folder(tmp_path / "zoo", "tiny", code="import slowlibrary\n" + TINY)
    else:
        waits = f"\n    def build(self):\n        open({str(flag)!r}, 'w').close()\n        time.sleep(600)\n"
        make_folder(tmp_path / "zoo", "tiny", code=TINY + waits)
    command = [sys.executable, str(ROOT / "run.py"), "tiny", "--models-dir", str(tmp_path / "zoo"), "-d", "cpu", "-q"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)}
    runner = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )
    until(lambda: flag.exists() or runner.poll() is not None)
    children = psutil.Process(runner.pid).children(recursive=True)
    for number in numbers:
        (os.killpg if whole_terminal else os.kill)(runner.pid, number)
    output = runner.communicate(timeout=60)
    assert (runner.returncode, *output) == (130, "", "torchzoo: interrupted\n")
    assert psutil.wait_procs(children, timeout=20)[1] == []
    assert [path.name for path in temporary.iterdir() if path.name.startswith("torchzoo-")] == []


# --- lines ---


@pytest.fixture
def pipe() -> Iterator[tuple[LineReader[Message], int]]:
    reading, writing = os.pipe()
    yield LineReader(reading, protocol.of_worker), writing
    os.close(reading)
    os.close(writing)


def test_half_a_line_is_kept_until_the_rest_comes(pipe: tuple[LineReader[Message], int]) -> None:
    reader, writing = pipe
    line = protocol.encode(measured())
    os.write(writing, line[:100])
    assert reader.read() == []
    os.write(writing, line[100:] + protocol.encode(Skipped(reason="no int8 here")) + protocol.encode(Stage.EXAMINE)[:3])
    assert reader.read() == [measured(), Skipped(reason="no int8 here")]
    assert reader.is_open


def test_bytes_without_end_are_no_message(
    pipe: tuple[LineReader[Message], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LONGEST_LINE", 1000)
    reader, writing = pipe
    os.write(writing, b"x" * 2000)
    (garbled,) = reader.read()
    assert isinstance(garbled, Garbled)
    assert not reader.is_open


@pytest.mark.parametrize(("field", "value"), [("sample_unit", None), ("samples_per_step", 4.5)])
def test_what_could_not_be_read_again_is_not_sent(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        protocol.encode(measured(**{field: value}))


def test_a_failure_can_be_sent_whatever_its_message_is() -> None:
    failed = failure(RuntimeError("half a pair \ud800"), Stage.BUILD, "a.log")
    assert failed == protocol.of_worker.decode(protocol.encode(failed))
    assert failed.message == r"RuntimeError: half a pair \ud800"
