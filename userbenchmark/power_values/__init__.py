"""How the values of weights change the time of steps that draw all the power that a device may.

Ten models whose inference in bfloat16 is mostly products of large matrices, at batch 64. Beside each model's own step,
with its random weights, the same step runs with weights whose spectra are those of trained networks (Martin & Mahoney,
2021, arXiv:1810.01075), and with these pruned to 90% zeros (Gale, Elsen & Hooker, 2019, arXiv:1902.09574).
`other_values.py` of this folder has how they are drawn. Both take turns in one process. A ratio below 1 says that
the step is faster with the other values than with the random ones. As a control, `--backend
power_values/values:zeros` has zeros.
"""

from __future__ import annotations

from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.throttling import POWER_CAP, throttled
from torchzoo.analysis.totals import CaseRatios
from torchzoo.case import Axes, Backend, Mode, Precision
from torchzoo.report import units
from torchzoo.report.document import Block, Heading, table
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, measured, not_measured

VALUES = ("trained", "pruned", "zeros")
MODELS = (
    "timm_vision_transformer_large",
    "timm_vision_transformer",
    "dinov3_vitb16",
    "hf_Bert_large",
    "hf_Roberta_base",
    "modernbert_base",
    "hf_GPT2_large",
    "nanogpt_gpt2",
    "hf_T5_large",
    "llama_v2_7b_16h",
)
BATCH_SIZE = 64
DEFAULT_VALUES = VALUES[:2]
#: The length of a block, longer than the delay (some tens of milliseconds) of the device's clocks after its power.
BLOCK_S = 0.25

READING = """## How to read it, and where it can mislead

*At the limit* is the share of the timed steps in which the device was at its power limit, by NVML's counter, over both
sides together. Where it is 0% or not known, values should change nothing. The means are over the models that were at
the limit with any of the values. Each side computes for a quarter of a second at a time: the clocks of a device follow
its power with a delay, which brings ratios of shorter turns closer to 1. *Trained* weights have the norm of the model's
own, matrix by matrix, and a power law in place of its spectrum. These are not the weights of a trained network: what
such a network does to its activations, and how sparse these are, is not reproduced. The inputs are the model's own,
which are random.
"""


def plan(choice: Choice) -> RunRequest:
    """The step with other values in turns with the model's own, one process for each kind of values."""
    return RunRequest(
        patterns=choice.patterns if choice.names_models else MODELS,
        suites=choice.suites,
        models_dirs=choice.models_dirs,
        axes=Axes(
            modes=(Mode.EVAL,),
            devices=(),
            backends=tuple(Backend("power_values/values", one) for one in DEFAULT_VALUES),
            precisions=(Precision.BF16,),
            batch_sizes=(BATCH_SIZE,),
        ),
        settings=Settings(time_limit_s=6.0, block_s=BLOCK_S),  # six rounds of four blocks, for 95%
    )


def report(run: Run) -> list[Block | str]:
    """The report: the step's time for each model, the ratios of the time with other values, and the means."""
    found = [one for one in measured(run) if one[0].case.backend.name == "values"]
    by_model: dict[str, dict[str, tuple[CaseResult, CaseFigures]]] = {}
    for result, figures in found:
        by_model.setdefault(result.case.in_eager().label(), {})[result.case.backend.option or VALUES[0]] = (
            result,
            figures,
        )
    if not by_model:
        return ["No case of this run was measured.", "", READING, *not_measured(run)]
    rows = [_line(label, of_values) for label, of_values in by_model.items()]
    limited = [of_values for of_values in by_model.values() if any(_limited(one) for one, _ in of_values.values())]
    ratios = CaseRatios([result for result, _ in found])
    means = []
    for one in VALUES:
        mean = ratios.geomean("time_ratio", [of_values[one][0] for of_values in limited if one in of_values])
        means.append("" if mean is None else units.factor(mean, decimals=3))
    if limited:
        rows.append([f"geometric mean of {len(limited)} at the limit", "", *means, ""])
    ratios_table = table(["case", "a step, random weights", *VALUES, "at the limit"], rows).used()
    heading = Heading("Time with other values over time with random weights")
    return [heading, ratios_table, READING, *not_measured(run)]


def _line(label: str, of_values: dict[str, tuple[CaseResult, CaseFigures]]) -> list[str]:
    _, first = next(iter(of_values.values()))
    cells = [_ratio(*of_values[one]) if one in of_values else "" for one in VALUES]
    shares = [share for result, _ in of_values.values() if (share := _limited(result)) is not None]
    return [label, units.latency(first.eager.latency_s), *cells, f"{max(shares):.0%}" if shares else "not known"]


def _ratio(result: CaseResult, figures: CaseFigures) -> str:
    assert figures.time_ratio is not None
    return units.factor(figures.time_ratio, decimals=3) + ("" if result.passed else f" ({result.status})")


def _limited(result: CaseResult) -> float | None:
    """The largest share of a process; None without NVML's counter, 0 if the device was not at its limit."""
    shares = []
    for one in result.measured:
        before = one.device_state_before
        is_counted = before is not None and POWER_CAP in before.throttled_s
        share = throttled(one).get(POWER_CAP)
        if share is not None or is_counted:
            shares.append(share or 0.0)
    return max(shares, default=None)
