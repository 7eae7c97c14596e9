"""Doubling a batch until it no longer pays, and the file that keeps what was found."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from examples import CASE, INDUCTOR, SPEC, measured, record, results_of
from in_this_process import torchzoo
from torchzoo.case import EAGER, Axes, Backend, CompileScope, Mode
from torchzoo.record import Failed, Record
from torchzoo.report.some_cases import batch_size_lines, curve_line
from torchzoo.run.batches import BatchFileError, TunedBatch, best_batch, default_file, read_tuned, tune, write_tuned
from torchzoo.run.plan import AUTO, make_plan, to_tune
from torchzoo.store import Run, read_run
from torchzoo.zoo.spec import SkipRule
from user_models import METADATA, TINY, make_folder

#: Throughput doubles with the batch up to 8, and is a quarter at 16.
UP_TO_8 = f"""{TINY}
    def build(self):
        super().build()
        if self.batch_size == 3:
            raise MemoryError

    def pause(self):
        time.sleep(0.01 if self.batch_size <= 8 else 0.08)

    def train_step(self):
        self.pause()
        return super().train_step()

    def eval_step(self):
        self.pause()
        return super().eval_step()
"""
AT_3 = METADATA.replace("{train: 4, eval: 4}", "{eval: 3}") + "skips: [{mode: train, reason: too large}]\n"  # it fails


def test_each_model_is_doubled_until_its_throughput_stops_rising_or_nothing_runs() -> None:
    rates = {
        "saturates": {1: 100.0, 2: 190.0, 4: 300.0, 8: 305.0, 16: 1000.0},
        "runs_out": {1: 100.0, 2: 200.0},
        "never_runs": {},
        "keeps_rising": {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0},
    }
    asked: list[dict[str, int]] = []

    def throughputs(batch_sizes: dict[str, int]) -> dict[str, float | None]:
        asked.append(dict(batch_sizes))
        return {name: rates[name].get(size) for name, size in batch_sizes.items()}

    curves = tune(dict.fromkeys(rates, 1), throughputs, largest=8)
    assert curves["saturates"] == {1: 100.0, 2: 190.0, 4: 300.0, 8: 305.0}
    assert curves["runs_out"] == {1: 100.0, 2: 200.0}
    assert curves["never_runs"] == {}
    assert curves["keeps_rising"] == {1: 1.0, 2: 2.0, 4: 4.0, 8: 8.0}
    assert asked[1] == {"saturates": 2, "runs_out": 2, "keeps_rising": 2}  # together, and no more of what does not run
    assert len(asked) == 4


def test_the_smallest_batch_after_which_doubling_does_not_pay_is_chosen() -> None:
    assert best_batch({1: 100.0, 2: 190.0, 4: 300.0, 8: 305.0}) == 4
    assert best_batch({1: 100.0, 2: 200.0}) == 2
    assert best_batch({8: 100.0, 16: 90.0}) == 8
    with pytest.raises(ValueError, match="no batch size ran"):
        best_batch({})


def test_the_file_comes_back_as_it_was_written_and_is_readable(tmp_path: Path) -> None:
    found = TunedBatch(
        batch_size=4, precision="default", torch="2.15.0", date="2026-11-21", samples_per_s={2: 190.0, 4: 300.5}
    )
    path = tmp_path / "tuned.yaml"
    assert read_tuned(path) == {}
    write_tuned(path, {"a GPU": {"resnet18": found}})
    assert read_tuned(path) == {"a GPU": {"resnet18": found}}
    assert "samples_per_s: {2: 190.0, 4: 300.5}" in path.read_text()


@pytest.mark.parametrize("content", [b"[1, 2]", b"a: b", b"{", b"\xff", b"GPU: {resnet18: {batch_size: many}}"])
def test_a_file_that_is_none_is_said_in_a_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "tuned.yaml"
    path.write_bytes(content)
    with pytest.raises(BatchFileError, match="can't read") as error:
        read_tuned(path)
    assert "\n" not in str(error.value)


def test_the_zoos_own_file_can_be_read() -> None:
    read_tuned(default_file())


@pytest.mark.slow
def test_the_batches_that_are_found_are_what_a_run_takes(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "paused", UP_TO_8)
    make_folder(tmp_path / "zoo", "too_large", UP_TO_8, AT_3)
    zoo, file = ["--models-dir", tmp_path / "zoo", "-d", "cpu"], tmp_path / "tuned.yaml"
    absent = torchzoo("run", "paused", *zoo, "--batch-file", file)
    assert (absent.returncode, absent.stderr.count("\n")) == (2, 1)
    assert "torchzoo doctor --batches MODEL --file" in absent.stderr

    make_folder(tmp_path / "zoo", "lacking", metadata=METADATA.replace("requirements: []", "requirements: [no-such-7]"))
    before = default_file().read_bytes() if default_file().exists() else None
    tuning = torchzoo(
        "doctor", "--batches", "paused", "too_large", "lacking", *zoo, "--file", file, "--time-limit", 0.5
    )
    assert tuning.returncode == 0, tuning.stderr
    assert "paused: batch 8 (" in tuning.stdout
    assert "too_large eval cpu eager bs3: FAILED (oom_host in build)" in tuning.stderr
    assert "lacking eval cpu eager bs4: skipped: no-such-7 not installed: python install.py lacking" in tuning.stderr
    (found,) = read_tuned(file).values()  # one class of device
    assert found.keys() == {"paused"}
    assert found["paused"].samples_per_s.keys() == {4, 8, 16}
    assert (default_file().read_bytes() if default_file().exists() else None) == before

    done = torchzoo(
        "run", "paused", *zoo, "--time-limit", 0.5, "-t", "train,eval", "--batch-file", file, "-o", tmp_path / "run"
    )
    assert done.returncode == 0, done.stderr
    sizes = {one.case.mode: one.case.batch_size for one in read_run(tmp_path / "run").records}
    assert sizes == {"train": 4, "eval": 8}


@pytest.mark.slow
def test_bs_auto_measures_at_the_batch_found_and_keeps_what_it_was_found_from(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "paused", UP_TO_8)
    make_folder(tmp_path / "zoo", "too_large", UP_TO_8, AT_3)
    run = tmp_path / "run"
    arguments = ["paused", "too_large", "--models-dir", tmp_path / "zoo", "-d", "cpu", "--threads", 1]
    words = ["-t", "train,eval", "--backend", "aot_eager", "--bs", "auto", "--time-limit", 0.3]
    done = torchzoo("run", *arguments, *words, "-o", run)
    assert done.returncode == 1, done.stderr
    kept = read_run(run)
    paused = [one for one in kept.records if one.case.model == "paused"]
    assert [(one.case.mode, str(one.case.backend), one.case.batch_size) for one in paused] == [
        (mode, "aot_eager", 8) for mode in ("train", "eval")
    ]
    for one in paused:
        assert one.batch_curve is not None
        assert one.batch_curve.keys() == {4, 8, 16}
    at_default = [one for one in kept.records if one.case.model == "too_large" and one.case.batch_size == 3]
    assert [type(one.outcome) for one in at_default] == [Failed]
    assert {one.batch_curve for one in at_default} == {None}
    assert done.stderr.count("tuning paused train cpu eager bs8: ") == 1

    lines = (run / "records.jsonl").read_bytes().splitlines(keepends=True)
    (run / "records.jsonl").write_bytes(b"".join(line for line in lines if b'"batch_curve":{' not in line))
    resumed = torchzoo("run", "--resume", run)
    assert "tuning" not in resumed.stderr
    assert curves(read_run(run)) == curves(kept)


def curves(run: Run) -> list[dict[int, float] | None]:
    return [one.batch_curve for one in run.records]


def test_auto_tunes_each_case_once_in_eager_where_any_backend_can_run() -> None:
    axes = Axes(
        modes=(Mode.TRAIN, Mode.EVAL),
        devices=("cpu",),
        backends=(INDUCTOR, Backend("cudagraphs")),
        compile_scopes=(CompileScope.STEP,),
        batch_sizes=(2, AUTO),
        repeats=2,
    )
    only_eval = msgspec.structs.replace(SPEC, name="only_eval", skips=(SkipRule(reason="so", mode=Mode.TRAIN),))
    entries = to_tune([SPEC, only_eval], axes, {})
    assert [(entry.case.model, entry.case.mode, entry.case.batch_size) for entry in entries] == [
        ("tiny", Mode.TRAIN, 8),
        ("tiny", Mode.EVAL, 4),
        ("only_eval", Mode.EVAL, 4),
    ]
    assert {entry.case.backend for entry in entries} == {EAGER}
    assert to_tune([SPEC], msgspec.structs.replace(axes, batch_sizes=(2, None)), {}) == ()
    assert to_tune([SPEC], axes, {"tiny": "its library is missing"}) == ()

    plan = make_plan([SPEC], axes, {}, auto={entries[0].case: 64})
    found = {(entry.case.mode, entry.case.batch_size) for entry in plan if entry.resolved is None}
    assert found == {(Mode.TRAIN, 2), (Mode.TRAIN, 64), (Mode.EVAL, 2), (Mode.EVAL, 4)}


def test_throughput_by_batch_size_is_shown_of_what_was_measured_at_several() -> None:
    other = record(model="other")
    failed = record(Failed(kind="error", stage="build", message="no"), batch_size=16)  # type: ignore[arg-type]
    several = [record(measured(samples_per_step=size), batch_size=size) for size in (8, 4)]
    assert batch_size_lines(results_of([*several, other, failed])) == [
        "tiny eval cpu eager, samples/s by batch size: 4: 40.0, 8: 80.0"
    ]
    assert curve_line(other) == []
    tuned: Record = msgspec.structs.replace(other, batch_curve={4: 40.0, 8: 1234.5})
    assert curve_line(tuned) == ["batch size by doubling, samples/s in eager: 4: 40.0, 8: 1,234"]
    assert CASE.tuning_case() == CASE
