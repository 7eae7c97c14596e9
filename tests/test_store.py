"""A run's folder: what is written is read back, and what can't be kept or read is one line."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR, compared, manifest, measured, record
from kept_runs import against_eager
from torchzoo.record import Block, Failed, FailureKind, Measured, Skipped
from torchzoo.settings import Stage
from torchzoo.store import RunStore, StoreError, append_line, read_run, write_whole

FAILED = Failed(kind=FailureKind.TIMEOUT, stage=Stage.COMPILE, message="hung", log="x.log")


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


def compress(path: Path) -> Path:
    """Compress a file as `gzip FILE` does: it is replaced by one whose name ends in `.gz`."""
    compressed = path.with_name(path.name + ".gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return compressed


def test_a_run_that_was_compressed_is_read_and_gone_on_with(tmp_path: Path) -> None:
    with RunStore(tmp_path) as first:
        first.begin(manifest())
        first.append(record(FAILED))
        first.append(record(model="b"))
    before = read_run(tmp_path).records
    compress(tmp_path / "records.jsonl")
    assert read_run(tmp_path).records == before
    with RunStore(tmp_path, resume=True) as second:
        second.append(record())
    assert read_run(tmp_path).records == (record(), record(model="b"))


def test_a_line_of_a_compressed_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        store.append(record())
        append_line(tmp_path / "records.jsonl", b"{")
    file = compress(tmp_path / "records.jsonl")
    assert read_run(tmp_path).damage.startswith(f"{file}: line 2 could not be read and is left out (")


@pytest.mark.parametrize("spoil", [lambda whole: whole[:-20], lambda _: b"text"], ids=["cut short", "not gzip"])
def test_a_damaged_compressed_file_is_one_line(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        store.append(record())
    file = compress(tmp_path / "records.jsonl")
    file.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(StoreError, match=f"{file}: not whole, or not compressed with gzip"):
        read_run(tmp_path)


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


@pytest.mark.parametrize(
    ("order", "is_kept"),
    [("ABBA", True), ("BAAB", True), ("ABBA BAAB BA", True), ("ABB", False), ("ABAB", False), ("ABBA ABAB", False)],
)
def test_the_blocks_of_a_candidate_are_in_turns_with_eagers(tmp_path: Path, order: str, *, is_kept: bool) -> None:
    names = {"A": "eager", "B": "candidate"}
    blocks = tuple(Block(names[letter], (1.0,)) for letter in order.replace(" ", ""))
    with RunStore(tmp_path) as store:
        store.begin(manifest())
        kept = store.append(record(against_eager(2.0, blocks=blocks), backend=INDUCTOR))
    assert isinstance(kept.outcome, Measured) == is_kept


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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no run in"),
        (b"", "not a run of this torchzoo"),
        (b"{}", "not a run of this torchzoo"),
        (b"\xff\xfe", "not a run of this torchzoo"),
        (b'{"schema_version": 99}', "newer torchzoo"),
    ],
)
def test_the_error_for_what_is_no_run_is_one_line(tmp_path: Path, content: bytes | None, words: str) -> None:
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(StoreError, match=words) as error:
        read_run(tmp_path)
    assert "\n" not in str(error.value)
