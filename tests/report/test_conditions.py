"""Documents say under what conditions the cases were measured that they are about."""

from __future__ import annotations

import msgspec
from test_checked import RECORDS

from examples import measured, record, run_of
from torchzoo.record import DeviceState, HostWatch, StopReason
from torchzoo.report.beside import conditions
from torchzoo.report.document import Table, Text
from torchzoo.report.remarks import Mark
from torchzoo.store import Run

QUIET = HostWatch(undisturbed_s=0.001, looks_s=(0.001,), waited_s=0.0, fast_cores=(), was_slow=False)
SLOW = msgspec.structs.replace(QUIET, looks_s=(0.0018,), was_slow=True)
OPEN = DeviceState(foreign_processes=1)


def rows(run: Run) -> list[list[str]]:
    (table,) = conditions(run)
    assert isinstance(table, Table)
    return [[cell.text for cell in row] for row in table.rows]


def test_each_condition_has_a_row_with_its_cases() -> None:
    run = run_of(
        [
            record(measured(host=SLOW), model="slow"),
            record(measured(host=SLOW, device_state_before=OPEN), model="shared"),
            record(measured(host=QUIET), model="quiet"),
            record(measured(host=QUIET, stop_reason=StopReason.TIME_LIMIT), model="cut"),
        ]
    )
    assert rows(run) == [
        [Mark.BUSY.text, "1 of 4", "shared eval cpu eager bs4"],
        [Mark.SLOW_HOST.text, "2 of 4", "slow eval cpu eager bs4, shared eval cpu eager bs4"],
        [Mark.TIME_LIMIT.text, "1 of 4", "cut eval cpu eager bs4"],
    ]


def test_all_processes_of_a_case_count_and_many_cases_are_cut_short() -> None:
    records = [record(measured(host=SLOW), model=f"m{number}", repeat=1) for number in range(6)]
    records += [record(measured(host=QUIET), model=f"m{number}") for number in range(6)]
    ((_, counted, which), *_) = rows(run_of(records))
    assert counted == "6 of 6"
    assert which.endswith("and 2 more")


def test_quiet_cases_are_said_to_be_quiet_and_what_has_no_time_says_nothing() -> None:
    (said,) = conditions(run_of([record(measured(host=QUIET))]))
    assert isinstance(said, Text)
    assert conditions(run_of(RECORDS)) == []
