"""Cases that generate: their own names for latency and throughput, and how much of the memory's peak they use."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from examples import INDUCTOR, measured, record, results_of
from kept_runs import against_eager, keep
from torchzoo.analysis.cases import read_report_data
from torchzoo.case import Mode
from torchzoo.commands.report import FORMATS
from torchzoo.record import Record
from torchzoo.report.some_cases import generation_rows

#: The datasheet of an H200 says 4.8 TB/s.
H200 = "NVIDIA H200"


def decode(size: int | None, **changes: object) -> Record:
    outcome = against_eager(
        2.0, eager_s=0.004, device_name=H200, samples_per_step=8, sample_unit="tokens", bytes_read_per_step=size
    )
    return record(outcome, mode=Mode.DECODE, device="cuda", backend=INDUCTOR, batch_size=8, **changes)


def prefill() -> Record:
    outcome = measured(samples_per_step=1000, sample_unit="tokens")
    return record(outcome, mode=Mode.PREFILL, device="cpu", batch_size=1)


def test_a_token_takes_a_time_and_a_share_of_the_peak() -> None:
    ((label, first, token, rate, share),) = generation_rows(results_of([decode(4_800_000_000)]))  # 1 ms at the peak
    assert label == "tiny decode cuda inductor bs8"
    assert (first, token, share) == ("", "2.0000 ms [2.0000, 2.0000]", "50.0%")
    assert "tokens/s" in rate


def test_a_prefill_is_the_time_to_the_first_token_and_has_no_share() -> None:
    ((_, first, token, _, share),) = generation_rows(results_of([prefill()]))
    assert first
    assert token == share == ""


def test_other_modes_are_left_out() -> None:
    assert generation_rows(results_of([record(), record(mode=Mode.TRAIN)])) == []


def test_a_device_without_a_known_peak_has_no_share() -> None:
    outcome = measured(bytes_read_per_step=10**9, device_name="an unknown device")
    (row,) = generation_rows(results_of([record(outcome, mode=Mode.DECODE)]))
    assert row[-1] == "-"


@pytest.mark.parametrize(("records", "has_table"), [([decode(10**9), prefill()], True), ([record()], False)])
def test_markdown_has_a_table_of_its_own(records: list[Record], tmp_path: Path, *, has_table: bool) -> None:
    data, file = read_report_data([keep(tmp_path / "run", records)]), io.StringIO()
    FORMATS["md"].write(data, file)
    assert ("## Generation" in file.getvalue()) is has_table
    assert ("| to the first token | a token |" in file.getvalue()) is has_table
