"""Find the first bad version between a good and a bad one, and further culprits if the change has several steps.

A search ends with one culprit, which is the good version of the next search: if the bad version still differs from it,
another culprit is between them. The searches end when no change remains. A change is a difference that the judge calls
bad. So of several steps that are each below its threshold, only the step at which their sum exceeds the threshold is
found.

The state of a bisection is in its folder, so a bisection that was killed continues where it stopped:

- `bisect.json`: the request, with all versions in order. An index may offer other versions later.
- `bisect.jsonl`: one verdict a line. A verdict is on disk before the next version is chosen.
- `records/`: the records of the measurements.
- `.lock`: locked by the process that works here.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.files import read_file, read_json, to_json
from torchzoo.history.bisection import Conclusion, Ending, Judged, Search, Standing
from torchzoo.history.changes import Kind
from torchzoo.report import units
from torchzoo.run.experiment import ignore
from torchzoo.run.request import RunRequest
from torchzoo.stats import Estimate
from torchzoo.store import StoreError, append_line, lock_folder, write_json

ASKED, VERDICTS = "bisect.json", "bisect.jsonl"
#: The most effort for one verdict. Effort begins with 1 and doubles as long as the verdict is inconclusive.
MOST_EFFORT = 16
#: The prior probabilities that there is no change, and that no change remains after a culprit.
NO_CHANGE, NOTHING_LEFT = 0.05, 0.5


# --- the folder ---


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The request of a bisection: the change to search for, and the versions."""

    good: str  # SPECs as they were given
    bad: str
    versions: tuple[str, ...]  # SPECs in order; the first is the good one, the last the bad one
    request: RunRequest  # one model, and one value of each axis
    kind: Kind  # what changed: a metric, or what becomes of the case
    threshold: float | None = None  # the least difference that matters: 0.07 for 7%; None: what the noise allows
    lanes: int = 1  # slots
    words: tuple[str, ...] = ()  # of a command line that asks for the same case
    pre_releases: bool = False


class Judgement(NamedTuple):
    """A version to judge."""

    midpoint: str  # SPEC
    effort: int = 1  # the amount of measurement, doubled each time that the verdict was inconclusive
    number: int = 1  # of the judgements of this version against this good version


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The result of measuring one version against the good version."""

    verdict: Standing
    ratio: Estimate | None = None  # of the metric, this version over the good one
    reason: str = ""  # why it is skipped, or another remark
    records: str = ""  # the folder of the measurement; empty if there is none


class LoggedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict from a measurement of `midpoint` against `good`."""

    good: str
    midpoint: str
    effort: int
    evidence: Evidence
    finished_at: str  # UTC, ISO 8601
    number: int = 1  # of the judgements of `midpoint` against `good`


class BisectLog:
    """The folder of a bisection. Use `opened` to lock it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    @contextlib.contextmanager
    def opened(cls, path: Path, *, resume: bool = False) -> Iterator[BisectLog]:
        """Lock a folder inside a context. With `resume` it must hold a bisection, and without it must not."""
        asked = path / ASKED
        if resume and not asked.is_file():
            raise StoreError(f"no bisection in {path}: there is no file {ASKED}")
        lock = lock_folder(path)
        try:
            was_measured = (path / VERDICTS).exists() or any(path.rglob("run.json"))
            if not resume and asked.exists() and was_measured:
                advice = f"go on with --resume {path}, or name another folder"
                raise StoreError(f"{path} holds a bisection already: {advice}")
            yield cls(path)
        finally:
            lock.release()

    def begin(self, asked: Asked) -> None:
        """Write the request."""
        write_json(self.path / ASKED, asked)

    def asked(self) -> Asked:
        """Return the request. A file that can't be read is a `FileError`."""
        return read_json(self.path / ASKED, Asked)

    def append(self, good: str, ask: Judgement, evidence: Evidence) -> LoggedVerdict:
        """Add a verdict, which is on disk on return. A damaged last line stays, and a new line begins after it."""
        if (ratio := evidence.ratio) is not None:  # JSON has no infinity
            most = sys.float_info.max
            ratio = msgspec.structs.replace(ratio, low=max(ratio.low, -most), high=min(ratio.high, most))
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds")
        kept = msgspec.structs.replace(evidence, ratio=ratio)
        entry = LoggedVerdict(good=good, **ask._asdict(), evidence=kept, finished_at=now)
        append_line(self.path / VERDICTS, to_json(entry))
        return entry

    def entries(self) -> tuple[list[LoggedVerdict], str]:
        """Return the verdicts so far, and a remark on lines that can't be read (empty if there are none)."""
        path = self.path / VERDICTS
        lines = filter(None, read_file(path).split(b"\n") if path.exists() else [])
        read = [attempt(partial(msgspec.json.decode, line, type=LoggedVerdict)) for line in lines]
        found = [entry for entry in read if isinstance(entry, LoggedVerdict)]
        damaged = len(read) - len(found)
        what = f"{damaged} of {len(read)} lines could not be read and will be measured again"
        return found, f"{path}: {what}" if damaged else ""


# --- the search ---


class GoodFails(TorchzooError):
    """The good version itself can't be measured, so no version can be judged."""


#: A judge, such as `ab_evidence.AbJudge.judge`: gets a good version and the versions to judge, and returns the evidence
#: on each, from processes of its own. `GoodFails` is raised if the good version can't be measured.
Judge = Callable[[str, Sequence[Judgement]], list[Evidence]]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict, and the most probable answer after it."""

    entry: LoggedVerdict
    best: str  # SPEC of the most probable first bad version; empty if there is probably no change
    probability: float


class Culprit(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the change. The first bad version is one of `specs`, which are several if versions were skipped."""

    before: str  # SPEC: the last version without this step
    specs: tuple[str, ...]
    probability: float
    ratio: Estimate | None  # of the metric: the last of `specs` over the good version of its search

    @property
    def is_exact(self) -> bool:
        return len(self.specs) == 1


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a bisection, and why it stopped."""

    culprits: tuple[Culprit, ...]
    ended: Ending  # of the last search; FOUND if the last culprit is the bad version itself
    reason: str = ""  # the last reason that the judge gave for the bad version
    left: tuple[str, ...] = ()  # UNDECIDED: the first bad version is probably one of these


def find_culprits(
    asked: Asked,
    log: BisectLog,
    judge: Judge,
    *,
    show: Callable[[Step], None] = ignore,
    show_culprit: Callable[[Culprit], None] = ignore,
) -> Result:
    """Judge versions until all culprits are found, or until no more can be found. The log keeps each verdict.

    An exception of the judge ends the bisection, unless a culprit can't be the good version of the next search.
    `show_culprit` is called before the search for further culprits.
    """
    left, entries = asked.versions, log.entries()[0]
    culprits: list[Culprit] = []
    while len(left) > 1:
        own = [one for one in entries if one.good == left[0]]
        absent = NOTHING_LEFT if culprits else NO_CHANGE
        search = Search(last=len(left) - 1, judged=_judged(left, own), absent=absent)
        end = search.conclusion()
        if end is None:
            try:
                found = _judge_next(search, left, own, asked.lanes, judge)
            except GoodFails as error:
                if not culprits:
                    raise
                return Result(culprits=tuple(culprits), ended=Ending.UNMEASURABLE, reason=one_line(error))
            for ask, evidence in found:
                entries.append(log.append(left[0], ask, evidence))
                own.append(entries[-1])
                version, probability = msgspec.structs.replace(search, judged=_judged(left, own)).best()
                show(Step(entry=entries[-1], best=(*left, "")[version], probability=probability))
        elif end.answer in (Ending.FOUND, Ending.RANGE):
            culprits.append(_culprit(left, own, end))
            left = left[end.last :]
            if len(left) > 1:
                show_culprit(culprits[-1])
        else:
            reason = next((one.evidence.reason for one in reversed(own) if one.midpoint == left[-1]), "")
            some = left[end.first : end.last + 1] if end.answer is Ending.UNDECIDED else ()
            return Result(culprits=tuple(culprits), ended=end.answer, reason=reason, left=some)
    return Result(culprits=tuple(culprits), ended=Ending.FOUND)


def _judge_next(
    search: Search, versions: Sequence[str], entries: Sequence[LoggedVerdict], lanes: int, judge: Judge
) -> list[tuple[Judgement, Evidence]]:
    """Judge the next versions. A version that was judged before gets more effort if its verdict was inconclusive."""
    asks = {versions[number]: Judgement(versions[number]) for number in search.midpoints(lanes)}
    for one in entries:
        if one.midpoint in asks:
            effort = one.effort * (2 if one.evidence.verdict is Standing.INCONCLUSIVE else 1)
            asks[one.midpoint] = Judgement(one.midpoint, min(effort, MOST_EFFORT), one.number + 1)
    return list(zip(asks.values(), judge(versions[0], [*asks.values()]), strict=True))


def _judged(versions: Sequence[str], entries: Sequence[LoggedVerdict]) -> tuple[Judged, ...]:
    """Return the verdicts by the number of their versions.

    An inconclusive verdict tells nothing, so the search asks for the version again. After the most effort, the version
    counts as skipped.
    """
    judged = []
    number = {spec: index for index, spec in enumerate(versions)}
    for entry in entries:
        verdict = entry.evidence.verdict
        if verdict is Standing.INCONCLUSIVE and entry.effort >= MOST_EFFORT:
            verdict = Standing.SKIPPED
        if verdict is not Standing.INCONCLUSIVE:
            judged.append(Judged(number[entry.midpoint], verdict))
    return tuple(judged)


def _culprit(versions: Sequence[str], entries: Sequence[LoggedVerdict], end: Conclusion) -> Culprit:
    of_last = [one.evidence for one in entries if one.midpoint == versions[end.last]]
    ratios = [one.ratio for one in of_last if one.verdict is Standing.BAD and one.ratio is not None]
    return Culprit(
        before=versions[end.first - 1],
        specs=tuple(versions[end.first : end.last + 1]),
        probability=end.probability,
        ratio=ratios[-1] if ratios else None,
    )


def evidence_text(evidence: Evidence) -> str:
    """Return `bad 1.100x [1.080, 1.120]`, or `skipped: the model fails`."""
    ratio = f" {units.factor(evidence.ratio, decimals=3)}" if evidence.ratio is not None else ""
    return f"{evidence.verdict}{ratio}" + (f": {evidence.reason}" if evidence.reason else "")
