"""A run's folder: what is written is read back; what is broken is said in a line."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from examples import CASE, compared, manifest, measured, record
from torchzoo.case import Stage
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.store import RunStore, StoreError, read_run


def test_every_kind_of_record_comes_back_as_it_was(tmp_path: Path) -> None:
    failed = Failed(kind=FailureKind.TIMEOUT, stage=Stage.COMPILE, message="hung", log="x.log")
    outcomes = [measured(), compared(), Skipped(reason="no"), failed]
    records = [record(outcome, seed=seed) for seed, outcome in enumerate(outcomes)]
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
    store = RunStore(tmp_path)
    store.begin(manifest())
    for resume in (False, True):
        with pytest.raises(StoreError, match="another torchzoo is at work"):
            RunStore(tmp_path, resume=resume)
    store.close()
    with pytest.raises(StoreError, match="holds a run already: go on with --resume"):
        RunStore(tmp_path)
    RunStore(tmp_path, resume=True).close()


def test_to_go_on_where_no_run_is_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file"):
        RunStore(tmp_path / "none", resume=True)
    assert not (tmp_path / "none").exists()


def test_a_run_gone_on_with_keeps_the_latest_record_of_a_case(tmp_path: Path) -> None:
    failed = Failed(kind=FailureKind.TIMEOUT, stage=Stage.COMPILE, message="hung")
    first = RunStore(tmp_path)
    first.begin(manifest())
    first.append(record(failed))
    with (tmp_path / "records.jsonl").open("ab") as file:
        file.write(msgspec.json.encode(record(model="b"))[:100])  # killed while it wrote
    first.close()
    second = RunStore(tmp_path, resume=True)
    second.append(record())
    run = read_run(tmp_path)
    assert run.records == (record(),)
    assert run.damaged_lines == 1
    assert len((tmp_path / "records.jsonl").read_bytes().splitlines()) == 3  # nothing is lost


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
