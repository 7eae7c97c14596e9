"""PyTorch 2.0's claim again: of 163 models, how many does a compiler train, and how much faster?

PyTorch 2.0 was announced in December 2022 (https://pytorch.org/get-started/pytorch-2.0/) with the share of models that
`torch.compile` can train, and with its speedups on an A100, over 46 models of HuggingFace, 61 of timm and 56 of
TorchBench. Its mean of both precisions counts AMP three times as much as float32. The suite `pt2_163` has 162 of these
models: transformers no longer has Speech2Text2ForCausalLM.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.bootstrap import mean
from torchzoo.analysis.cases import CaseResult, Status, case_results
from torchzoo.analysis.totals import RatioSamples, Total, total
from torchzoo.case import EAGER, Backend, Mode, Precision
from torchzoo.report import markdown, units
from torchzoo.report.beside import Row, scaled
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings
from torchzoo.stats import Estimate
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, counted, percent

#: How much AMP counts in the claim's mean of both precisions.
AMP_WEIGHT = 0.75
INDUCTOR = Backend("inductor")
WORKS, FASTER = "Works", "Faster in training"

COLLECTIONS = {"hf": "HuggingFace", "timm": "timm"}
TORCHBENCH = "TorchBench"

READING = """## How to read it, and where it can mislead

A model works if it was trained and its results were not found wrong: `--check` compares outputs, gradients and updated
parameters with eager's. Without a check nothing is known of that. The share is of all models, those that could not run
included, as in the claim. A model that was compiled again while it was measured (*unsteady*) works, and its speedup is
in no mean. The means are geometric, over the others that work; a mean over all counts one that failed or is incorrect
as 1. The intervals are bootstraps over models and samples.

The suite has 162 of the 163 models. Speech2Text2ForCausalLM is not among them, since transformers no longer has it.

The suite says how its list was put together. The docstrings of the collections say where the work of a step differs.
"""


def plan(choice: Choice) -> RunRequest:
    """Training with inductor beside eager, results compared, at both precisions; the suite unless models are named."""
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("pt2_163"),
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.TRAIN,), devices=(), backends=(Backend("inductor"),), precisions=(Precision.FP32, Precision.AMP)
        ),
        settings=Settings(time_limit_s=2.0, passes=(Pass.CHECK,)),
    )


def rows(run: Run) -> list[Row]:
    """The share that works and the means with inductor, of both precisions together and of each."""
    results = [one for one in trained(run) if one.case.backend == INDUCTOR]
    if not results:
        return []
    samples = RatioSamples(results)
    rows = [_works("both precisions", results)]
    means = {}
    for precision in precisions(results):
        some = [one for one in results if one.case.precision is precision]
        means[precision] = total("precision", precision, some, samples).passing
        faster = None if (speedup := means[precision]) is None else scaled(speedup, 100, -100)
        rows += [
            _works(precision, some),
            Row(table=FASTER, figure=precision, measured=faster, missing="no model counts", note=counted(some)),
        ]
    fp32, amp = means.get(Precision.FP32), means.get(Precision.AMP)
    both = None if fp32 is None or amp is None else _weighted(fp32, amp)
    return [*rows, Row(table=FASTER, figure="both precisions", measured=both, missing="it needs fp32 and amp")]


def _works(figure: str, results: Sequence[CaseResult]) -> Row:
    if unchecked := without_check(results):
        why = f"the results of {unchecked} of the {len(results)} cases were not checked: measure with --check"
        return Row(table=WORKS, figure=figure, measured=None, missing=why)
    share = scaled(mean([float(works(one)) for one in results]), 100)
    return Row(table=WORKS, figure=figure, measured=share, note=work_rate(results))


def works(result: CaseResult) -> bool:
    """Whether it was trained and not found wrong. One that was compiled again meanwhile works, too."""
    return result.status in (Status.PASSED, Status.UNSTEADY)


def without_check(results: Sequence[CaseResult]) -> int:
    """How many of the cases that were trained had no check of their results."""
    return sum(works(one) and any(measured.check is None for measured in one.measured) for one in results)


def _weighted(fp32: Estimate, amp: Estimate) -> Estimate:
    """The mean of both, weighted as in the claim, in percent. Its interval goes from both lows to both highs."""
    value, low, high = (
        100 * ((1 - AMP_WEIGHT) * getattr(fp32, end) + AMP_WEIGHT * getattr(amp, end)) - 100
        for end in ("value", "low", "high")
    )
    return Estimate(value=value, low=low, high=high, confidence=0.95, count=fp32.count + amp.count)


def trained(run: Run) -> list[CaseResult]:
    """The cases that train with a backend beside eager."""
    return [one for one in case_results(run) if one.case.mode is Mode.TRAIN and one.case.backend != EAGER]


def report(run: Run) -> list[str]:
    """For each backend: what works and the means by collection, and what is in no mean, with the reason."""
    results = trained(run)
    if not results:
        return ["No case of this run trains with a backend beside eager: run it with `-t train --backend inductor`."]
    samples = RatioSamples(results)
    lines = []
    for backend in dict.fromkeys(result.case.backend for result in results):
        of_backend = [result for result in results if result.case.backend == backend]
        lines += [f"## {backend}: by collection", "", *_by_collection(of_backend, samples), ""]
        lines += [f"## {backend}: what is in no mean, and why", "", *_not_counted(of_backend), ""]
    return [*lines, READING]


def _by_collection(results: Sequence[CaseResult], samples: RatioSamples) -> list[str]:
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
                        *speedups(total("collection", name, some, samples)),
                    ]
                )
    return markdown.table(("collection", "precision", "works", "in the mean", "speedup", "over all"), rows)


def _not_counted(results: Sequence[CaseResult]) -> list[str]:
    rows = [(one.case.label(), str(one.status), one.reason) for one in results if not one.passed]
    return markdown.table(("case", "", "why"), rows) if rows else ["Every case counts."]


def precisions(results: Sequence[CaseResult]) -> list[Precision]:
    """The precisions of these cases, in the order of the run."""
    return list(dict.fromkeys(result.case.precision for result in results))


def collection_of(result: CaseResult) -> str:
    """Where a model is from: the two collections, and the zoo's folders for TorchBench."""
    return COLLECTIONS.get(result.case.model.partition(":")[0], TORCHBENCH)


def work_rate(results: Sequence[CaseResult]) -> str:
    """`150/162, 92.6%`: of all cases, skipped ones included; or that their results were not checked."""
    if without_check(results):
        return "not checked"
    working = sum(map(works, results))
    return f"{working}/{len(results)}, {percent(working / len(results))}"


def speedups(found: Total) -> list[str]:
    """The geometric means over what counts and over all that could run and were steady."""
    return ["" if one is None else units.speedup(one) for one in (found.passing, found.over_all)]
