"""Judge the versions of a bisection: each is measured on this machine in turns with the good version.

The bad version tells how large the change is. Another version has the change if its whole 95% interval lies beyond half
of the change (of the logarithm of the ratio), and lacks the change if the whole interval lies on the near side of half.

After a culprit is found, the bad version is compared with the culprit. The rest of the change is another change if the
whole interval lies beyond a quarter: noise on a machine with other users often looks like a few percent more.

Changes of an outcome (failing, leaking, more graph breaks ...) are there or not.
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
from torchzoo.history.bisection import Standing
from torchzoo.history.changes import Kind, changes_for_the_worse, counts_of
from torchzoo.history.culprits import Asked, Evidence, GoodFails, Judgement
from torchzoo.record import CheckStatus
from torchzoo.run import experiment
from torchzoo.run.experiment import OnRecord, Place, ignore
from torchzoo.run.pool import ServerError, TorchUnusable
from torchzoo.store import Run, read_run

GOOD = "good"
#: Processes of each version for an outcome. Noise does not matter, but one process could be killed by chance.
REPEATS_OF_OUTCOMES = 2
#: By kind of change, the statuses of a case that are no evidence. For other kinds: those without a measurement.
_SAYS_NOTHING = {
    Kind.FAILING: {Status.SKIPPED},
    # A case has one status: the worst.
    Kind.UNSTEADY: {Status.SKIPPED, Status.FAILED, Status.INCORRECT, Status.REFUSED},
}
_VERDICTS_OF_CHECKS = (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT, CheckStatus.INCORRECT)


class AbJudge:
    """A judge of the versions of a bisection, with its records in `folder`. Measurements there are not repeated."""

    def __init__(self, asked: Asked, folder: Path, on_record: OnRecord = ignore) -> None:
        self.asked = asked
        self._folder = folder
        self._on_record = on_record

    def judge(self, good: str, asks: Sequence[Judgement]) -> list[Evidence]:
        """Return the evidence on each version. Versions of the same effort are measured in turns with each other."""
        found: dict[str, Evidence] = {}
        for effort in sorted({ask.effort for ask in asks}):
            some = [ask for ask in asks if ask.effort == effort]
            folder = self._folder_of(good, some)
            found |= self._measure(good, some, folder)
            for midpoint in [ask.midpoint for ask in some if ask.midpoint not in found]:
                runs = read_run(folder / GOOD), read_run(folder / _short(midpoint))
                is_metric = self.asked.kind.metric is not None
                evidence = self._by_metric(good, midpoint, *runs) if is_metric else self._by_outcome(*runs)
                found[midpoint] = msgspec.structs.replace(evidence, records=str(folder))
        return [found[ask.midpoint] for ask in asks]

    def _measure(self, good: str, asks: Sequence[Judgement], folder: Path) -> dict[str, Evidence]:
        """Measure versions of one effort. Return the evidence on those in which nothing can be measured."""
        skipped: dict[str, Evidence] = {}
        environments: dict[str, PythonEnvironment] = {}
        for spec in (good, *(ask.midpoint for ask in asks)):
            try:
                environments[spec] = prepare(spec)
            except NotMadeNow:
                raise  # the version may be fine: the bisection continues later
            except (EnvironmentNotMade, UsageError) as error:
                if spec == good:
                    raise GoodFails(f"the good version can't be measured: {error}") from error
                skipped[spec] = Evidence(verdict=Standing.SKIPPED, reason=one_line(error))
        repeats = REPEATS if self.asked.kind.metric is not None else REPEATS_OF_OUTCOMES
        axes = msgspec.structs.replace(self.asked.request.axes, repeats=repeats * asks[0].effort)
        request = msgspec.structs.replace(self.asked.request, axes=axes)
        while len(environments) > 1:
            places = {
                GOOD if spec == good else spec: Place(
                    software=one, folder=folder / (GOOD if spec == good else _short(spec))
                )
                for spec, one in environments.items()
            }
            try:
                experiment.measure(request, places, on_record=self._on_record)
            except ServerError as error:
                unusable = next((spec for spec, one in environments.items() if one.name == error.environment), good)
                if unusable == good:
                    raise GoodFails(f"the good version can't be measured: {error}") from error
                # A torch that can't be imported is a failure. A process that was killed is no evidence.
                is_bad = self.asked.kind is Kind.FAILING and isinstance(error, TorchUnusable)
                verdict = Standing.BAD if is_bad else Standing.SKIPPED
                skipped[unusable] = Evidence(verdict=verdict, reason=one_line(error), records=str(folder))
                del environments[unusable]
            else:
                break
        return skipped

    # --- metrics ---

    def _by_metric(self, good: str, midpoint: str, base: Run, candidate: Run) -> Evidence:
        comparison = self._compared(base, candidate)
        finding = next(iter(comparison.findings), None)
        if finding is None:
            return Evidence(verdict=Standing.SKIPPED, reason=self._why_no_finding(comparison, base, candidate))
        first_good, bad = self.asked.versions[0], self.asked.versions[-1]
        change, share, reason = None, SHARE_OF_CHANGE, finding.remark
        if midpoint != bad:
            change = self._change(good)
        elif good != first_good and finding.verdict is not Verdict.SAME:
            change, share = self._change(first_good), LEAST_LEFT
        if change is not None:
            verdict = is_there(finding, change, share)
        elif finding.is_notable:
            verdict = Standing.BAD
        else:
            verdict = Standing.GOOD if finding.verdict is Verdict.SAME else Standing.INCONCLUSIVE
        if share == LEAST_LEFT and verdict is Standing.GOOD:
            reason = f"less than {share:.0%} of the change is left"
        return Evidence(verdict=verdict, ratio=finding.ratio, reason=reason)

    def _compared(self, base: Run, candidate: Run) -> RunComparison:
        metric = self.asked.kind.metric
        assert metric is not None
        return compare_in_turns(base, candidate, threshold=self.asked.threshold, metrics=(metric,))

    def _why_no_finding(self, comparison: RunComparison, base: Run, candidate: Run) -> str:
        if comparison.changes:
            return f"{comparison.changes[0].change}: {comparison.changes[0].candidate}"
        if comparison.unsteady:
            return "unsteady"
        if not any(result.measured for run in (base, candidate) for result in case_results(run)):
            return "neither version could be measured"
        return f"one of the two versions has no figure of {self.asked.kind.words}"

    def _change(self, good: str) -> float | None:
        """Return the logarithm of the ratio of the bad version to this good one: the mean of judgements with a change.

        If no judgement sees a change, return the mean of all of them, and None if there are none.
        """
        pairs = self._measured(good, self.asked.versions[-1])
        found = [finding for pair in pairs for finding in self._compared(*pair).findings[:1] if finding.ratio.value > 0]
        telling = [finding for finding in found if finding.is_notable] or found
        return fmean(math.log(finding.ratio.value) for finding in telling) if telling else None

    # --- outcomes ---

    def _by_outcome(self, base: Run, candidate: Run) -> Evidence:
        kind = self.asked.kind
        why_not = _why_not_judged(kind, base)
        why_not = f"the good version: {why_not}" if why_not else _why_not_judged(kind, candidate)
        if why_not:
            return Evidence(verdict=Standing.SKIPPED, reason=why_not)
        worse = changes_for_the_worse(compare_in_turns(base, candidate, metrics=()), base, candidate)
        words = next((one.words for one in worse.values() if one.kind is kind), None)
        return Evidence(verdict=Standing.GOOD if words is None else Standing.BAD, reason=words or "")

    # --- folders ---

    def runs(self, good: str, version: str) -> tuple[Run, Run] | None:
        """Return the runs of both versions from the judgement with the most effort, if there is one."""
        return next(reversed([*self._measured(good, version)]), None)

    def _measured(self, good: str, version: str) -> Iterator[tuple[Run, Run]]:
        """Yield the runs of all judgements of a version against `good`, in ascending order of effort."""
        folders = self._folder.glob(f"{_short(good)}/*")
        for folder in sorted(folders, key=lambda path: (int(path.name.partition("-")[0]), path.name)):
            sides = folder / GOOD, folder / _short(version)
            if all((side / "run.json").is_file() for side in sides):
                yield read_run(sides[0]), read_run(sides[1])

    def _folder_of(self, good: str, asks: Sequence[Judgement]) -> Path:
        """Return the folder of a judgement: a separate folder for each number, so that the processes are new."""
        words = [ask.midpoint if ask.number == 1 else f"{ask.midpoint} {ask.number}" for ask in asks]
        return self._folder / _short(good) / f"{asks[0].effort}-{_short(' '.join(words))}"


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


def is_there(finding: Finding, change: float, share: float = SHARE_OF_CHANGE) -> Standing:
    """Judge by the ratio's interval whether a share of the change is present.

    The whole change is given as a logarithm. An improvement is below 0.
    """
    low, high = (math.log(end) if end > 0 else -math.inf for end in (finding.ratio.low, finding.ratio.high))
    if change < 0:
        low, high = -high, -low
    if low > share * abs(change):
        return Standing.BAD
    return Standing.GOOD if high < share * abs(change) else Standing.INCONCLUSIVE


def _short(spec: str) -> str:
    """Return a readable name for a folder, unique to the SPEC."""
    words = "-".join(part.rpartition(":")[2][:16] if ":" in part else part for part in spec.split())
    return f"{safe_name(words)[:80]}-{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
