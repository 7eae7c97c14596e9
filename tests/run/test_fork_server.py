"""What one library does at its import stays with the models that use it: settings, threads, hangs, what it prints."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest
import torch

from examples import ROOT
from torchzoo.machine.limits import this_thread_on, usable_cores
from torchzoo.record import Failed, FailureKind, Measured, Outcome
from torchzoo.run import fork_server, reaper
from torchzoo.run.fork_server import ForkServer, TorchUnusable
from torchzoo.run.worker import PRELOAD_VARIABLE
from torchzoo.settings import Stage
from torchzoo.store import read_run
from user_models import TINY, make_folder
from waiting import until

pytestmark = pytest.mark.xdist_group("run")

SETTINGS = """
import os, threading, time
import torch

torch.set_num_threads(3)
torch.set_float32_matmul_precision("medium")
torch.backends.cudnn.benchmark = True
torch.set_default_dtype(torch.float64)
_clock = time.perf_counter_ns
time.perf_counter_ns = lambda: _clock() // 2
os.environ["TORCH_LOGS"] = "+dynamo"
print("Welcome!", flush=True)
"""
LEAVES = "import subprocess, threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
LEAVES += "subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
HANGS = "import time\ntime.sleep(600)\n"
DIES = "import os\nos._exit(3)\n"
USES_A_DEVICE = "import torch\ntorch.cuda.is_initialized = lambda: True\n"


@pytest.mark.slow
def test_a_library_costs_only_the_models_that_import_it(tmp_path: Path, temporary: Path) -> None:
    """One run of four models with a strange library each, and a plain one, which is measured as if it were alone."""
    for name, library in {"settings": SETTINGS, "leaves": LEAVES, "hangs": HANGS, "dies": DIES}.items():
        (tmp_path / f"strange_{name}.py").write_text(library)
        make_folder(tmp_path / "zoo", name, code=f"import strange_{name}\n{TINY}")
    make_folder(tmp_path / "zoo", "plain")
    command = [sys.executable, str(ROOT / "run.py"), "plain", "settings", "leaves", "hangs", "dies", "-d", "cpu"]
    command += ["--threads", "1", "--time-limit", "0.2", "--timeout", "10", "-j", "2", "--json"]
    command += ["--models-dir", str(tmp_path / "zoo"), "-o", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 1, done.stderr
    assert [
        json.loads(line)["case"]["model"] for line in done.stdout.splitlines()
    ]  # what a library prints is not there
    found: dict[str, Outcome] = {r.case.model: r.outcome for r in read_run(tmp_path / "run").records}

    plain, settings = found["plain"], found["settings"]
    assert isinstance(plain, Measured)
    assert isinstance(settings, Measured)
    assert plain.operator_dtypes == settings.operator_dtypes == {"float32": plain.operator_dtypes["float32"]}
    assert plain.precision_flags == settings.precision_flags
    assert plain.precision_flags["cudnn_benchmark"] == "False"
    assert (plain.threads, settings.threads) == (1, 1)
    assert plain.put_back == ()
    assert {"threads", "default dtype", "float32 matmul precision", "environment (TORCH_LOGS)"} <= set(
        settings.put_back
    )
    assert {"cudnn.benchmark", "time.perf_counter_ns"} <= set(settings.put_back)

    assert isinstance(found["leaves"], Measured)
    hangs, dies = found["hangs"], found["dies"]
    assert isinstance(hangs, Failed)
    assert (hangs.kind, hangs.stage) == (FailureKind.TIMEOUT, Stage.IMPORT)
    assert isinstance(dies, Failed)
    assert (dies.kind, dies.stage) == (FailureKind.CRASHED, Stage.IMPORT)
    assert sleepers() == []


def sleepers() -> list[psutil.Process]:
    """The processes that the library `leaves` starts, some time after the run has ended."""
    deadline = time.monotonic() + 10
    while True:
        found = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == ["sleep", "600"]]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_each_repeat_has_a_server_of_its_own(tmp_path: Path, temporary: Path) -> None:
    """Processes of one server have the same addresses, which alone can make their steps slower than another's."""
    forked = f"\nopen({str(tmp_path / 'servers')!r}, 'a').write(f'{{os.getppid()}}\\n')\n"
    make_folder(tmp_path / "zoo", "tiny", code=TINY + forked)
    command = [sys.executable, str(ROOT / "run.py"), "tiny", "-d", "cpu", "-t", "train,eval", "--repeats", "3", "-q"]
    command += ["--time-limit", "0.2", "-j", "2", "--models-dir", str(tmp_path / "zoo"), "-o", str(tmp_path / "run")]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    subprocess.run(command, env=environment, timeout=300, check=True, capture_output=True)
    assert [type(record.outcome) for record in read_run(tmp_path / "run").records] == [Measured] * 6
    servers = (tmp_path / "servers").read_text().split()
    assert [servers[:2], servers[2:4], servers[4:]] == [[one] * 2 for one in dict.fromkeys(servers)]
    assert len(set(servers)) == 3


def test_descendants_are_found_in_sessions_of_their_own() -> None:
    code = "import subprocess; subprocess.Popen(['sleep', '700'], start_new_session=True).wait()"
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        until(lambda: reaper.descendants(process.pid))
        (sleeper,) = map(psutil.Process, reaper.descendants(process.pid))
        reaper.kill_all(process.pid)
        assert psutil.wait_procs([sleeper], timeout=10)[1] == []


def test_a_folder_for_temporary_files_that_is_too_long_for_a_socket_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server.tempfile, "gettempdir", lambda: str(tmp_path / ("x" * 100)))
    with pytest.raises(TorchUnusable, match="set TMPDIR to one of at most 70 characters"):
        ForkServer([]).machine_info()


@pytest.mark.slow
def test_a_server_that_imports_ends_with_its_runner_though_the_reaper_is_gone(tmp_path: Path, temporary: Path) -> None:
    flag = tmp_path / "flag"
    (tmp_path / "strange_hangs.py").write_text(f"open({str(flag)!r}, 'w').close()\n{HANGS}")
    make_folder(tmp_path / "zoo", "hangs", code=f"import strange_hangs\n{TINY}")
    command = [sys.executable, str(ROOT / "run.py"), "hangs", "-d", "cpu", "-q", "-o", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)}
    with subprocess.Popen([*command, "--models-dir", str(tmp_path / "zoo")], env=environment) as runner:
        until(flag.exists)
        children = psutil.Process(runner.pid).children(recursive=True)
        (the_reaper,) = (child for child in children if "reaper.py" in " ".join(child.cmdline()))
        the_reaper.kill()
        runner.kill()
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []


@pytest.mark.slow
def test_a_server_that_is_stopped_while_it_imports_goes_on(tmp_path: Path, temporary: Path) -> None:
    stops = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    (tmp_path / "strange_stops.py").write_text(stops)
    make_folder(tmp_path / "zoo", "stops", code=f"import strange_stops\n{TINY}")
    command = [sys.executable, str(ROOT / "run.py"), "stops", "-d", "cpu", "--threads", "1", "--time-limit", "0.2"]
    command += ["--timeout", "30", "--models-dir", str(tmp_path / "zoo"), "-o", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def is_server(process: psutil.Process) -> bool:
    return "multiprocessing.forkserver" in " ".join(process.cmdline())


@pytest.mark.slow
def test_a_server_does_not_get_ctrl_c_before_its_first_line(temporary: Path) -> None:
    """In a terminal, SIGINT comes to all processes. Python would die of it in a server, with a traceback."""
    command = [sys.executable, str(ROOT / "run.py"), "lennard_jones", "-d", "cpu", "--bs", "smoke", "--json"]
    command += ["--time-limit", "0.5"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(temporary)}
    ) as run:
        deadline = time.monotonic() + 60
        while not (servers := [p for p in psutil.Process(run.pid).children() if is_server(p)]):
            assert time.monotonic() < deadline
        for _ in range(30):
            time.sleep(0.02)
            for server in servers:
                server.send_signal(signal.SIGINT)
        _, stderr = run.communicate(timeout=100)
    assert run.returncode == 0
    assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_server_that_ends_by_itself_is_waited_for(tmp_path: Path, temporary: Path) -> None:
    """For a while it has no command line, is no zombie yet, and its socket still takes connections."""
    (tmp_path / "takes_long_to_end.py").write_text("memory = bytes(bytearray(b'x') * 2**30)\n")
    code = """
        import contextlib, os, signal
        from multiprocessing import forkserver
        from multiprocessing.connection import Connection
        import psutil
        from torchzoo.run import fork_server

        forkserver.set_forkserver_preload(["takes_long_to_end"])
        server = fork_server.ForkServer([])
        server.told(Connection.send, "the preload is over")
        process = psutil.Process(forkserver._forkserver._forkserver_pid)
        os.kill(process.pid, signal.SIGKILL)
        with contextlib.suppress(psutil.ZombieProcess):
            while process.cmdline():
                pass
        server.renew()
        assert not process.is_running()
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "TMPDIR": str(temporary)}
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=environment, timeout=60, check=True)


def test_a_library_that_replaces_a_function_of_torch_is_seen() -> None:
    """As torch_geometric does: a server that keeps it would change the function for all models."""
    code = (
        "import torch; from torchzoo.run.preload import Inherited; before = Inherited(); print(before.changes());"
        "torch.select = torch.Tensor.relu = torch.nn.functional.gelu = print; print(before.changes())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stderr.splitlines() == ["()", "('torch.select', 'torch.nn.functional.gelu', 'torch.Tensor.relu')"]


def test_what_libraries_say_of_the_future_is_not_shown_while_they_are_imported(tmp_path: Path) -> None:
    (tmp_path / "warns.py").write_text(
        "import warnings\nwarnings.warn('ends soon', FutureWarning)\nwarnings.warn('look here')\n"
    )
    code = "import warnings; import torchzoo.run.preload; warnings.warn('a step says so', FutureWarning)"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), PRELOAD_VARIABLE: "warns"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "ends soon" not in done.stderr
    assert "look here" in done.stderr
    assert "a step says so" in done.stderr


@pytest.mark.slow
def test_a_library_that_uses_the_device_is_left_to_workers_with_its_package(tmp_path: Path, temporary: Path) -> None:
    """As torchao does, which transformers imports with its first model: no process of the server could use CUDA."""
    package = tmp_path / "strange"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "plain.py").write_text("")
    (package / "uses.py").write_text(USES_A_DEVICE)
    code = """
        from torchzoo.run.fork_server import ForkServer

        server = ForkServer(["strange.plain", "strange.uses", "colorsys"])
        server.machine_info()
        print(server.preload, server.refused)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, timeout=120, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ("('colorsys',) {'strange': 'its import changes the state of the device'}")


def tell_cores(connection: Connection, _: None) -> None:
    connection.send((sorted(os.sched_getaffinity(0)), torch.get_num_threads()))


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity") or len(usable_cores()) < 2, reason="needs two cores")
def test_a_server_that_starts_while_the_runner_keeps_to_one_core_has_all_of_them() -> None:
    """The second repeat has a server of its own. Its processes once had the runner's core, and one thread, only."""
    every = usable_cores()
    server = fork_server.ForkServer([])
    with fork_server.server_ended(), this_thread_on(every[:1]):
        server.ensure_running()
        first = server.told(tell_cores, None)
        server.renew()
        second = server.told(tell_cores, None)
        assert usable_cores() == every[:1]
    assert first == second
    assert second[0] == list(every)


WHERE = """

    def eval_step(self):
        torch.rand(1000, 1000).sum()  # by all threads of OpenMP
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        print("cores", sorted(set().union(*map(os.sched_getaffinity, threads))), flush=True)
        return super().eval_step()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux" or len(usable_cores()) < 2, reason="reads /proc; needs two cores")
def test_where_openmp_binds_its_threads_a_case_has_all_cores(tmp_path: Path, temporary: Path) -> None:
    """Torch's import then binds the server to one core, and its workers once measured on that core alone."""
    make_folder(tmp_path / "zoo", "where", code=TINY + WHERE)
    command = [sys.executable, str(ROOT / "run.py"), "where", "-d", "cpu", "--time-limit", "0.1"]
    command += ["--models-dir", str(tmp_path / "zoo"), "-o", str(tmp_path / "run")]
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_PROC_BIND": "close"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run")
    (log,) = (tmp_path / "run" / "logs").iterdir()
    told = [line for line in log.read_text().splitlines() if line.startswith("cores")]
    assert set(told) == {f"cores {list(usable_cores())}"}
    assert run.manifest.environment.cpu_usable == len(usable_cores())


def tell_third(connection: Connection, folder: Path) -> None:
    """The first process is killed, the second one is stopped, and then killed."""
    number = len(list(folder.iterdir()))
    (folder / str(number)).touch()
    if number == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    if number < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    connection.send(number)


def tell_never(connection: Connection, folder: Path) -> None:
    (folder / str(len(list(folder.iterdir())))).touch()
    os.kill(os.getpid(), signal.SIGKILL)
    connection.send(None)


def test_a_process_that_tells_something_is_started_again_when_somebody_kills_it(tmp_path: Path) -> None:
    assert ForkServer([]).told(tell_third, tmp_path) == 2


def test_it_is_one_line_when_somebody_kills_it_again_and_again(tmp_path: Path) -> None:
    with pytest.raises(TorchUnusable, match=r"the process for tell_never .* died 3 times"):
        ForkServer([]).told(tell_never, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
