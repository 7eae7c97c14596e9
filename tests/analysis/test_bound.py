"""What bounds a case, and which cases count in means."""

from __future__ import annotations

import msgspec
import pytest

from examples import INDUCTOR, in_turns, record, run_of, variant_result
from torchzoo.analysis.bound import Bound, bound_of, case_bound
from torchzoo.analysis.cases import Status, case_results
from torchzoo.analysis.totals import sections
from torchzoo.record import Compilation, HostWatch, Measured, Recompilation, Record
from torchzoo.report.remarks import remarks


def case(model: str, eager_active_s: float | None, candidate_active_s: float | None, *, late: int = 0) -> Record:
    """Eager takes 0.2 s, the candidate 0.1 s; the device works for so long."""
    failed = Recompilation(place="a.py:3 in forward", reason="size mismatch at index 0")
    compilation = Compilation(graphs=2, late_graphs=late, recompilations=(failed,) if late else ())
    variants = {
        "eager": variant_result(device_active_s=eager_active_s),
        "candidate": variant_result(device_active_s=candidate_active_s, compilation=compilation),
    }
    return record(in_turns(0.2, 0.1, variants=variants), model=model, backend=INDUCTOR, device="cuda")


@pytest.mark.parametrize(
    ("eager_s", "candidate_s", "bounds"),
    [
        (0.19, 0.095, (Bound.DEVICE, Bound.DEVICE, Bound.DEVICE)),
        (0.06, 0.095, (Bound.HOST, Bound.DEVICE, Bound.HOST)),  # as with CUDA graphs: eager waits for the host
        (0.14, 0.095, (Bound.BOTH, Bound.DEVICE, Bound.BOTH)),
        (0.19, None, (Bound.DEVICE, None, None)),
    ],
)
def test_the_share_in_which_the_device_works_decides(
    eager_s: float, candidate_s: float | None, bounds: tuple[Bound | None, ...]
) -> None:
    measured = case("a", eager_s, candidate_s).outcome
    assert isinstance(measured, Measured)
    assert (bound_of(measured, "eager"), bound_of(measured, "candidate"), case_bound([measured])) == bounds


def test_unsteady_cases_are_shown_with_their_guard_and_are_in_no_mean() -> None:
    run = run_of([case("good", 0.19, 0.095), case("shapes", 0.19, 0.095, late=2)])
    good, shapes = case_results(run)
    assert (good.status, shapes.status) == (Status.PASSED, Status.UNSTEADY)
    assert "compiled 2 more graphs" in shapes.reason
    assert "size mismatch at index 0" in shapes.reason
    total = sections([good, shapes])[0].totals[0]
    assert (total.measured, total.passed, total.compared, total.comparable) == (2, 2, 1, 2)
    assert total.passing is not None
    assert total.passing == total.over_all
    assert shapes.measured_figures is not None


def test_a_slow_host_and_what_was_timed_again_are_remarks() -> None:
    one = case("a", 0.19, 0.095).outcome
    assert isinstance(one, Measured)
    host = HostWatch(undisturbed_s=0.001, looks_s=(0.001, 0.0018), waited_s=0.5, fast_cores=(), was_slow=True)
    assert any(
        "the host was slow (its loop took up to 1.8" in r for r in remarks(msgspec.structs.replace(one, host=host))
    )
    again = msgspec.structs.replace(host, was_slow=False, redone=one.blocks[:4])
    timed_again = remarks(msgspec.structs.replace(one, host=again))
    assert any("4 blocks were timed again" in remark for remark in timed_again)
