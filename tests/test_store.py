"""A run's folder: what is written is read back, one runner writes at a time, and an error is one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR, ROOT, compared, manifest, measured, record
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.settings import Stage
from torchzoo.store import RunStore, StoreError, read_run, write_whole

FAILED = Failed(kind=FailureKind.TIMEOUT, stage=Stage.COMPILE, message="hung", log="x.log")


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


def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    outcomes = [measured(), Skipped(reason="no"), FAILED]
    records = [record(outcome, seed=seed) for seed, outcome in enumerate(outcomes)]
    records.append(record(compared(), backend=INDUCTOR))
    with RunStore(tmp_path / "deep" / "run") as store:
        store.begin(manifest())
        for each in records:
            store.append(each)
    run = read_run(store.path)
    assert run.records == tuple(records)
    assert run.manifest == manifest()
    assert run.damaged_lines == 0


def test_records_come_back_in_the_plans_order(tmp_path: Path) -> None:
    cases = (CASE, msgspec.structs.replace(CASE, model="b"), msgspec.structs.replace(CASE, model="c"))
    with RunStore(tmp_path) as store:
        store.begin(manifest(cases=cases))
        for model in ("c", "tiny", "b"):
            store.append(record(model=model))
    assert [r.case.model for r in read_run(tmp_path).records] == ["tiny", "b", "c"]


def test_a_line_cut_short_costs_only_itself(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        store.append(record())
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(record())[:200])
    run = read_run(tmp_path)
    assert len(run.records) == 1
    assert run.damaged_lines == 1


def test_a_resumed_run_keeps_the_latest_record_of_a_case(tmp_path: Path) -> None:
    with RunStore(tmp_path) as first:
        first.begin(manifest())
        first.append(record(FAILED))
        with (tmp_path / "records.jsonl").open("ab") as file:
            file.write(msgspec.json.encode(record(model="b"))[:100])  # killed while it wrote
    with RunStore(tmp_path, resume=True) as second:
        second.append(record())
    run = read_run(tmp_path)
    assert run.records == (record(),)
    assert run.damaged_lines == 1
    assert len((tmp_path / "records.jsonl").read_bytes().splitlines()) == 3  # nothing is lost


def test_the_store_remembers_whether_a_case_failed(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.append(record())
        assert not store.has_failures
        store.append(record(FAILED, seed=1))
        store.append(record(seed=2))
        assert store.has_failures


def test_a_manifest_that_is_written_anew_is_never_half_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    write_whole(path, b"first")

    def killed(*_: object) -> Path:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        write_whole(path, b"second")
    assert path.read_bytes() == b"first"


# --- what can't be kept ---


def test_a_text_that_is_not_utf_8_is_kept_with_its_escape(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest(command=("torchzoo", "-o", "\udcff")))
        kept = store.append(record(msgspec.structs.replace(FAILED, message="bad \udcff name")))
    run = read_run(tmp_path)
    assert run.records == (kept,)
    assert isinstance(kept.outcome, Failed)
    assert kept.outcome.message == "bad \\udcff name"
    assert run.manifest.command == ("torchzoo", "-o", "\\udcff")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"sample_unit": None}, "Expected `str`, got `null` - at `$.outcome.sample_unit`"),
        ({"samples_per_step": 4.5}, "Expected `int`, got `float` - at `$.outcome.samples_per_step`"),
        ({"samples_per_step": object()}, "Encoding objects of type object is unsupported"),
        ({"host_loop_s": (float("nan"),)}, "Expected `float`, got `null` - at `$.outcome.host_loop_s[0]`"),
        ({"blocks": ()}, "its blocks are not in turns"),
    ],
)
def test_a_result_that_could_not_be_read_again_is_a_failure_with_the_reason(
    tmp_path: Path, changes: dict[str, object], why: str
) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        kept = store.append(record(measured(**changes)))
        assert store.has_failures
    assert read_run(tmp_path).records == (kept,)
    assert isinstance(kept.outcome, Failed)
    assert kept.outcome.message == f"the result can't be kept: {why}"


def test_a_run_that_could_not_be_read_again_does_not_begin(tmp_path: Path) -> None:
    with (
        RunStore(tmp_path) as store,
        pytest.raises(StoreError, match=r"can't be kept: .* <= 9223372036854775807 - at `\$.cases\[0\].seed`"),
    ):
        store.begin(manifest(cases=(msgspec.structs.replace(CASE, seed=10**30),)))
    assert not (tmp_path / "run.json").exists()


def test_a_log_has_a_name_that_every_disk_takes(tmp_path: Path) -> None:
    name = RunStore(tmp_path).log_path(7, "\udcff\u4e2d /" + "y" * 255).name
    assert name.startswith("0007-----yyy")
    assert len(os.fsencode(name)) < 255


# --- what can't be read ---


def test_the_rest_is_read_and_the_line_that_can_not_be_is_named(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        for seed in range(2):
            store.append(record(seed=seed))
    whole = read_run(tmp_path)
    assert whole.damage == ""
    path = tmp_path / "records.jsonl"
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first + b"\n" + b"[" * 100_000 + b"\n" + second + b"\n")
    run = read_run(tmp_path)
    assert run.records == whole.records
    assert run.damage.startswith(f"{path}: line 2 could not be read and is left out (")
    with path.open("ab") as file:
        file.write(b"\0" * 100 + b"\n\xff\n")
    assert read_run(tmp_path).damage.startswith(
        f"{path}: 3 lines could not be read and are left out (the first is line 2, "
    )


@pytest.mark.parametrize("name", ["run.json", "records.jsonl"])
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (Path.mkdir, "Is a directory"),
        (lambda path: path.symlink_to(path.name), "symbolic links"),
        (os.mkfifo, "a pipe or a device"),
    ],
    ids=["a folder", "a loop", "a pipe"],
)
def test_what_is_no_file_is_one_line_that_names_it(
    tmp_path: Path, name: str, make: Callable[[Path], None], words: str
) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        store.append(record())
    (tmp_path / name).unlink()
    make(tmp_path / name)
    with pytest.raises(StoreError, match=f"{tmp_path / name}: .*{words}"):
        read_run(tmp_path)


def test_a_run_without_records_is_read(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
    assert read_run(tmp_path).records == ()


# --- one runner at a time ---


def test_to_make_a_store_does_nothing(tmp_path: Path) -> None:
    RunStore(tmp_path / "run")
    RunStore(tmp_path / "run", resume=True)
    assert list(tmp_path.iterdir()) == []


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


def test_an_error_inside_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunStore(tmp_path):
        raise ZeroDivisionError
    with RunStore(tmp_path):
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


def test_the_lock_leaves_one_empty_file_and_no_other(tmp_path: Path) -> None:
    with RunStore(tmp_path / "run") as store:
        store.begin(manifest())
        inside = sorted(path.name for path in store.path.iterdir())
    after = sorted(path.name for path in store.path.iterdir())
    assert inside == after == [".lock", "logs", "run.json"]
    assert (store.path / ".lock").read_bytes() == b""


def test_a_lock_file_that_was_left_there_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("of an earlier torchzoo")
    with RunStore(tmp_path):
        pass
    assert (tmp_path / ".lock").read_text() == "of an earlier torchzoo"


def test_to_lock_does_not_wait(tmp_path: Path) -> None:
    with RunStore(tmp_path):
        began = time.perf_counter()
        with pytest.raises(StoreError), RunStore(tmp_path):
            pass
        assert time.perf_counter() - began < 5


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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no run in"),
        (b"", "not a torchzoo run"),
        (b"{}", "not a torchzoo run"),
        (b"\xff\xfe", "not a torchzoo run"),
        (b'{"schema_version": 99}', "newer torchzoo"),
    ],
)
def test_the_error_for_what_is_no_run_is_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=words) as error:
        read_run(tmp_path)
    assert "\n" not in str(error.value)


# --- reading needs little ---

#: What writes, locks, schedules or computes. `report` needs none of it.
NOT_NEEDED = ("fcntl", "filelock", "multiprocessing", "psutil", "torch", "torchzoo.run.scheduler")

REPORT = f"""
import argparse, sys
from pathlib import Path
for name in {NOT_NEEDED}:
    sys.modules[name] = None  # to import it is an error from here on
from torchzoo.commands import report
report.run(argparse.Namespace(paths=[Path(sys.argv[1])], format="table", output=None))
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
