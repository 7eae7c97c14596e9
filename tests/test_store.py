"""A run's folder: what is written is read back; what is broken is said in a line."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from examples import CASE, compared, manifest, record
from torchzoo.record import Failed, FailureKind, Skipped, Stage
from torchzoo.store import RunStore, StoreError, read_run


def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    failed = Failed(kind=FailureKind.TIMEOUT, stage=Stage.COMPILE, message="hung", log="x.log")
    records = [record(), record(compared()), record(Skipped(reason="no")), record(failed)]
    store = RunStore(tmp_path / "deep" / "run")
    store.begin(manifest())
    for each in records:
        store.append(each)
    run = read_run(store.path)
    assert run.records == tuple(records)
    assert run.manifest == manifest()
    assert run.damaged_lines == 0


def test_records_come_back_in_the_plans_order(tmp_path: Path) -> None:
    cases = (CASE, msgspec.structs.replace(CASE, model="b"), msgspec.structs.replace(CASE, model="c"))
    store = RunStore(tmp_path)
    store.begin(manifest(cases=cases))
    for model in ("c", "tiny", "b"):
        store.append(record(model=model))
    assert [r.case.model for r in read_run(tmp_path).records] == ["tiny", "b", "c"]


def test_a_line_cut_short_costs_only_itself(tmp_path: Path) -> None:
    store = RunStore(tmp_path)
    store.begin(manifest())
    store.append(record())
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(record())[:200])
    run = read_run(tmp_path)
    assert len(run.records) == 1
    assert run.damaged_lines == 1


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    RunStore(tmp_path).begin(manifest())
    with pytest.raises(StoreError, match="holds a run already"):
        RunStore(tmp_path)


def test_a_folder_that_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="can't write"):
        RunStore(tmp_path / "file" / "run")
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(StoreError, match="can't write"):
            RunStore(tmp_path / "run")


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
def test_what_is_no_run_is_said_in_a_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=words) as error:
        read_run(tmp_path)
    assert "\n" not in str(error.value)
