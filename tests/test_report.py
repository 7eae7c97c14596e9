"""What people read: units, tables, notes; and that foreign text does no harm."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from examples import CASE, INDUCTOR, compared, manifest, measured, record, variant_result
from torchzoo.record import Compilation, Failed, FailureKind, Record, Skipped, Stage, StopReason
from torchzoo.report import rows, tables, units
from torchzoo.stats import median_estimate


def rendered(renderable: object, width: int = 200) -> str:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("value_s", "text"), [(2.345, "2.35 s"), (0.0456, "45.6 ms"), (0.000789, "789 µs"), (120.0, "120 s")]
)
def test_seconds(value_s: float, text: str) -> None:
    assert units.seconds(value_s) == text


@pytest.mark.parametrize(("value", "text"), [(3 * 2**29, "1.50 GiB"), (12 * 2**20, "12.0 MiB"), (None, "-")])
def test_size(value: int | None, text: str) -> None:
    assert units.size(value) == text


def test_an_interval_of_few_samples_says_so() -> None:
    assert units.latency(median_estimate([1.0])) == "1.00 s (one sample)"
    assert units.latency(median_estimate([1.0, 1.1])) == "1.05 s ±4.8% (at 50%)"
    assert units.speedup(median_estimate([2.0] * 8)) == "2.000x [2.000, 2.000]"


def test_a_case_shows_eager_and_candidate_side_by_side() -> None:
    text = rendered(tables.case_table(record(compared(), backend=INDUCTOR)))
    assert "200 ms ±0.0%" in text
    assert "100 ms ±0.0%" in text
    assert "2.000x" in text
    assert "device memory" not in text  # the CPU has none, and no row of dashes says so


def test_what_a_reader_must_know_is_said() -> None:
    candidate = variant_result(
        result_is_finite=False, compilation=Compilation(graphs=2, graph_breaks={"print": 3}, cudagraph_skips=1)
    )
    outcome = measured(
        stop_reason=StopReason.STABLY_NOISY,
        host_syncs="NMS",
        variants={"eager": variant_result(), "candidate": candidate},
        blocks=compared().blocks,
    )
    said = "; ".join(rows.remarks(outcome))
    for words in ("stably noisy", "NMS", "not finite", "skipped 1", "3 graph breaks"):
        assert words in said


def mixed() -> list[Record]:
    nasty = 'x | y <script>alert("1")</script>\n# [bold]heading'
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=nasty)
    return [
        record(),
        record(compared(), backend=INDUCTOR),
        record(Skipped(reason="no [/bold] way")),
        record(failed, model="a|b<i>"),
    ]


def test_the_terminal_table_shows_all_and_reads_no_markup_in_foreign_text() -> None:
    text = rendered(tables.terminal_table(mixed()))
    assert "no [/bold] way" in text
    assert "[bold]heading" in text
    assert CASE.label() in text


def test_the_terminal_table_fits_80_columns() -> None:
    text = rendered(tables.terminal_table([record(), record(compared(), backend=INDUCTOR)]), width=80)
    assert all(len(line) <= 80 for line in text.splitlines())
    assert "2.000x [2.000, 2.000]" in text


def test_markdown_is_one_table_that_foreign_text_can_not_break() -> None:
    file = io.StringIO()
    tables.write_markdown(manifest(), mixed(), file)
    lines = file.getvalue().splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + 4
    assert {line.replace("\\|", "").count("|") for line in table} == {len(tables.HEADINGS) + 1}
    assert "<script>" not in file.getvalue()
    assert "torch 2.15.0" in file.getvalue()
