"""The userbenchmark `warm_start`: its processes, and its report of made-up ones."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from benchmark_runs import NASTY, case_of, figures, module, report, run_of, table, turn
from syrupy.assertion import SnapshotAssertion

from examples import SPEC
from fake_turns import FakeTurns
from in_this_process import torchzoo
from torchzoo.case import EAGER, Case, Mode, Precision
from torchzoo.errors import UsageError
from torchzoo.measure.fresh_turns import Ask, CacheCounts, FirstResult, Packages
from torchzoo.record import Failed, FailureKind, Record, Skipped, Took
from torchzoo.settings import Stage
from user_models import make_folder


def took(step_s: float, *, hits: int = 0, misses: int = 0, load_s: float = 0.0, built: int = 0) -> FirstResult:
    counts = CacheCounts(hits=hits, misses=misses)
    return FirstResult(
        import_s=2.0,
        build_s=1.0,
        load_s=load_s,
        step_s=step_s,
        later_step_s=0.001,
        graphs=hits + misses,
        autograd_cache=counts,
        inductor_cache=counts,
        libraries_built=built,
        artifact_bytes=3 * 2**20,
        cache_bytes=2**20,
    )


def records_of(case: Case, *, disk: FirstResult | None = None, cold_s: float = 21.0) -> list[Record]:
    results = {
        "eager": took(1.0),
        "cold": took(cold_s, misses=2, built=4),
        "disk cache": disk or took(1.0, hits=2),
        "mega-cache": took(8.0, hits=2, load_s=1.0, built=4),
        "package": took(0.5, load_s=0.5),
    }
    return [
        turn(case, "filling the caches", 0, took(25.0, misses=2)),
        turn(case, "making the package", 0, Packages(compile_s=30.0, package_bytes=5 * 2**20)),
        *(turn(case, name, number, result) for number in range(5) for name, result in results.items()),
    ]


def test_means_are_over_cases_in_which_the_cache_was_hit(snapshot: SnapshotAssertion) -> None:
    half = took(10.0, hits=1, misses=1)
    text = report(
        "warm_start",
        run_of([*records_of(case_of("one")), *records_of(case_of("two"), disk=half, cold_s=45.0)]),
    )
    means = {row[1]: row[2:] for row in table(text, "mode")}
    assert means["disk cache"][0].startswith("6.00")  # 24 / 4, of the first alone
    assert means["disk cache"][2:] == ["1", "1"]
    assert means["eager"][0].startswith("8.49")  # the root of 24 / 4 times 48 / 4
    assert figures(text) == snapshot


def test_a_cold_row_that_found_a_cache_says_so() -> None:
    case = case_of("one")
    records = [one for one in records_of(case) if one.role != "cold"]
    text = report("warm_start", run_of([*records, turn(case, "cold", 0, took(2.0, hits=2))]))
    (times,) = table(text, "case")
    assert times[2].endswith("(found a cache)")
    assert {row[4] for row in table(text, "mode")} == {"0"}


def test_what_failed_stands_at_the_end_with_its_reason_and_foreign_text_stays_text() -> None:
    case = case_of(NASTY)
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message=NASTY)
    text = report(
        "warm_start",
        run_of(
            [
                turn(case, "eager", 0, took(0.0)),
                turn(case, "cold", 0, failed),
                turn(case, "package", 0, Skipped(reason="it trains")),
            ]
        ),
    )
    rows = table(text, "why")
    assert [row[1] for row in rows] == ["1", "1"]
    assert rows[1][0] == "skipped: it trains"
    assert not any(line.startswith("# heading") for line in text.splitlines())
    assert "No process has a result yet" in report("warm_start", run_of([turn(case, "cold", 0, failed)]))


def test_all_variants_take_turns_there_and_back() -> None:
    turns = module("warm_start").turns(case_of("tiny"), SPEC, 2)
    names = ["eager", "cold", "disk cache", "mega-cache", "package"]
    assert [one.role for one in turns] == ["filling the caches", "making the package", *names, *names[::-1]]
    shared = {one.role for one in turns if one.cache}
    assert shared == {"filling the caches", "disk cache"}
    assert {one.role: one.needs for one in turns if one.needs} == {
        "disk cache": "filling the caches",
        "mega-cache": "filling the caches",
        "package": "making the package",
    }
    from torchzoo.measure import first_result

    assert all(callable(getattr(first_result, one.function.partition(":")[2])) for one in turns)


def test_training_and_autocast_have_no_package() -> None:
    for case in (case_of("tiny", mode=Mode.TRAIN), case_of("tiny", precision=Precision.AMP)):
        skipped = [one.role for one in module("warm_start").turns(case, SPEC, 1) if one.skip]
        assert skipped == ["making the package"]


def test_a_backend_without_caches_is_refused() -> None:
    with pytest.raises(UsageError, match="behind Dynamo"):
        module("warm_start").turns(msgspec.structs.replace(case_of("tiny"), backend=EAGER), SPEC, 1)


# --- from the command line, with made-up processes ---


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, FirstResult | Packages | Failed]:
    """What the processes of each function answer; it can be changed."""
    by_function: dict[str, FirstResult | Packages | Failed] = {
        "fill_caches": took(25.0, misses=2),
        "package": Packages(compile_s=30.0, package_bytes=5 * 2**20),
        "eager": took(1.0),
        "compiled": took(1.0, hits=2),
        "compiled_with_artifacts": took(8.0, hits=2),
        "packaged": took(0.5),
    }

    def answer(ask: Ask) -> Took | Failed:
        assert ask.settings.limits.turn_s > 600
        found = by_function[ask.function.partition(":")[2]]
        return found if isinstance(found, Failed) else Took(result=msgspec.to_builtins(found))

    FakeTurns(monkeypatch, answer)
    return by_function


def test_from_the_command_line_to_its_report_and_on_with_resume(
    tmp_path: Path, answers: dict[str, FirstResult | Packages | Failed]
) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    words = ["warm_start", "tiny", "--models-dir", tmp_path / "zoo", "-d", "cpu", "-t", "eval", "--repeats", "2"]
    out = tmp_path / "out"
    done = torchzoo("userbenchmark", *words, "-o", out)
    assert done.returncode == 0, done.stderr
    assert "tiny eval cpu inductor bs4: disk cache, 2" in done.stderr
    text = (out / "report.md").read_text()
    assert "12 results of fresh processes. Every" in text
    assert table(text, "case")[0][0] == "tiny eval cpu bs4"
    assert torchzoo("userbenchmark", "warm_start", "--from", out).stdout == text

    make_folder(tmp_path / "zoo", "small")
    second = tmp_path / "second"
    small = [word if word != "tiny" else "small" for word in words]
    assert torchzoo("userbenchmark", *small, "-o", second).returncode == 0
    both = torchzoo("userbenchmark", "warm_start", "--from", out, second)
    assert "2 cases: 24 results of fresh processes" in both.stdout
    assert [row[0] for row in table(both.stdout, "case")] == ["tiny eval cpu bs4", "small eval cpu bs4"]
    assert both.stdout.count("- command: ") == 2

    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:5]))
    cut_short = torchzoo("userbenchmark", "warm_start", "--from", out).stdout
    assert (
        f"5 results of fresh processes, 7 not run yet: go on with `torchzoo userbenchmark warm_start --resume {out}`"
        in cut_short
    )
    answers["packaged"] = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no such symbol")
    again = torchzoo("userbenchmark", "warm_start", "--resume", out)
    assert again.returncode == 1, again.stderr
    assert "tiny eval cpu inductor bs4 package: FAILED (error in compile): no such symbol" in again.stderr
    assert "10 results of fresh processes, 2 skipped or failed" in (out / "report.md").read_text()

    refused = torchzoo("userbenchmark", *words, "-o", out)
    assert (refused.returncode, "holds a run already" in refused.stderr) == (2, True)
    other = torchzoo("userbenchmark", *words, "--backend", "aoti", "-o", tmp_path / "other")
    assert (other.returncode, "behind Dynamo" in other.stderr) == (2, True)
    assert not (tmp_path / "other" / "run.json").exists()
