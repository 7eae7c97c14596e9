"""Cases that generate, on a device whose peak of memory is not known."""

from __future__ import annotations

from examples import measured, record, results_of
from torchzoo.case import Mode
from torchzoo.report.some_cases import generation_rows


def test_a_device_without_a_known_peak_has_no_share() -> None:
    outcome = measured(bytes_read_per_step=10**9, device_name="an unknown device")
    (row,) = generation_rows(results_of([record(outcome, mode=Mode.DECODE)]))
    assert row[-1] == "-"
