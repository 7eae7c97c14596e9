"""Show what a plan would measure, without measuring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torchzoo.measure.fresh_turns import TurnsOf
from torchzoo.record import Skipped
from torchzoo.report import terminal, units
from torchzoo.run import budget
from torchzoo.run.lanes import Lane
from torchzoo.run.plan import AUTO, Plan
from torchzoo.run.request import RunRequest
from torchzoo.studies.study import SOME_DEVICE, planned


def budget_words(share_s: float | None, planned: Plan, lanes: Sequence[Lane]) -> str:
    """`steps of each case are timed for about 0.85 s (budget 2m 23s)`; empty if no budget is shared."""
    if share_s is None or not planned:
        return ""
    whole = units.duration(share_s * budget.processes_in_a_row(planned, lanes))
    return f"steps of each case are timed for about {share_s:.2g} s (budget {whole})"


def show_plan(
    request: RunRequest, turns_of: TurnsOf | None = None, *, here: tuple[Plan, tuple[Lane, ...]] | None = None
) -> None:
    """Print a line for each case, the cases that can't run by their reasons, and the settings or number of processes.

    `here` are the cases as resolved on this machine, and its lanes; None resolves them without a machine.
    """
    cases, lanes = (planned(request), ()) if here is None else here
    plan = [one for one in cases if turns_of is None or one.case.repeat == 0]
    resolved = Counter(
        one.resolved.reason if isinstance(one.resolved, Skipped) else one.resolved.message
        for one in plan
        if one.resolved is not None
    )
    runnable = [(one.case, one.spec) for one in plan if one.resolved is None and one.spec is not None]
    lines = [case.label() for case, _ in runnable]
    lines += [f"not run ({units.counted(count, 'case')}): {why}" for why, count in resolved.items()]
    to_run = f"{units.counted(len(runnable), 'case')} to run"
    if turns_of is not None:
        turns = (turn for case, spec in runnable for turn in turns_of(case, spec, request.axes.repeats))
        lines.append(f"{to_run}, in {sum(not turn.skip for turn in turns)} fresh processes")
    else:
        passes, limit_s = ", ".join(request.settings.passes) or "none", request.settings.time_limit_s
        words = budget_words(budget.share_s(request.budget, request.settings, cases, lanes), cases, lanes)
        shared = f"; {words}" if words else ""
        lines.append(f"{to_run}{shared}; {limit_s:g} s of timing a case at most; passes: {passes}")
    if here is None and not request.axes.devices:
        lines.append(f"device: the accelerator of the machine that measures (shown as {SOME_DEVICE}), else its CPU")
    if AUTO in request.axes.batch_sizes:
        lines.append(f"batch size {AUTO}: searched for when the run begins (shown as the model's own)")
    for line in lines:
        terminal.show_line(line)
