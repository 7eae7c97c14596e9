"""PyTorch 2.0's claim again: of 163 models, how many does a compiler train, and how much faster?

PyTorch 2.0 was announced in December 2022 (https://pytorch.org/get-started/pytorch-2.0/) with the share of models for
which `torch.compile` works, and with its speedups in training on an A100, over 46 models of HuggingFace, 61 of timm and
56 of TorchBench. Its mean of both precisions counts AMP three times as much as float32. The suite `pt2_163` has 162 of
these models: transformers no longer has Speech2Text2ForCausalLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from torchzoo.analysis.cases import CaseResult, Status, case_results
from torchzoo.analysis.means import share
from torchzoo.analysis.totals import CaseRatios, Total, total
from torchzoo.case import EAGER, Axes, Backend, Mode, Precision
from torchzoo.record import CheckStatus
from torchzoo.report import units
from torchzoo.report.beside import Row
from torchzoo.report.document import Block, Heading, Table, Text, table
from torchzoo.report.dots import SPEEDUP_AXIS, DotRow, Panel, speedup_of
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings, Stage, StageLimits
from torchzoo.stats import Estimate, scaled
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import ALL, Choice, counted, percent

#: The weight of AMP in the claim's mean of both precisions.
AMP_WEIGHT = 0.75
INDUCTOR = Backend("inductor")
WORKS, FASTER = "Works", "Faster in training"
BOTH = "both precisions"
PUBLISHED_MEANS = (Precision.TF32, Precision.AMP, BOTH)

COLLECTIONS = {"hf": "HuggingFace", "timm": "timm"}
TORCHBENCH = "TorchBench"

READING = """## How to read it, and where it can mislead

A case works if it was compiled and trained, and `--check` found its results correct: gradients, updated parameters and
more are compared with eager's. Without a check nothing is known of that. A check has no verdict where eager's own
results differ from run to run, or where there is no reference. Such a case does not count as working, but its speedup
is in the means. A model that was compiled again while it was measured (*unsteady*) works, and its speedup is in no
mean.

Eager did not run if a case was skipped, or failed before its network was compiled. The tables by collection leave these
cases out of the share, and so does PyTorch's harness.

The means are geometric, over the cases that were measured, steady, and not found wrong. With *slowdowns as 1*, a model
that became slower counts as 1. *Over all* counts one that failed or is incorrect as 1. The intervals of means
are Student's t over models, those of shares Wilson's score intervals.

The suite has 162 of the 163 models. Speech2Text2ForCausalLM is not among them, since transformers no longer has it.

The suite says how its list was put together. The docstrings of the collections say where the work of a step differs.
"""

#: The stages before the network is compiled. A failure there is eager's.
BEFORE_COMPILING = (Stage.PLAN, Stage.START, Stage.IMPORT, Stage.BUILD, Stage.PREPARE, Stage.WARM_UP)


def plan(choice: Choice) -> RunRequest:
    """Training with inductor, with a check of results, at both precisions; the suite unless models are named.

    The first precision is `tf32`, since PyTorch's harness allowed TF32 in float32.
    """
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("pt2_163"),
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.TRAIN,), devices=(), backends=(Backend("inductor"),), precisions=(Precision.TF32, Precision.AMP)
        ),
        settings=Settings(time_limit_s=1.0, limits=StageLimits(compile_s=600.0), passes=(Pass.CHECK,)),
    )


def rows(run: Run) -> list[Row]:
    """The share of working models and the means with inductor, of both precisions together and of each."""
    results = [one for one in trained(run) if one.case.backend == INDUCTOR]
    if not results:
        return []
    of_eager = [one for one in results if eager_runs(one)]
    found = [
        _works(BOTH, of_eager, len(results)),
        _works(f"{BOTH}, of all models", results, len(results), beside=BOTH),
    ]
    by_precision = {
        precision: [one for one in results if one.case.precision is precision] for precision in precisions(results)
    }
    for precision, some in by_precision.items():
        found.append(_works(precision, [one for one in some if eager_runs(one)], len(some)))
    ratios = CaseRatios(results)
    for ratio, how in (("speedup", ""), ("speedup_at_least_1", ", slowdowns as 1")):
        means: dict[Precision, Estimate | None] = {}
        for precision, some in by_precision.items():
            means[precision] = ratios.geomean(ratio, [one for one in some if one.passed])
            found.append(_faster(precision, how, means[precision], missing="no model counts", note=counted(some)))
        tf32, amp = means.get(Precision.TF32), means.get(Precision.AMP)
        both = None if tf32 is None or amp is None else _weighted(tf32, amp)
        found.append(_faster(BOTH, how, both, missing="it needs tf32 and amp"))
    return found


def _faster(figure: str, how: str, speedup: Estimate | None, *, missing: str, note: str = "") -> Row:
    faster = None if speedup is None else scaled(speedup, 100, -100)
    beside = figure if how and figure in PUBLISHED_MEANS else ""
    return Row(table=FASTER, figure=figure + how, beside=beside, measured=faster, missing=missing, note=note)


def _works(figure: str, results: Sequence[CaseResult], cases: int, *, beside: str = "") -> Row:
    """The share of `results` that work, each model with the mean of its cases. `cases` includes those without eager."""
    if unchecked := without_check(results):
        why = f"the results of {unchecked} of the {len(results)} cases were not checked: measure with --check"
        return Row(table=WORKS, figure=figure, beside=beside, measured=None, missing=why)
    if not results:
        return Row(table=WORKS, figure=figure, beside=beside, measured=None, missing="eager runs in no case")
    of_model: dict[str, list[float]] = {}
    for one in results:
        of_model.setdefault(one.case.model, []).append(float(works(one)))
    working = scaled(share([fmean(some) for some in of_model.values()]), 100)
    note = f"{sum(map(works, results))} of {len(results)} cases"
    if no_verdict := sum(compiles(one) and not works(one) for one in results):
        note += f", {no_verdict} without a verdict"
    if left_out := cases - len(results):
        note += f"; {left_out} more did not run in eager"
    return Row(table=WORKS, figure=figure, beside=beside, measured=working, note=note)


def eager_runs(result: CaseResult) -> bool:
    """Whether eager trained the model. Later failures are the compiler's."""
    return result.could_run and not any(failed.stage in BEFORE_COMPILING for failed in result.failures)


def compiles(result: CaseResult) -> bool:
    """Whether the case was trained and not found wrong, even if it was compiled again during the measurement."""
    return result.status in (Status.PASSED, Status.UNSTEADY, Status.CHECKED)


def works(result: CaseResult) -> bool:
    """Whether the case was trained and found correct in every process."""
    return compiles(result) and all(one is not None and one.status is CheckStatus.CORRECT for one in result.checks)


def without_check(results: Sequence[CaseResult]) -> int:
    """The number of trained cases without a check of their results."""
    return sum(compiles(one) and None in one.checks for one in results)


def _weighted(tf32: Estimate, amp: Estimate) -> Estimate:
    """The mean of both means, weighted as in the claim. The ends of its interval are the means of the ends."""
    value, low, high = (
        (1 - AMP_WEIGHT) * getattr(tf32, end) + AMP_WEIGHT * getattr(amp, end) for end in ("value", "low", "high")
    )
    confidence = min(tf32.confidence, amp.confidence)
    return Estimate(value=value, low=low, high=high, confidence=confidence, count=tf32.count + amp.count, of="models")


def trained(run: Run) -> list[CaseResult]:
    """The cases that train with a backend other than eager."""
    return [one for one in case_results(run) if one.case.mode is Mode.TRAIN and one.case.backend != EAGER]


def panels(run: Run) -> list[Panel]:
    """The charts of the speedups in the means, by collection; a chart for each precision."""
    results = [one for one in trained(run) if one.case.backend == INDUCTOR and one.passed]
    ratios = CaseRatios(results)
    found = []
    for precision in precisions(results):
        groups = []
        for name in (*COLLECTIONS.values(), TORCHBENCH, ALL):
            some = [one for one in results if one.case.precision is precision and name in (collection_of(one), ALL)]
            mean = ratios.geomean("speedup", some) if some else None
            if mean is not None:
                values = tuple(map(speedup_of, some))
                groups.append(DotRow(name=name, mode=Mode.TRAIN, values=values, mean=mean, count=len(some)))
        found.append(
            Panel(title=f"Speedup of inductor over eager at {precision}", axis=SPEEDUP_AXIS, groups=tuple(groups))
        )
    return found


def report(run: Run) -> list[Block | str]:
    """The report for each backend: working models and means by collection, and cases in no mean with the reasons."""
    results = trained(run)
    if not results:
        return ["No case of this run trains with a backend beside eager: run it with `-t train --backend inductor`."]
    ratios = CaseRatios(results)
    lines: list[Block | str] = []
    for backend in dict.fromkeys(result.case.backend for result in results):
        of_backend = [result for result in results if result.case.backend == backend]
        lines += [Heading(f"{backend}: by collection"), _by_collection(of_backend, ratios)]
        lines += [Heading(f"{backend}: what is in no mean, and why"), _not_counted(of_backend)]
    return [*lines, READING]


def _by_collection(results: Sequence[CaseResult], ratios: CaseRatios) -> Table:
    rows = []
    for name in (*COLLECTIONS.values(), TORCHBENCH):
        for precision in precisions(results):
            some = [one for one in results if collection_of(one) == name and one.case.precision is precision]
            if some:
                rows.append(
                    [
                        name,
                        precision,
                        work_rate(some),
                        counted(some),
                        *speedups(total("collection", name, some, ratios)),
                    ]
                )
    return table(("collection", "precision", "works", "in the mean", "speedup", "over all"), rows)


def _not_counted(results: Sequence[CaseResult]) -> Block:
    rows = [(one.case.label(), str(one.status), one.reason) for one in results if not one.passed]
    return table(("case", "outcome", "why"), rows) if rows else Text("Every case counts.")


def precisions(results: Sequence[CaseResult]) -> list[Precision]:
    """The precisions of these cases, in the order of the run."""
    return list(dict.fromkeys(result.case.precision for result in results))


def collection_of(result: CaseResult) -> str:
    """The origin of a model: one of the two collections, or TorchBench for the zoo's folders."""
    return COLLECTIONS.get(result.case.model.partition(":")[0], TORCHBENCH)


def work_rate(results: Sequence[CaseResult]) -> str:
    """`150 of 160, 93.8%` of the cases that run in eager, or that their results were not checked."""
    if without_check(results):
        return "not checked"
    of_eager = [one for one in results if eager_runs(one)]
    if not of_eager:
        return "eager runs in none"
    working = sum(map(works, of_eager))
    return f"{working} of {len(of_eager)}, {percent(working / len(of_eager))}"


def speedups(found: Total) -> list[str]:
    """The geometric means over the counted cases, and over all steady cases that could run."""
    return ["" if one is None else units.speedup(one) for one in (found.passing, found.over_all)]
