"""What reports say of a check."""

from __future__ import annotations

import msgspec
import pytest

import examples
from torchzoo.analysis.figures import case_figures
from torchzoo.analysis.totals import speedups_by_group
from torchzoo.case import ResultKind
from torchzoo.record import Check, CheckStatus, Measured, Record, ResultComparison
from torchzoo.report import one_case, remarks, summary


def checked(status: CheckStatus, model: str = "tiny") -> Record:
    comparison = ResultComparison(
        what=ResultKind.GRADIENTS,
        worst="network.fc.weight",
        error=0.25,
        eager_error=1e-5,
        tolerance=1e-3,
        is_close=False,
        tensors=62,
        tensors_wrong=3,
        tensors_not_judged=1,
    )
    verdict = Check(status=status, reason="gradients: network.fc.weight is off by 0.25", comparisons=(comparison,))
    outcome = msgspec.structs.replace(examples.compared(), check=verdict)
    return examples.record(outcome, backend=examples.INDUCTOR, model=model)


@pytest.mark.parametrize("status", [CheckStatus.INCORRECT, CheckStatus.NONDETERMINISTIC, CheckStatus.REFERENCE_FAILED])
def test_reports_say_what_a_check_found(status: CheckStatus) -> None:
    record = checked(status)
    assert isinstance(record.outcome, Measured)
    said = "; ".join(remarks.remarks(record.outcome))
    assert status.replace("_", " ") in said.lower().replace("_", " ")
    assert "network.fc.weight" in said
    table = examples.rendered(one_case.brief(record))
    assert "network.fc.weight" in table
    assert "0.25" in table
    assert "(of 62 tensors 3 wrong, 1 not judged)" in " ".join(table.split())


def test_a_wrong_results_speedup_is_shown_but_not_counted() -> None:
    good, wrong = checked(CheckStatus.CORRECT, "a"), checked(CheckStatus.INCORRECT, "b")
    run = examples.run_of([good, wrong])
    assert "1 of them incorrect" in summary.counts(run)
    both, alone = (speedups_by_group(examples.results_of(records)) for records in ([good, wrong], [good]))
    assert both == alone
    assert case_figures([wrong]).speedup is not None
