"""Rows whose label does not hold are shown, counted as refused, and in no mean."""

from __future__ import annotations

import msgspec
import pytest

from examples import INDUCTOR, compared, compiled, record, results_of, run_of, variant_result
from torchzoo.analysis.cases import Status
from torchzoo.analysis.compare import Change, compare_runs
from torchzoo.analysis.refusals import EAGER_SHARE_LIMIT
from torchzoo.analysis.totals import ALL, CaseRatios, total
from torchzoo.record import REFUSED, Check, CheckStatus, Compilation, Coverage, Flops, Measured, Recompilation
from torchzoo.report import exports
from torchzoo.report.remarks import Mark, marks_of, remarks

AT_LIMIT = Recompilation(place="net.py:7 in forward", reason=f"{REFUSED}self.n == 7 # self.n += 1")
NEVER_REFUSED = Recompilation(place="net.py:7 in forward", reason="size mismatch")


def compiled_with(coverage: Coverage | None, *recompilations: Recompilation) -> Measured:
    counts = Compilation(graphs=8, recompilations=recompilations, operators_captured=40)
    candidate = variant_result(compilation=counts, coverage=coverage)
    return msgspec.structs.replace(compared(), variants={"eager": variant_result(), "candidate": candidate})


IN_EAGER = compiled_with(Coverage(operators=48, in_eager=48), AT_LIMIT)


def test_a_row_that_ran_in_eager_is_refused_and_says_where() -> None:
    (result,) = results_of([record(IN_EAGER, backend=INDUCTOR)])
    assert result.status is Status.REFUSED
    for words in ("48 of its 48 operators", "net.py:7 in forward", "self.n == 7"):
        assert words in result.reason
    assert marks_of(result)[0] is Mark.REFUSED
    assert result.reason in "".join(remarks(IN_EAGER))


@pytest.mark.parametrize(
    ("measured", "status"),
    [
        (compiled_with(Coverage(operators=1000, in_eager=int(1000 * EAGER_SHARE_LIMIT))), Status.PASSED),
        (compiled_with(Coverage(operators=1000, in_eager=int(1000 * EAGER_SHARE_LIMIT) + 1)), Status.REFUSED),
        (compiled_with(Coverage(operators=1000, in_eager=3), AT_LIMIT), Status.PASSED),
        (compiled_with(Coverage(operators=0, in_eager=0)), Status.PASSED),
        (compiled_with(None, NEVER_REFUSED), Status.PASSED),
        (compiled_with(None, AT_LIMIT), Status.REFUSED),  # how much of it ran in eager is not known
    ],
)
def test_a_row_is_refused_above_the_limit_alone(measured: Measured, status: Status) -> None:
    (result,) = results_of([record(measured, backend=INDUCTOR)])
    assert result.status is status


def test_a_wrong_result_is_worse_than_a_refused_row() -> None:
    wrong = msgspec.structs.replace(IN_EAGER, check=Check(status=CheckStatus.INCORRECT, reason="outputs differ"))
    (result,) = results_of([record(wrong, backend=INDUCTOR)])
    assert result.status is Status.INCORRECT


def test_no_mean_counts_it() -> None:
    results = results_of([record(compared(), backend=INDUCTOR), record(IN_EAGER, backend=INDUCTOR, model="left")])
    alone = results[:1]
    counted = total(ALL, ALL, results, CaseRatios(results))
    assert counted.passing == total(ALL, ALL, alone, CaseRatios(alone)).passing
    assert counted.over_all == total(ALL, ALL, alone, CaseRatios(alone)).over_all
    assert (counted.measured, counted.compared) == (2, 1)


def test_in_the_csv_of_dynamo_it_did_not_run() -> None:
    files = exports.dynamo_csv(run_of([record(IN_EAGER, backend=INDUCTOR), record(compiled(check=None))]))
    row = dict(zip(*(line.split(",") for line in next(iter(files.values())).splitlines()), strict=True))
    assert float(row["speedup"]) == 0
    checked = msgspec.structs.replace(IN_EAGER, check=Check(status=CheckStatus.CORRECT))
    files = exports.dynamo_csv(run_of([record(checked, backend=INDUCTOR)]))
    assert any("fail_to_run" in text for text in files.values())


def test_captured_operators_are_exported() -> None:
    good = compiled_with(Coverage(operators=50, in_eager=0))
    (text,) = exports.dynamo_csv(run_of([record(good, backend=INDUCTOR)])).values()
    row = dict(zip(*(line.split(",") for line in text.splitlines()), strict=True))
    assert row["calls_captured"] == "40"


def test_a_row_that_is_refused_now_is_a_regression() -> None:
    good, bad = (run_of([record(one, backend=INDUCTOR)]) for one in (compared(), IN_EAGER))
    comparison = compare_runs(good, bad)
    assert [change.change for change in comparison.changes] == [Change.NEWLY_FAILING]
    assert comparison.changes[0].candidate.startswith("refused: ")
    assert comparison.findings == ()
    assert comparison.has_regression
    assert compare_runs(bad, good).changes[0].change is Change.NEWLY_PASSING


def test_work_that_differs_by_nature_is_a_remark() -> None:
    eager = Flops(total=10, by_operator={})
    other = msgspec.structs.replace(compared(), flops=eager, candidate_flops=Flops(total=20, by_operator={}))
    assert any("different work: operations 10 in eager, 20" in one for one in remarks(other))
    by_nature = msgspec.structs.replace(other, unequal_work="a sparse kernel")
    (result,) = results_of([record(by_nature, backend=INDUCTOR)])
    assert result.status is Status.PASSED
    assert marks_of(result) == [Mark.OTHER_WORK]
