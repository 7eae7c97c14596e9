"""What inputs of other sizes cost with inductor: compiled for each size, automatic, mark_dynamic, mark_unbacked.

A network is compiled once and meets one size after another: the batches B, 2 B, B + 1, B / 2 and 1; in language models
also the lengths T, T / 2, 3 T / 4 and T / 2 - 1. `static` is compiled anew for each size (`dynamic=False`). `automatic`
is torch.compile's default: a size that changes becomes a variable. `mark_dynamic` and `mark_unbacked` say so before,
for all dimensions of the networks' inputs that differ between these sizes. Each of the four has a process of its own,
with empty caches. Afterwards each size is timed in turns beside the same network compiled for it alone; what
is compiled for that is kept for the other three processes.
Last, each size is profiled with both: how long the device works, and with which kernels.
With `--devices`, processes of several cases run at once, each with a device and cores of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from torchzoo import stats
from torchzoo.analysis.cases import by_case
from torchzoo.analysis.means import geomean
from torchzoo.analysis.roofline import busy_ratio, longest_kernels, short_name
from torchzoo.case import Axes, Backend, Case, Domain, Mode
from torchzoo.errors import UsageError
from torchzoo.measure.fresh_turns import SizeResult, SizeSweep, Turn
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Failed, Record, Took
from torchzoo.report import units
from torchzoo.report.document import Block, Heading, table
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings, StageLimits
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, without_result
from torchzoo.zoo.spec import ModelSpec

INDUCTOR = Backend("inductor")
POLICIES = ("static", "automatic", "mark_dynamic", "mark_unbacked")
AXES = ("batch", "length")
FUNCTION = "torchzoo.measure.size_sweep:sweep"
SEVERAL_AT_ONCE = ONE_A_DEVICE = True  # steps are timed

BATCH_SIZE = 8  # the batches are 8, 16, 9, 4 and 1; of a batch of 1 they would be 1 and 2

KERNELS = 5  # of each network, in the report

DEFAULT_MODELS = ("hf_Bert", "hf_GPT2", "hf_T5", "pytorch_unet", "resnet18", "timm_vision_transformer")

READING = """## How to read it, and where it can mislead

- *Slowdown*: the time of a step over that of the same network compiled for this size alone, with the median of the
  paired ratios and its interval. Below 1 the network that has met all sizes is faster. `static` should be at 1: what it
  is above is the cost of looking for the right one among several compiled graphs. Over all cases: the geometric mean
  of the cases' medians over sizes, of the cases that worked at all sizes.
- *Worked*: the cases in which all processes finished, and all sizes worked that work in eager, of all cases that were
  begun. A case with a process that crashed, raised or took too long has not worked. Skipped cases do not count.
- *Graphs* counts the graphs of all sizes; a backward graph belongs to its forward graph. *Recompiled*: functions that
  were compiled once more, since a guard failed. *Compiling*: wall time inside Dynamo and inductor, over all sizes. Over
  all cases: the median of the counts, and the geometric mean of the compile time over that of `static`.
- The sizes stand in the order in which the network met them. Another order can give other graphs: `automatic` compiles
  the first size as a constant. PyTorch compiles the sizes 0 and 1 apart, except where they are unbacked.
- A size at which it did not work has no slowdown; the reasons are at the end. After such a size the next one is tried
  all the same. Where a size fails in eager, too, the model itself can't take it.
- *The device's own work*: the time in which the device works in a profiled step, over the same of the network compiled
  for this size alone. Where it is as large as the slowdown, the code for all sizes has slower kernels, or more of them.
  Where it is smaller, the rest is the host's. (On the CPU it is the time inside operators and compiled graphs.) Each of
  both medians has an interval of its own, and all steps are of one process.
- The process has one network only. Its memory format, precision and inputs are those of the case.
"""


def plan(choice: Choice) -> RunRequest:
    """A few models in evaluation at a batch of 8 with inductor: 36 processes."""
    return RunRequest(
        patterns=choice.patterns if choice.names_models else DEFAULT_MODELS,
        suites=choice.suites,
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.EVAL,), devices=(), backends=(INDUCTOR,), batch_sizes=(BATCH_SIZE,)),
        settings=Settings(time_limit_s=1.0, limits=StageLimits(build_s=120.0, compile_s=400.0, measure_s=120.0)),
    )


def turns(case: Case, spec: ModelSpec, repeats: int) -> list[Turn]:
    """A process for each policy and each axis: the batch, and the length of language models.

    Raises:
        UsageError: the backend is not inductor.
    """
    if case.backend != INDUCTOR:
        raise UsageError(
            f"dynamic_shapes compiles with inductor, in its default mode: leave out --backend {case.backend}"
        )
    axes = AXES if spec.domain is Domain.NLP else AXES[:1]
    return [
        Turn(
            role=f"{axis}, {policy}",
            number=number,
            function=FUNCTION,
            options={"axis": axis, "policy": policy},
        )
        for number in range(repeats)
        for axis in axes
        for policy in (POLICIES if number % 2 == 0 else POLICIES[::-1])
    ]


# --- the report ---


class Swept(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a policy along an axis of a case: the counts of the first process, the timed blocks of all."""

    case: Case
    axis: str
    policy: str
    sizes: tuple[SizeResult, ...]  # empty: no process has a result
    has_failed: bool  # a process crashed, raised or took too long

    @property
    def works(self) -> bool:
        """Whether the policy worked in all processes, at all sizes that work in eager."""
        return not self.has_failed and all(not one.problem or in_eager_too(one) for one in self.sizes)

    @property
    def graphs(self) -> int:
        return sum(one.graphs for one in self.sizes)

    @property
    def recompilations(self) -> int:
        return sum(len(one.recompilations) for one in self.sizes)

    @property
    def compile_s(self) -> float:
        return sum(one.compile_s for one in self.sizes)


def in_eager_too(one: SizeResult) -> bool:
    """Whether the model itself does not take this size."""
    return one.problem.startswith("in eager too")


def slowdown(one: SizeResult) -> stats.Estimate | None:
    """The time of a step over that of a network compiled for this size alone; None without times."""
    return stats.inverse(stats.speedup(one.blocks)) if one.blocks else None


def swept(run: Run) -> list[Swept]:
    """The results of all policies, in the order of the plan."""
    cases = by_case(run.records).items()
    return [one for case, records in cases for axis in AXES for one in _of_axis(case, axis, records)]


def _of_axis(case: Case, axis: str, records: Sequence[Record]) -> Iterator[Swept]:
    for policy in POLICIES:
        outcomes = [record.outcome for record in records if record.role == f"{axis}, {policy}"]
        sweeps = [msgspec.convert(one.result, SizeSweep).sizes for one in outcomes if isinstance(one, Took)]
        has_failed = any(isinstance(one, Failed) for one in outcomes)
        if sweeps or has_failed:
            yield Swept(case=case, axis=axis, policy=policy, sizes=_joined(sweeps), has_failed=has_failed)


def _joined(processes: Sequence[tuple[SizeResult, ...]]) -> tuple[SizeResult, ...]:
    """The first process's sizes with the blocks of all. A size that failed in a process failed."""
    if not processes:
        return ()
    found: dict[int, list[SizeResult]] = {one.size: [] for one in processes[0]}
    for sizes in processes:
        for one in sizes:
            found[one.size].append(one)
    return tuple(_of_size(some) for some in found.values())


def _of_size(found: Sequence[SizeResult]) -> SizeResult:
    problem = next((one.problem for one in found if one.problem), "")
    blocks = () if problem else tuple(block for one in found for block in one.blocks)
    return msgspec.structs.replace(found[0], problem=problem, blocks=blocks)


def report(run: Run) -> list[Block | str]:
    """The report: means over cases, a table for each case and axis, and the reasons of failures."""
    found = swept(run)
    if not found:
        return ["No process has a result yet.", *without_result(run)]
    lines: list[Block | str] = [Heading("Over all cases"), table(*_means(found))]
    for case, axis in dict.fromkeys((one.case, one.axis) for one in found):
        some = [one for one in found if one.case == case and one.axis == axis]
        if not any(one.sizes for one in some):
            continue  # the reason is at the end
        label = case.label().replace(" inductor", "")
        lines += [Heading(f"{label}, by its {axis}"), table(*_case(some))]
        if work := _work(some):
            headings, rows = work
            lines += ["The device's own work:", table(headings, rows)]
        if kernels := _kernels(some):
            headings = ("how", "at", "network", "time a step", "calls a step", "kernel")
            lines.append(f"The {KERNELS} kernels that take longest, where a way is slowest and surely slower:")
            lines.append(table(headings, kernels))
    if guards := _guards(found):
        headings = ("how", "the guard that failed", "times", "which")
        lines += [Heading("Why functions were compiled again"), table(headings, guards)]
    if problems := _problems(found):
        headings = ("how", "problem", "sizes", "which")
        lines += [Heading("What did not work"), table(headings, problems)]
    return [*lines, READING, *without_result(run)]


Table = tuple[Sequence[str], list[Sequence[str]]]


def _means(found: Sequence[Swept]) -> Table:
    headings = ("by", "how", "worked", "graphs", "recompiled", "compile time over static's", "slowdown", "largest")
    static_s = {(one.case, one.axis): one.compile_s for one in found if one.policy == "static" and one.works}
    rows: list[Sequence[str]] = []
    for axis in AXES:
        for policy in POLICIES:
            some = [one for one in found if one.axis == axis and one.policy == policy]
            if not some:
                continue
            working = [one for one in some if one.works]
            both_s = [(one.compile_s, static_s.get((one.case, axis), 0.0)) for one in working]
            ratios = [own_s / of_static_s for own_s, of_static_s in both_s if own_s and of_static_s]
            times = [[slow.value for size in one.sizes if (slow := slowdown(size))] for one in working]
            all_times = [value for of_case in times for value in of_case]
            rows.append(
                (
                    axis,
                    policy,
                    f"{len(working)} of {len(some)}",
                    f"{median(one.graphs for one in working):g}" if working else "",
                    f"{median(one.recompilations for one in working):g}" if working else "",
                    units.speedup(geomean([[ratio] for ratio in ratios])) if ratios else "",
                    units.speedup(geomean([of_case for of_case in times if of_case])) if all_times else "",
                    f"{max(all_times):.2f}x" if all_times else "",
                )
            )
    return headings, rows


def _sizes(some: Sequence[Swept]) -> list[int]:
    """The sizes of all policies, in the order in which networks met them."""
    return list(dict.fromkeys(size.size for one in some for size in one.sizes))


def _case(some: Sequence[Swept]) -> Table:
    sizes = _sizes(some)
    headings = ("how", "graphs", "recompiled", "compiling", *(f"slowdown at {size}" for size in sizes))
    rows: list[Sequence[str]] = []
    for one in some:
        if not one.sizes:
            rows.append((one.policy, "", "", "", *("failed" for _ in sizes)))
            continue
        by_size = {size.size: size for size in one.sizes}
        cells = [_cell(by_size.get(size)) for size in sizes]
        rows.append((one.policy, str(one.graphs), str(one.recompilations), units.seconds(one.compile_s), *cells))
    return headings, rows


def device_ratio(one: SizeResult) -> stats.Estimate | None:
    """The device's time in a step, over that of a network compiled for this size alone; None: not known."""
    return busy_ratio(one.breakdowns.get(CANDIDATE_VARIANT), one.breakdowns.get(EAGER_VARIANT))


def _work(some: Sequence[Swept]) -> Table | None:
    """The ratio of the device's time at each size, by policy; None if nothing was profiled."""
    sizes = _sizes(some)
    rows: list[Sequence[str]] = []
    for one in some:
        ratios = {size.size: device_ratio(size) for size in one.sizes}
        cells = [units.speedup(ratio) if (ratio := ratios.get(size)) else "" for size in sizes]
        if any(cells):
            rows.append((one.policy, *cells))
    return (("how", *(f"at {size}" for size in sizes)), rows) if rows else None


def _kernels(some: Sequence[Swept]) -> list[Sequence[str]]:
    """The kernels of each policy that is surely slower at some size, at its slowest size."""
    rows: list[Sequence[str]] = []
    for one in some:
        known = [(ratio, size) for size in one.sizes if (ratio := slowdown(size))]
        slow = [(ratio.value, size) for ratio, size in known if ratio.value > 1 and ratio.surely_excludes(1)]
        if not slow:
            continue
        _, size = max(slow, key=lambda found: found[0])
        for variant, network in ((CANDIDATE_VARIANT, "this one"), (EAGER_VARIANT, "for this size alone")):
            if variant in size.breakdowns:
                rows += [
                    (
                        one.policy,
                        str(size.size),
                        network,
                        units.seconds(kernel.per_step_s),
                        f"{kernel.calls_per_step:g}",
                        short_name(kernel.name),
                    )
                    for kernel in longest_kernels(size.breakdowns[variant], KERNELS)
                ]
    return rows


def _cell(one: SizeResult | None) -> str:
    if one is None:
        return ""
    slow = slowdown(one)
    if slow is None:
        return "not in eager" if in_eager_too(one) else "failed"
    return units.speedup(slow) + (f", {one.graphs} compiled" if one.graphs else "")


def _guards(found: Sequence[Swept]) -> list[Sequence[str]]:
    """The guards that failed, with equal ones of several cases, but for sizes and Dynamo's remarks, in one line."""
    times: Counter[tuple[str, str]] = Counter()
    which: dict[tuple[str, str], dict[str, None]] = {}
    for one in found:
        for size in one.sizes:
            for recompilation in size.recompilations:
                key = one.policy, re.sub(r"(?<!\[)(?<!index )\b\d+\b", "N", recompilation.reason.partition(" # ")[0])
                times[key] += 1
                which.setdefault(key, {})[f"{one.case.model} {one.case.mode} by {one.axis}"] = None
    ordered = sorted(times, key=lambda key: (POLICIES.index(key[0]), -times[key]))
    return [(*key, str(times[key]), units.first_few(list(which[key]), most=4)) for key in ordered]


def _problems(found: Sequence[Swept]) -> list[Sequence[str]]:
    """The problems and their sizes, with equal ones of several cases in one line."""
    which: dict[tuple[str, str], dict[str, set[int]]] = {}
    for one in found:
        label = f"{one.case.model} {one.case.mode} by {one.axis}"
        for size in one.sizes:
            unknown = [f"not profiled: {profile.problem}" for profile in size.breakdowns.values() if profile.problem]
            for problem in (size.problem, *unknown):
                if problem:
                    which.setdefault((one.policy, problem), {}).setdefault(label, set()).add(size.size)
    return [
        (
            policy,
            problem,
            ", ".join(str(size) for size in sorted(set().union(*cases.values()))),
            units.first_few(list(cases), most=4),
        )
        for (policy, problem), cases in which.items()
    ]
