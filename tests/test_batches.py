"""Doubling a batch until it no longer pays, and the file that keeps what was found."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchzoo.batches import BatchFileError, TunedBatch, best_batch, default_file, read_tuned, tune, write_tuned


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
