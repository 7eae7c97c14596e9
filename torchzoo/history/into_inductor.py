"""Find the part of inductor in the version that made a compiled case slower or wrong."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import case_results
from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment
from torchzoo.errors import attempt, one_line
from torchzoo.files import read_file, to_json
from torchzoo.history.inductor_bisect import BisectionFailed, bisect_inductor, in_words, reproduce_in_words
from torchzoo.history.proposals import Kind
from torchzoo.store import Run, write_whole

#: The file with the answer.
INSIDE = "inside.json"
NO_ANSWER = "inductor's own bisector gave no answer"
_MOST_BYTES = 2**20
#: Inductor is examined if its step, relative to eager's in the same process, became slower by at least 2%.
_LEAST_CHANGE = 1.02


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """The part of inductor at fault, or why it is not known."""

    words: str
    without_it: str = ""  # shell variables that leave that part out; empty if there are none


def applies_to(kind: Kind, case: Case) -> bool:
    """Whether inductor's own bisector has a question for this change: slow code, or wrong results."""
    return case.backend.name == "inductor" and kind in (Kind.LATENCY, Kind.INCORRECT)


def look_inside(
    kind: Kind, case: Case, base: Run, candidate: Run, environment: PythonEnvironment, kept: Path
) -> Inside:
    """Let inductor's bisector examine the first bad version. This takes minutes, since the case is compiled many times.

    Args:
        kind: the kind of change.
        case: with the backend inductor.
        base: a run of the case with the last good version.
        candidate: a run of the case with the first bad version, measured in turns with `base`.
        environment: of the first bad version.
        kept: the file for the answer. An answer that it holds is returned without a search.
    """
    if kept.is_file():
        before = attempt(lambda: msgspec.json.decode(read_file(kept, _MOST_BYTES), type=Inside))
        if isinstance(before, Inside):
            return before
    found = _looked_for(kind, case, base, candidate, environment)
    write_whole(kept, to_json(found))
    return found


def _looked_for(kind: Kind, case: Case, base: Run, candidate: Run, environment: PythonEnvironment) -> Inside:
    slow_from = None
    if kind is Kind.LATENCY:
        was, now = _over_eager(base, case), _over_eager(candidate, case)
        if was is None or now is None:
            return Inside(words="not looked into: the step was not measured beside eager's in both versions")
        if now < was * _LEAST_CHANGE:
            return Inside(
                words="not looked into: the step did not become slower beside eager's. It took "
                f"{was:.2f} times as long before, and {now:.2f} times now"
            )
        slow_from = math.sqrt(was * now)
    threads = candidate.manifest.settings.threads
    variables = {**environment.variables, **({"OMP_NUM_THREADS": str(threads)} if threads is not None else {})}
    folders = candidate.manifest.models_dirs
    try:
        answer = bisect_inductor(
            case, slow_from=slow_from, models_dirs=folders, python=environment.python, variables=variables
        )
    except BisectionFailed as error:
        return Inside(words=f"{NO_ANSWER}: {one_line(error)}")
    return Inside(words=in_words(answer), without_it=reproduce_in_words(answer))


def _over_eager(run: Run, case: Case) -> float | None:
    """Return the ratio of the compiled step's time to eager's; None if it was not measured."""
    of_case = (one for one in case_results(run) if one.case == case and one.figures is not None)
    ratio = next((one.figures.time_ratio for one in of_case if one.figures is not None), None)
    return None if ratio is None else ratio.value
