"""A run's folder among processes: one runner writes at a time, and to read it needs little."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR, ROOT, compared, manifest, record
from torchzoo.store import RunStore, StoreError


def python(code: str, *arguments: str | Path, **options: object) -> subprocess.Popen[str]:
    """A Python of its own that runs `code`."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,  # type: ignore[call-overload]
    )


# --- one runner at a time ---


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        for resume in (False, True):
            with (
                pytest.raises(StoreError, match="another torchzoo is at work"),
                RunStore(tmp_path, resume=resume),
            ):
                pass
    with pytest.raises(StoreError, match="holds a run already: go on with --resume"), RunStore(tmp_path):
        pass
    for _ in range(2):  # a store that was refused has not kept the lock
        with RunStore(tmp_path, resume=True):
            pass


HOLD = """
import sys, time
from pathlib import Path
from torchzoo.store import RunStore
with RunStore(Path(sys.argv[1])):
    print("inside", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_lock_of_a_killed_runner_is_free_again(tmp_path: Path, number: signal.Signals) -> None:
    with python(HOLD, tmp_path) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "inside\n"
        with pytest.raises(StoreError, match="another torchzoo is at work"), RunStore(tmp_path):
            pass
        with python(HOLD, tmp_path) as other:  # another process is refused, too
            _, error = other.communicate(timeout=30)
            assert other.returncode == 1
            assert "another torchzoo is at work" in error
        runner.send_signal(number)
        runner.wait(timeout=30)
    with RunStore(tmp_path):
        pass


LEAVE_A_CHILD = """
import multiprocessing, os, subprocess, sys, time
from pathlib import Path
from torchzoo.store import RunStore

def outlive(connection):
    connection.send(os.getpid())
    time.sleep(60)

if __name__ == "__main__":
    with RunStore(Path(sys.argv[1])):
        context = multiprocessing.get_context(sys.argv[2])
        receiver, sender = context.Pipe()
        worker = context.Process(target=outlive, args=(sender,))
        worker.start()
        reaper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        print(receiver.recv(), reaper.pid, flush=True)
        time.sleep(60)
"""


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_workers_do_not_inherit_the_lock(tmp_path: Path, method: str) -> None:
    script = tmp_path / "leave_a_child.py"  # a worker of `spawn` imports the script
    script.write_text(LEAVE_A_CHILD)
    command = [sys.executable, str(script), str(tmp_path / "run"), method]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, text=True, stdout=subprocess.PIPE, env=environment) as runner:
        assert runner.stdout is not None
        children = [int(pid) for pid in runner.stdout.readline().split()]
        runner.kill()
        runner.wait(timeout=30)
        try:
            assert len(children) == 2
            for pid in children:
                os.kill(pid, 0)  # it is alive
            with RunStore(tmp_path / "run"):
                pass
        finally:
            for pid in children:
                os.kill(pid, signal.SIGKILL)


# --- folders that can't be used ---


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_to_resume_where_no_run_is_makes_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=f"no run in .*{name}"), RunStore(tmp_path / name, resume=True):
        pass
    assert [path.name for path in tmp_path.rglob("*")] == ["empty"]


def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"can't write to .*: Not a directory"), RunStore(tmp_path / "file" / "run"):
        pass
    (tmp_path / "full" / ".lock").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"can't write to .*: Is a directory"), RunStore(tmp_path / "full"):
        pass

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "mkdir", denied)
        with pytest.raises(StoreError, match=r"can't write to .*: Permission denied"), RunStore(tmp_path / "run"):
            pass


READ_ONLY = """
import os, sys
from pathlib import Path
from torchzoo.store import RunStore, StoreError, read_run
with RunStore(Path(sys.argv[2])):
    pass  # what this needs is imported while it can be
if os.geteuid() == 0:
    os.setuid(65534)  # root may write everywhere
for resume in (False, True):
    try:
        with RunStore(Path(sys.argv[1]), resume=resume):
            pass
    except StoreError as error:
        print(error)
print(len(read_run(Path(sys.argv[1])).records), "read")
"""


def test_a_read_only_folder_is_refused_in_one_line_and_can_be_read(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as parent:  # one that other users may enter, unlike `tmp_path`
        folder = Path(parent) / "run"
        with RunStore(folder) as store:
            store.begin(manifest())
            store.append(record())
        (folder / ".lock").chmod(0o444)
        folder.chmod(0o555)
        Path(parent).chmod(0o755)
        with python(READ_ONLY, folder, tmp_path) as reader:
            output, error = reader.communicate(timeout=60)
        folder.chmod(0o755)
    assert reader.returncode == 0, error
    assert output.splitlines() == [f"can't write to {folder}: Permission denied; name another folder with -o"] * 2 + [
        "1 read"
    ]


# --- reading needs little ---

#: What writes, locks, schedules or computes. `report` needs none of it.
NOT_NEEDED = ("fcntl", "filelock", "multiprocessing", "psutil", "torch", "torchzoo.run.scheduler")
REPORT = f"""
import argparse, sys
from pathlib import Path
for name in {NOT_NEEDED}:
    sys.modules[name] = None  # to import it is an error from here on
from torchzoo.commands import report
arguments = {{"format": "table", "noise": False}}
arguments |= dict.fromkeys(("output", "sort", "worst", "best", "host"))
report.run(argparse.Namespace(paths=[Path(sys.argv[1])], **arguments))
"""


def test_a_report_needs_no_scheduler_no_lock_and_no_torch(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest(cases=(CASE, msgspec.structs.replace(CASE, model="b"))))
        store.append(record())
        store.append(record(compared(), model="b", backend=INDUCTOR))
    with python(REPORT, tmp_path) as reader:
        output, error = reader.communicate(timeout=60)
    assert reader.returncode == 0, error
    assert "tiny" in output
