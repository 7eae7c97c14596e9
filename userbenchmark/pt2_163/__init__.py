"""PyTorch 2.0's claim, again: of 163 models, how many does a compiler train, and how much faster?

PyTorch 2.0 was announced with these figures in December 2022 (https://pytorch.org/get-started/pytorch-2.0/): over 46
models of HuggingFace, 61 of timm and 56 of TorchBench, `torch.compile` works in 93% of cases, and training is 43%
faster on an A100: 21% at float32 and 51% at AMP, where the mean counts AMP three times as much as float32. The suite
`pt2_163` has 162 of these models: transformers no longer has Speech2Text2ForCausalLM.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.totals import RatioSamples, Total, total
from torchzoo.case import EAGER, Backend, Mode, Precision
from torchzoo.report import markdown, units
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, percent

#: What was claimed: how much faster training is at each precision, in percent.
CLAIMED_FASTER = {Precision.FP32: 21, Precision.AMP: 51}
CLAIMED_PASS_RATE, CLAIMED_MEAN = 93, 43
AMP_WEIGHT = 0.75

COLLECTIONS = {"hf": "HuggingFace", "timm": "timm"}
TORCHBENCH = "TorchBench"

READING = """## How to read it, and where it can mislead

A model passes if it was trained and its results were not found wrong: `--check` compares outputs, gradients and
updated parameters with eager's. The pass rate is of all models, those that could not run included, as in the claim.
The means are geometric, over the models that pass; a mean over all counts each other one as 1. The intervals are
bootstraps over models and samples.

The suite has 162 of the 163 models. Speech2Text2ForCausalLM is not among them, since transformers no longer has it.

The claim was measured on an A100 with a nightly of late 2022, in other versions of the libraries. Its harness timed
eager and compiled code in processes of their own, gave some optimizers other settings, and published no list of its 163
models: the suite says how it was put together. The docstrings of the collections say where the work of a step differs.
"""


def plan(choice: Choice) -> RunRequest:
    """Training with inductor beside eager, results compared, at both precisions; the suite unless models are named."""
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites if choice.names_models else ("pt2_163",),
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.TRAIN,), devices=(), backends=(Backend("inductor"),), precisions=(Precision.FP32, Precision.AMP)
        ),
        settings=Settings(time_limit_s=2.0, passes=(Pass.CHECK,)),
    )


def report(run: Run) -> list[str]:
    """For each backend: the claim beside this run, the same by collection, and what does not pass, with the reason."""
    results = [one for one in case_results(run) if one.case.mode is Mode.TRAIN and one.case.backend != EAGER]
    if not results:
        return ["No case of this run trains with a backend beside eager: run it with `-t train --backend inductor`."]
    samples = RatioSamples(results)
    lines = []
    for backend in dict.fromkeys(result.case.backend for result in results):
        of_backend = [result for result in results if result.case.backend == backend]
        lines += [f"## {backend}: beside the claim", "", *_beside_the_claim(of_backend, samples), ""]
        lines += [f"## {backend}: by collection", "", *_by_collection(of_backend, samples), ""]
        lines += [f"## {backend}: what does not pass, and why", "", *_not_passing(of_backend), ""]
    return [*lines, READING]


def _beside_the_claim(results: Sequence[CaseResult], samples: RatioSamples) -> list[str]:
    both = [f"{CLAIMED_PASS_RATE}%", pass_rate(results), f"{1 + CLAIMED_MEAN / 100:.2f}x", _mean(results, samples), ""]
    rows = [["both", *both]]
    for precision in precisions(results):
        some = [one for one in results if one.case.precision is precision]
        found = total("precision", precision, some, samples)
        claimed = CLAIMED_FASTER.get(precision)
        rows.append(
            [precision, "", pass_rate(some), "" if claimed is None else f"{1 + claimed / 100:.2f}x", *speedups(found)]
        )
    return markdown.table(("precision", "claimed to pass", "pass", "claimed speedup", "speedup", "over all"), rows)


def _mean(results: Sequence[CaseResult], samples: RatioSamples) -> str:
    """The mean of both precisions, weighted as in the claim."""
    means = [
        total("precision", precision, [one for one in results if one.case.precision is precision], samples).passing
        for precision in (Precision.FP32, Precision.AMP)
    ]
    fp32, amp = means
    if fp32 is None or amp is None:
        return ""
    return f"{(1 - AMP_WEIGHT) * fp32.value + AMP_WEIGHT * amp.value:.2f}x"


def _by_collection(results: Sequence[CaseResult], samples: RatioSamples) -> list[str]:
    rows = []
    for name in (*COLLECTIONS.values(), TORCHBENCH):
        for precision in precisions(results):
            some = [one for one in results if collection_of(one) == name and one.case.precision is precision]
            if some:
                rows.append([name, precision, pass_rate(some), *speedups(total("collection", name, some, samples))])
    return markdown.table(("collection", "precision", "pass", "speedup", "over all"), rows)


def _not_passing(results: Sequence[CaseResult]) -> list[str]:
    rows = [(one.case.label(), str(one.status), one.reason) for one in results if not one.passed]
    return markdown.table(("case", "", "why"), rows) if rows else ["Every case passed."]


def precisions(results: Sequence[CaseResult]) -> list[Precision]:
    """The precisions of these cases, in the order of the run."""
    return list(dict.fromkeys(result.case.precision for result in results))


def collection_of(result: CaseResult) -> str:
    """Where a model is from: the two collections, and the zoo's folders for TorchBench."""
    return COLLECTIONS.get(result.case.model.partition(":")[0], TORCHBENCH)


def pass_rate(results: Sequence[CaseResult]) -> str:
    """`150/162, 92.6%`: of all cases, skipped ones included."""
    passed = sum(result.passed for result in results)
    return f"{passed}/{len(results)}, {percent(passed / len(results))}"


def speedups(found: Total) -> list[str]:
    """The geometric means over what passes and over all that could run."""
    return ["" if one is None else units.speedup(one) for one in (found.passing, found.over_all)]
