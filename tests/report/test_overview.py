"""The totals of a report, every format of it, and runs that can't be read or can't be in one report."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest

from examples import CASE, INDUCTOR, measured, record, rendered, results_of, run_of
from in_this_process import refused, torchzoo
from kept_runs import against_eager, everything, failed, incorrect, keep
from torchzoo.analysis.cases import read_report_data
from torchzoo.analysis.totals import Total, device_ratios, outliers, sections
from torchzoo.case import Backend, Domain, Precision
from torchzoo.commands.report import FORMATS
from torchzoo.record import Block, Measured, Record, Skipped
from torchzoo.report import units
from torchzoo.report.overview import percent
from torchzoo.report.summary import summary
from torchzoo.store import StoreError, read_run


def against(speedup: float, model: str, **axes: Any) -> Record:
    return record(against_eager(speedup), backend=INDUCTOR, model=model, **axes)


def totals_of(path: Path, *records: Record, **changes: Any) -> dict[tuple[str, str], Total]:
    data = read_report_data([keep(path / "run", records, **changes)])
    return {(total.axis, total.name): total for total in sections(data.cases)[0].totals}


def test_failed_and_incorrect_cases_count_as_1_over_all_and_not_at_all_among_the_passing(tmp_path: Path) -> None:
    everything = totals_of(
        tmp_path,
        record(model="a"),
        against(4.0, "a"),
        against(4.0, "b"),
        record(failed(), backend=INDUCTOR, model="c"),
        record(incorrect(16.0), backend=INDUCTOR, model="d"),
        record(Skipped(reason="no"), backend=INDUCTOR, model="e"),
    )["all", "all"]
    assert (everything.measured, everything.incorrect, everything.failed, everything.skipped) == (4, 1, 1, 1)
    assert everything.pass_rate == pytest.approx(3 / 5)
    assert (everything.compared, everything.comparable) == (2, 4)
    assert everything.passing is not None
    assert everything.passing.value == pytest.approx(4.0, rel=0.01)
    assert everything.over_all is not None
    assert everything.over_all.value == pytest.approx(2.0, rel=0.01)  # (4 * 4 * 1 * 1) ** (1 / 4)
    assert everything.over_all.low < 1.0
    assert everything.time_ratio is not None
    assert everything.time_ratio.value == pytest.approx(0.25, rel=0.01)
    assert everything.host_memory_ratio is not None
    assert everything.host_memory_ratio.value == pytest.approx(2.0)
    assert everything.device_memory_ratio is not None
    assert everything.device_memory_ratio.value == pytest.approx(0.5)


def test_the_same_cases_have_the_same_mean_and_interval_in_any_order_and_wherever_they_are_averaged(
    tmp_path: Path,
) -> None:
    noisy = [against(1.0 + index / 3, name) for index, name in enumerate("abcde")]
    noisy = [
        msgspec.structs.replace(one, outcome=msgspec.structs.replace(one.outcome, blocks=jittered(one)))
        for one in noisy
        if isinstance(one.outcome, Measured)
    ]
    totals = [totals_of(tmp_path / name, *some) for name, some in (("there", noisy), ("back", noisy[::-1]))]
    there, back = (each["all", "all"].passing for each in totals)
    assert there == back
    assert there is not None
    assert there.low < there.value < there.high
    assert f"{units.speedup(there)} (5)" in rendered(summary([run_of(noisy)], results_of(noisy)))


def jittered(one: Record) -> tuple[Block, ...]:
    """The case's blocks with times that vary by some percent, each in its own way."""
    assert isinstance(one.outcome, Measured)
    random = Random(one.case.model)
    return tuple(Block(b.variant, tuple(t * random.uniform(0.9, 1.1) for t in b.samples_s)) for b in one.outcome.blocks)


def test_totals_are_by_every_axis_along_which_cases_differ(tmp_path: Path) -> None:
    totals = totals_of(
        tmp_path,
        against(2.0, "a"),
        against(8.0, "b", precision=Precision.TF32),
        record(failed(), backend=Backend("aot_eager"), model="b"),
        domains={"a": Domain.NLP},
    )
    assert list(totals) == [
        ("all", "all"),
        ("domain", "nlp"),
        ("domain", "unknown"),
        ("backend", "inductor"),
        ("backend", "aot_eager"),
        ("precision", "default"),
        ("precision", "tf32"),
    ]
    unknown = totals["domain", "unknown"]
    assert (unknown.measured, unknown.failed, unknown.compared, unknown.comparable) == (1, 1, 1, 2)
    assert totals["backend", "aot_eager"].passing is None
    over_all = totals["backend", "aot_eager"].over_all
    assert over_all is not None
    assert over_all.value == 1.0


def test_outliers_are_far_from_their_like_in_either_direction(tmp_path: Path) -> None:
    usual = [against(1.0 + 0.02 * n, f"m{n}") for n in range(12)]
    other = [against(9.0, f"t{n}", precision=Precision.TF32) for n in range(3)]  # too few to be far from
    records = [*usual, against(6.0, "fast"), against(0.2, "slow"), record(incorrect(50.0), backend=INDUCTOR, model="x")]
    found = outliers(read_report_data([keep(tmp_path / "run", [*records, *other])]).cases)
    assert [(one.result.case.model, one.score > 0) for one in found] == [("slow", False), ("fast", True)]
    assert found[0].usual == pytest.approx(1.11, abs=0.02)


def test_devices_are_held_against_the_first_at_the_same_batch(tmp_path: Path) -> None:
    records = [
        record(measured(), model="a"),
        record(measured(blocks=(Block("eager", (0.0201,)),) * 10), model="a", device="cuda"),
        record(measured(), model="b"),
        record(measured(), model="b", device="cuda", batch_size=64),  # another batch: no ratio
        record(measured(), model="c"),
        record(failed(), model="c", device="cuda"),
    ]
    (ratio,) = device_ratios(read_report_data([keep(tmp_path / "run", records)]).cases)
    assert (ratio.result.case.model, ratio.device, ratio.base) == ("a", "cuda", "cpu")
    assert ratio.ratio.value == pytest.approx(5.0, rel=0.01)
    assert ratio.ratio.low <= ratio.ratio.value <= ratio.ratio.high


@pytest.mark.parametrize(("share", "text"), [(1.0, "100%"), (0.999, "99.9%"), (0.96, "96%"), (0.0, "0%")])
def test_100_percent_is_said_of_all_alone(share: float, text: str) -> None:
    assert percent(share) == text


# --- several runs ---


def test_runs_of_one_machine_are_one_report_and_the_later_stands(tmp_path: Path) -> None:
    first = keep(tmp_path / "first", [against(2.0, "a"), against(2.0, "b")])
    second = keep(tmp_path / "second", [against(3.0, "b"), against(3.0, "c")])
    data = read_report_data([first, second, first])
    assert [(e.case.model, e.run.name) for e in data.cases] == [("a", "first"), ("b", "second"), ("c", "second")]
    assert data.superseded == 1


# --- formats ---


@pytest.fixture
def full(tmp_path: Path) -> Path:
    return everything(tmp_path / "full")


def test_the_next_steps_of_several_runs_are_commands_for_those_with_failures(full: Path, tmp_path: Path) -> None:
    good = record(measured(), model="model_of_its_own")
    there = read_run(full).manifest
    other = keep(tmp_path / "other", [good], environment=there.environment, settings=there.settings)
    *_, page, again = torchzoo("report", other, full).stdout.splitlines()
    assert page == f"all in a browser: torchzoo report {other} {full} --format html -o report.html"
    assert again == f"what failed, again: torchzoo run --resume {full} --retry-failed"
    *_, case, _, again = torchzoo("report", full).stdout.splitlines()
    assert torchzoo(*case.split()[5:]).returncode == 0
    assert f"--resume {full} " in again


def test_a_file_is_written_whole_or_refused_in_a_line(full: Path) -> None:
    assert torchzoo("report", full, "--format", "md", "-o", full / "report.md").stdout == ""
    assert torchzoo("report", full, "-o", full / "other.md").stdout == ""
    assert (full / "other.md").read_text() == (full / "report.md").read_text()  # the suffix says which format
    done = torchzoo("report", full, "-o", full / "no" / "such.txt")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 2  # that a case was not run, and this


@pytest.mark.parametrize("form", sorted(set(FORMATS) - {"svg"}))  # a picture of speedups needs one
def test_a_run_in_which_nothing_passed_can_be_reported(tmp_path: Path, form: str) -> None:
    records = [record(failed(), backend=INDUCTOR), record(Skipped(reason="why not"), model="b", batch_size=None)]
    assert "why not" in torchzoo("report", keep(tmp_path / "run", records), "--format", form).stdout


# --- what can't be read ---


def spoil(path: Path, name: str, content: bytes) -> Path:
    (keep(path, [record()]) / name).write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.json", b"[]", "is not a run of this torchzoo"),
        ("records.jsonl", b"garbage\n\xff\xfe\n{}\n", "none of its 3 lines can be read"),
        ("records.jsonl", b"", "holds no records yet"),
    ],
)
@pytest.mark.parametrize("form", ["table", "html"])
def test_what_is_no_run_is_one_line_and_status_2(
    tmp_path: Path, name: str, content: bytes, words: str, form: str
) -> None:
    assert words in refused("report", spoil(tmp_path / "run", name, content), "--format", form)


def test_unknown_fields_of_a_record_are_ignored_and_damaged_lines_are_said(tmp_path: Path) -> None:
    path = keep(tmp_path / "run", [record(), against(2.0, "b")])
    newer, other = ((json.loads(line)) for line in (path / "records.jsonl").read_text().splitlines())
    newer["mood"] = newer["case"]["colour"] = newer["outcome"]["verse"] = "new"
    lines = [json.dumps(newer), json.dumps(other), json.dumps(other)[:300], "{}"]
    (path / "records.jsonl").write_text("\n".join(lines))
    done = torchzoo("report", path, "--format", "csv")
    assert (done.returncode, len(done.stdout.splitlines())) == (0, 1 + 2)
    (line,) = done.stderr.splitlines()
    assert "records.jsonl: 2 lines could not be read and are left out (the first is line 3, " in line


def test_cases_and_repeats_that_have_not_run_are_said(tmp_path: Path) -> None:
    cases = [msgspec.structs.replace(CASE, model=model, repeat=n) for model in ("tiny", "b") for n in range(3)]
    path = keep(tmp_path / "run", [record(), record(repeat=2)], cases=tuple(cases))
    said = f"1 planned case and 1 planned repeat were not run; on its machine: torchzoo run --resume {path}"
    for form, words in {"md": said, "html": "1 repeats not run", "json": '"repeats_not_run": 1'}.items():
        done = torchzoo("report", path, "--format", form)
        assert words in " ".join(done.stdout.split())
        assert said in done.stderr


def test_repeats_of_a_run_that_another_one_supersedes_are_not_missing(tmp_path: Path) -> None:
    cases = tuple(msgspec.structs.replace(CASE, repeat=n) for n in range(3))
    first = keep(tmp_path / "first", [record()], cases=cases)
    second = keep(tmp_path / "second", [record()], cases=cases[:1])
    assert read_report_data([first]).repeats_not_run == 2
    assert read_report_data([first, second]).repeats_not_run == 0


def test_a_later_schema_of_one_of_several_runs_is_refused(tmp_path: Path) -> None:
    good = keep(tmp_path / "good", [record()])
    with pytest.raises(StoreError, match="newer torchzoo"):
        read_report_data([good, spoil(tmp_path / "bad", "run.json", b'{"schema_version": 99}')])
