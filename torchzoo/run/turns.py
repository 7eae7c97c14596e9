"""The turns of cases: fresh processes of a userbenchmark, one after the other for each case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from torchzoo.errors import UsageError
from torchzoo.machine.facts import MachineInfo
from torchzoo.machine.limits import physical_cores, usable_cores
from torchzoo.measure.fresh_turns import TurnsOf
from torchzoo.record import Failed, Outcome, RecordKey, Skipped, Took
from torchzoo.run.lanes import CPU, Lane, split_cores
from torchzoo.run.plan import Plan, PlannedCase


def turns_of_plan(planned: Plan, turns_of: TurnsOf, done: Mapping[RecordKey, Outcome]) -> Plan:
    """The turns that are left of planned cases, each with all its repeats."""
    repeats = Counter(one.case.first_repeat() for one in planned)
    first = [one for one in planned if one.case.repeat == 0]
    return tuple(turn for one in first for turn in _turns_left(one, turns_of, repeats[one.case], done))


def _turns_left(one: PlannedCase, turns_of: TurnsOf, repeats: int, done: Mapping[RecordKey, Outcome]) -> Plan:
    """The turns of a case to run; without those that are done, unless a turn without a record needs them.

    A turn that did not work before is in the plan with its outcome, for the scheduler must know of it.
    """
    if one.resolved is not None or one.spec is None:
        return () if one.key in done else (one,)
    turns = [msgspec.structs.replace(one, turn=turn) for turn in turns_of(one.case, one.spec, repeats)]
    if all(turn.key in done for turn in turns):
        return ()
    needed: set[str] = set()
    left: list[PlannedCase] = []
    for planned in reversed(turns):
        turn, before = planned.turn, done.get(planned.key)
        assert turn is not None
        if before is None or turn.role in needed:
            needed.add(turn.needs)
        elif isinstance(before, Took):
            continue
        known = before if isinstance(before, Skipped | Failed) else Skipped(reason=turn.skip) if turn.skip else None
        left.append(msgspec.structs.replace(planned, resolved=known))
    return tuple(reversed(left))


def make_fresh_lanes(
    jobs: int, devices: Sequence[str], indices: Sequence[int] | None, machine: MachineInfo
) -> tuple[Lane, ...]:
    """The lanes of a run in turns: one for each process that may run at once. The devices take turns.

    Each lane has as many whole physical cores as the others; if only one process runs at a time, it has all cores.

    Raises:
        UsageError: there are fewer cores than lanes, or the machine does not have a device.
    """
    if indices is not None:
        kind = machine.default_device
        if list(devices) != [kind] or kind == CPU:
            raise UsageError(f"--devices spreads cases on an accelerator, and these are on {', '.join(devices)}")
        if max(indices) >= machine.devices[kind]:
            raise UsageError(f"--devices: no device {max(indices)}; there is {machine.devices[kind]} of {kind} here")
        devices = [f"{kind}:{index}" for index in indices]
    if jobs == 1:
        return tuple(Lane(device=device, jobs=1) for device in devices)
    count = max(jobs, len(devices))
    _, physical = split_cores(physical_cores(usable_cores()))
    share = len(physical) // count
    if share == 0:
        raise UsageError(f"--jobs {count}: each process needs a core of its own, and there are {len(physical)} here")
    return tuple(
        Lane(
            device=devices[number % len(devices)],
            cores=tuple(core for one in physical[number * share : (number + 1) * share] for core in one),
            jobs=1,
        )
        for number in range(count)
    )
