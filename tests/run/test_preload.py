"""Settings, threads, hangs and output of a library's import stay with the models that use the library."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

import psutil
import pytest
import torch

from examples import ROOT
from torchzoo.machine.limits import usable_cores
from torchzoo.record import Failed, FailureKind, Measured, Outcome
from torchzoo.run import preload
from torchzoo.run.pool import Pool
from torchzoo.settings import Stage
from torchzoo.store import read_run
from user_models import TINY, make_folder

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
def test_libraries_that_are_not_harmless_are_left_to_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that uses the device does so for its package, as torchao does, which transformers imports."""
    package = tmp_path / "strange"
    package.mkdir()
    for name, code in {"__init__": "", "plain": "", "uses": USES_A_DEVICE}.items():
        (package / f"{name}.py").write_text(code)
    for name, library in {"settings": SETTINGS, "leaves": LEAVES, "hangs": HANGS, "dies": DIES}.items():
        (tmp_path / f"strange_{name}.py").write_text(library)
    monkeypatch.syspath_prepend(str(tmp_path))
    libraries = ["colorsys", "no_such_library", "strange_settings", "strange_leaves", "strange_hangs", "strange_dies"]
    with Pool([*libraries, "strange.plain", "strange.uses"], import_limit_s=10) as pool:
        pool.machine_info()
        assert pool.refused == {
            "strange_leaves": "its import changes the threads, the processes",
            "strange_hangs": "its import takes too long",
            "strange_dies": "its import ends the process",
            "strange": "its import changes the state of the device",
        }
        assert pool.preload == ("colorsys", "no_such_library", "strange_settings")
    assert sleepers() == []


@pytest.mark.slow
def test_a_library_costs_only_the_models_that_import_it(tmp_path: Path, temporary: Path) -> None:
    """Run four models with a strange library each, and a plain model, which is measured as if it were alone."""
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


def test_a_library_that_replaces_a_function_of_torch_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As torch_geometric does: a server that keeps it would change the function for all models."""
    before = preload.Inherited()
    for place, name in ((torch, "select"), (torch.nn.functional, "gelu"), (torch.Tensor, "relu")):
        monkeypatch.setattr(place, name, print)
    replaced = [name for name in before.changes() if name.startswith("torch.")]
    assert replaced == ["torch.select", "torch.nn.functional.gelu", "torch.Tensor.relu"]


def test_what_libraries_say_of_the_future_is_not_shown_while_they_are_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import warnings\nwarnings.warn('ends soon', FutureWarning)\nwarnings.warn('look here')\n"
    (tmp_path / "warns_of_the_future.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(preload, "_read_keys_of_caches", lambda: None)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        preload.load(["warns_of_the_future"], lambda _: None)
        gc.unfreeze()
        warnings.warn("a step says so", FutureWarning, stacklevel=1)
    assert [str(one.message) for one in shown if one.filename.startswith((str(tmp_path), __file__))] == [
        "look here",
        "a step says so",
    ]


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
    """Torch's import then binds the server to one core."""
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
