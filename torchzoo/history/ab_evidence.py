"""Judge the versions of a bisection: each is measured on this machine in turns with the good version.

The bad version tells how large the change is. Another version has the change if its whole 95% interval lies beyond half
of the change (of the logarithm of the ratio), and lacks the change if the whole interval lies on the near side of half.

After a culprit is found, the bad version is compared with the culprit. The rest of the change counts as another change
only if it is large enough: noise on a machine with other users often looks like a few percent more.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from torchzoo.analysis.cases import Status, case_results
from torchzoo.analysis.compare import RunComparison, compare_in_turns
from torchzoo.analysis.judge import LEAST_LEFT, REPEATS, SHARE_OF_CHANGE, Finding, Verdict
from torchzoo.environments.make import EnvironmentNotMade, NotMadeNow, PythonEnvironment, prepare
from torchzoo.errors import UsageError, one_line
from torchzoo.files import safe_name
from torchzoo.history.bisect_log import Asked
from torchzoo.history.bisection import Evidence, GoodFails, Judge, Judgement, Standing
from torchzoo.history.confirm import changes_for_the_worse
from torchzoo.history.proposals import Kind, counts_of
from torchzoo.record import CheckStatus
from torchzoo.run import experiment
from torchzoo.run.experiment import OnRecord, Place, ignore
from torchzoo.run.pool import ServerError, TorchUnusable
from torchzoo.store import Run, read_run

GOOD = "good"
#: By kind of change, the statuses of a case that are no evidence. For other kinds: those without a measurement.
_SAYS_NOTHING = {
    Kind.FAILING: {Status.SKIPPED},
    Kind.UNSTEADY: {
        Status.SKIPPED,
        Status.FAILED,
        Status.INCORRECT,
        Status.REFUSED,
    },  # a case has one status: the worst
}
_VERDICTS_OF_CHECKS = (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT, CheckStatus.INCORRECT)


class AbJudge:
    """A `bisection.Judge` that measures.

    Args:
        asked: the case, the kind of change and the versions.
        folder: the place for records. Measurements that it holds are not repeated.
        on_record: called with each record.
    """

    repeats = REPEATS  # of each version in a first judgement; doubled after each inconclusive judgement

    def __init__(self, asked: Asked, folder: Path, on_record: OnRecord = ignore) -> None:
        self.asked = asked
        self._folder = folder
        self._on_record = on_record

    def judge(self, good: str, asks: Sequence[Judgement]) -> list[Evidence]:
        """Return the evidence on each version. Versions of the same effort are measured in turns with each other.

        Raises:
            GoodFails: `good` can't be measured.
            UsageError, StoreError, NotMadeNow: no version can be measured at present.
        """
        found: dict[str, Evidence] = {}
        for effort in sorted({ask.effort for ask in asks}):
            found |= self._measured(good, [ask for ask in asks if ask.effort == effort], effort)
        return [found[ask.midpoint] for ask in asks]

    def _measured(self, good: str, asks: Sequence[Judgement], effort: int) -> dict[str, Evidence]:
        found: dict[str, Evidence] = {}
        folder = self._folder_of(good, asks, effort)
        midpoints = [ask.midpoint for ask in asks]
        try:
            beside = prepare(good)
        except NotMadeNow:
            raise
        except EnvironmentNotMade as error:
            raise GoodFails(f"the good version can't be measured: {error}") from error
        environments: dict[str, PythonEnvironment] = {}
        for midpoint in midpoints:
            try:
                environments[midpoint] = prepare(midpoint)
            except NotMadeNow:
                raise  # the version may be fine: the bisection continues later
            except (EnvironmentNotMade, UsageError) as error:
                found[midpoint] = Evidence(verdict=Standing.SKIPPED, reason=one_line(error))
        self._measure(beside, environments, folder, effort, found)
        for midpoint in [one for one in midpoints if one not in found]:
            comparison = self._compared(folder, midpoint)
            found[midpoint] = self._evidence(good, midpoint, comparison, folder)
        return found

    def _measure(
        self,
        good: PythonEnvironment,
        environments: dict[str, PythonEnvironment],
        folder: Path,
        effort: int,
        found: dict[str, Evidence],
    ) -> None:
        """Measure all versions, except those in which torchzoo can't begin: they are added to `found`."""
        axes = msgspec.structs.replace(self.asked.request.axes, repeats=self.repeats * effort)
        request = msgspec.structs.replace(self.asked.request, axes=axes)
        while environments:
            places = {GOOD: Place(software=good, folder=folder / GOOD)}
            for midpoint, environment in environments.items():
                places[midpoint] = Place(software=environment, folder=folder / _short(midpoint))
            try:
                experiment.measure(request, places, on_record=self._on_record)
            except ServerError as error:
                failed = [midpoint for midpoint, one in environments.items() if one.name == error.environment]
                if not failed:
                    raise GoodFails(f"the good version can't be measured: {error}") from error
                verdict = self._verdict_of_unusable(error)
                found[failed[0]] = Evidence(verdict=verdict, reason=one_line(error), records=str(folder))
                del environments[failed[0]]
            else:
                return

    def _verdict_of_unusable(self, error: ServerError) -> Standing:
        return Standing.SKIPPED

    def _compared(self, folder: Path, midpoint: str) -> RunComparison:
        base, candidate = read_run(folder / GOOD), read_run(folder / _short(midpoint))
        metric = self.asked.kind.metric
        metrics = (metric,) if metric is not None else ()
        return compare_in_turns(base, candidate, threshold=self.asked.threshold, metrics=metrics)

    def _evidence(self, good: str, midpoint: str, comparison: RunComparison, folder: Path) -> Evidence:
        finding = next(iter(comparison.findings), None)
        if finding is None:
            reason = next(
                (f"{one.change}: {one.candidate}" for one in comparison.changes),
                "unsteady" if comparison.unsteady else self._why_no_finding(comparison),
            )
            return Evidence(verdict=Standing.SKIPPED, reason=reason, records=str(folder))
        first_good, bad = self.asked.versions[0], self.asked.versions[-1]
        change = None if midpoint == bad else self._change(good, bad)
        verdict, reason = _verdict_of_bad(finding) if change is None else beside_half(finding, change), finding.remark
        if midpoint == bad and good != first_good and verdict is not Standing.GOOD:
            whole = self._change(first_good, bad)
            if whole is not None and _is_small(finding, verdict, LEAST_LEFT * whole):
                verdict, reason = Standing.GOOD, f"less than {LEAST_LEFT:.0%} of the change is left"
        return Evidence(verdict=verdict, ratio=finding.ratio, reason=reason, records=str(folder))

    def _why_no_finding(self, comparison: RunComparison) -> str:
        sides = [case_results(read_run(Path(path))) for path in (comparison.base, comparison.candidate)]
        if not any(result.measured for side in sides for result in side):
            return "neither version could be measured"
        return f"one of the two versions has no figure of {self.asked.kind.words}"

    def _change(self, good: str, bad: str) -> float | None:
        """Return the logarithm of the ratio of the bad version to this good one: the mean of judgements with a change.

        If no judgement sees a change, return the mean of all of them, and None if there are none.
        """
        found = [finding for folder in self._folders(good, bad) for finding in self._compared(folder, bad).findings[:1]]
        found = [finding for finding in found if finding.ratio.value > 0]
        telling = [finding for finding in found if finding.is_notable] or found
        return fmean(math.log(finding.ratio.value) for finding in telling) if telling else None

    def runs(self, good: str, version: str) -> tuple[Run, Run] | None:
        """Return the runs of both versions from the judgement with the most effort, if there is one."""
        folders = list(self._folders(good, version))
        return (read_run(folders[-1] / GOOD), read_run(folders[-1] / _short(version))) if folders else None

    def _folders(self, good: str, version: str) -> Iterator[Path]:
        """Yield the folders of the judgements of a version against `good`, in ascending order of effort."""
        some = sorted(
            self._folder.glob(f"{_short(good)}/*"), key=lambda path: (int(path.name.partition("-")[0]), path.name)
        )
        yield from (one for one in some if all((one / side / "run.json").is_file() for side in (GOOD, _short(version))))

    def _folder_of(self, good: str, asks: Sequence[Judgement], effort: int) -> Path:
        """Return the folder of a judgement: a separate folder for each number, so that the processes are new."""
        words = [ask.midpoint if ask.number == 1 else f"{ask.midpoint} {ask.number}" for ask in asks]
        return self._folder / _short(good) / f"{effort}-{_short(' '.join(words))}"


class StatusJudge(AbJudge):
    """Judge versions by the outcome of the case: whether it fails, leaks, has more graph breaks, and so on."""

    repeats = 2  # noise does not matter here, but one process could be killed by chance

    def _verdict_of_unusable(self, error: ServerError) -> Standing:
        """Return BAD if torch can't be imported and the search is for failures: a killed process is no evidence."""
        is_failing = self.asked.kind is Kind.FAILING and isinstance(error, TorchUnusable)
        return Standing.BAD if is_failing else Standing.SKIPPED

    def _evidence(self, good: str, midpoint: str, comparison: RunComparison, folder: Path) -> Evidence:
        base, candidate = (read_run(Path(path)) for path in (comparison.base, comparison.candidate))
        kind = self.asked.kind
        why_not = _why_not_judged(kind, base)
        why_not = f"the good version: {why_not}" if why_not else _why_not_judged(kind, candidate)
        if why_not:
            return Evidence(verdict=Standing.SKIPPED, reason=why_not, records=str(folder))
        found = [one for one in changes_for_the_worse(comparison, base, candidate, night="") if one.kind is kind]
        reason = found[0].words if found else ""
        return Evidence(verdict=Standing.BAD if found else Standing.GOOD, reason=reason, records=str(folder))


def _why_not_judged(kind: Kind, run: Run) -> str:
    """Return why a run is no evidence on this kind of change; empty if it is."""
    (result,) = case_results(run)
    if result.status in _SAYS_NOTHING.get(kind, {Status.SKIPPED, Status.FAILED}):
        return f"{result.status}: {result.reason}"
    checks = [one for one in result.checks if one is not None]
    if kind is Kind.INCORRECT and not any(check.status in _VERDICTS_OF_CHECKS for check in checks):
        reason = next((f": {check.status}, {check.reason}" for check in checks), "")
        return f"there is no verdict on its results{reason}"
    if kind in (Kind.LEAKING, Kind.GRAPH_BREAKS) and (result.case, kind) not in counts_of([result]):
        return f"there is no count of {kind.words}"
    return ""


def make_judge(asked: Asked, folder: Path, on_record: OnRecord = ignore) -> Judge:
    """Return the judge for the kind of change that is searched, with its records in `folder`."""
    kind = StatusJudge if asked.kind.metric is None else AbJudge
    return kind(asked, folder, on_record)


def _verdict_of_bad(finding: Finding) -> Standing:
    if finding.is_notable:
        return Standing.BAD
    return Standing.GOOD if finding.verdict is Verdict.SAME else Standing.INCONCLUSIVE


def _is_small(finding: Finding, verdict: Standing, least: float) -> bool:
    """Whether the rest of a change counts as none: by its size if it was found, else if its interval is below `least`.

    `least` is a logarithm of a ratio, with the sign of the change.
    """
    if verdict is Standing.BAD:
        return abs(math.log(finding.ratio.value)) < abs(least)
    return _interval(finding, least)[1] < abs(least)


def beside_half(finding: Finding, change: float) -> Standing:
    """Judge whether the change is present, from the ratio's interval. `change` is the logarithm of the whole change."""
    low, high = _interval(finding, change)
    half = SHARE_OF_CHANGE * abs(change)
    if low > half:
        return Standing.BAD
    return Standing.GOOD if high < half else Standing.INCONCLUSIVE


def _interval(finding: Finding, change: float) -> tuple[float, float]:
    """Return the interval of the ratio's logarithm, with its sign and ends swapped if the change is an improvement."""
    low, high = (math.log(end) if end > 0 else -math.inf for end in (finding.ratio.low, finding.ratio.high))
    return (low, high) if change > 0 else (-high, -low)


def _short(spec: str) -> str:
    """Return a readable name for a folder, unique to the SPEC."""
    words = "-".join(part.rpartition(":")[2][:16] if ":" in part else part for part in spec.split())
    return f"{safe_name(words)[:80]}-{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
