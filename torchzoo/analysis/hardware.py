"""One hardware against another: how many times faster the same cases ran, case by case and on average."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from torchzoo import stats
from torchzoo.analysis.means import CaseRatio, geomean_of, quotient
from torchzoo.analysis.run_figures import times_s
from torchzoo.analysis.totals import ALL, ratio_of
from torchzoo.case import Case, Domain, Mode
from torchzoo.record import Measured
from torchzoo.stats import Estimate

#: One case that both runs measured, and the outcomes of its processes in the base and in the candidate run.
ProcessPair = tuple[Case, Sequence[Measured], Sequence[Measured]]


class HardwareRatio(msgspec.Struct, frozen=True, kw_only=True):
    """Time on the base's hardware over time on the candidate's: above 1, the candidate's is faster."""

    case: Case
    base_s: Estimate  # the time of a step on each
    candidate_s: Estimate
    ratio: Estimate


class HardwareMean(msgspec.Struct, frozen=True, kw_only=True):
    """Geometric mean of a group's ratios; `domain` is `all` for all of them."""

    axes: str
    domain: str
    mode: Mode
    ratio: Estimate
    cases: int


def hardware_ratio(case: Case, base: Sequence[Measured], candidate: Sequence[Measured]) -> HardwareRatio:
    """The ratio of one case that both runs measured, each by itself."""
    was, now = (stats.processes_estimate(times_s(side)) for side in (base, candidate))
    return HardwareRatio(case=case, base_s=was, candidate_s=now, ratio=stats.quotient(was, now))


def hardware_means(pairs: Sequence[ProcessPair], domains: Mapping[str, Domain]) -> Iterable[HardwareMean]:
    """By backend and the other axes, mode and domain: the geometric mean over cases (the paper's Figure 5)."""
    groups: dict[tuple[str, Mode, str], list[CaseRatio]] = {}
    for case, base, candidate in pairs:
        was, now = (ratio_of(case, times_s(side)) for side in (base, candidate))
        for domain in filter(None, (domains.get(case.model), ALL)):
            groups.setdefault((case.axes_label(), case.mode, domain), []).append(quotient(was, now))
    order = [*Domain, ALL]
    for (axes, mode, domain), ratios in sorted(groups.items(), key=lambda g: (g[0][:2], order.index(g[0][2]))):
        yield HardwareMean(axes=axes, domain=domain, mode=mode, ratio=geomean_of(ratios), cases=len(ratios))
