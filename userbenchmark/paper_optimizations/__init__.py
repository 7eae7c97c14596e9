"""What the paper's optimizations gain in the models' own steps: zero_grad, optimizers, a square root, offloading.

The question of Figure 6 of the TorchBench paper (Hao et al., 2023, arXiv:2304.14226). PyTorch and the libraries have
taken over its optimizations since. So each old way is put back into the step and measured beside the step as it is: how
many times faster the step is than with the old way is what the optimization gains. Ways that are not the default (fused
optimizers, for example) are measured beside the step as well. Each row names both ways: one instead of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.means import CaseRatio, geomean_of, inverse, quotient
from torchzoo.analysis.totals import paired_ratios, ratio_of
from torchzoo.case import Axes, Backend, Mode
from torchzoo.report import units
from torchzoo.report.beside import Row, exactly
from torchzoo.report.document import Block, Heading, table
from torchzoo.report.dots import DotRow, Panel, Value
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.stats import STATED_CONFIDENCE, Estimate
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, not_measured


class Change(NamedTuple):
    """A change of the step. One of the two ways is the step's own, the other that of the changed step."""

    backend: Backend  # name in `backends.py` and in the records of a report
    is_old: bool  # whether the changed step has the old way
    new: str  # the optimization
    old: str

    @property
    def text(self) -> str:
        """The comparison in words. The speedup is the old way's time over the new way's."""
        return f"{self.new} instead of {self.old}"


KERNELS = Change(
    Backend("zero_grad", "kernels"),
    is_old=True,
    new="gradients set to None, as the step does,",
    old="zeroed by a kernel each",
)
FOREACH = Change(
    Backend("zero_grad", "foreach"),
    is_old=False,
    new="gradients zeroed by foreach",
    old="set to None, as the step does",
)
RSQRT = Change(Backend("rsqrt"), is_old=True, new="square root of a number on the host", old="on the device")
OFFLOAD = Change(
    Backend("offload"),
    is_old=True,
    new="networks kept on the device",
    old="moved to the host and back before each step",
)
AS_THE_STEP = "as the step has it"
CHANGES = (
    KERNELS,
    FOREACH,
    Change(
        Backend("zero_grad", "none"),
        is_old=False,
        new="gradients set to None by the changed step",
        old="by the step itself (a control)",
    ),
    Change(Backend("optimizer", "for-loop"), is_old=True, new=f"optimizer {AS_THE_STEP}", old="in a for-loop"),
    Change(Backend("optimizer", "foreach"), is_old=False, new="optimizer by foreach", old=AS_THE_STEP),
    Change(Backend("optimizer", "fused"), is_old=False, new="optimizer fused", old=AS_THE_STEP),
    RSQRT,
    OFFLOAD,
)
PAPERS = "the paper's optimizations instead of what was before them"
GAINS, MEAN, LARGEST = "Models that gain", "Mean speedup", "Largest speedup"

#: The least speedup that counts as a gain.
LEAST_GAIN = {Mode.TRAIN: 1.0, Mode.EVAL: 1.03}

READING = """## How to read it, and where it can mislead

Each name says *one way instead of another*. Its speedup is the time with the other way over the time with the first
one: above 1 the first way, the optimization, is faster; below 1 it is slower. The model's own step and its changed form
take turns in one process, on the same parameters.

In the picture, a row has the name of the changed step, as `--backend` takes it.

The step itself has PyTorch's defaults of this version: `zero_grad` sets gradients to None, and optimizers on a GPU are
foreach. Three of the 84 models differ. Adam is fused in attention_is_all_you_need_pytorch and speech_transformer, whose
learning rate is a tensor. SGD of dlrm updates its parameters one by one, since some gradients are sparse. So to change
an optimizer into what the step has anyway gains nothing, and is a control. A changed form costs about a microsecond a
step more than the change itself. A changed optimizer has counters of its own, and shares the moments of the model's
optimizer. Skipped, with the reason, are models that reset gradients by other means than their optimizer's `zero_grad`,
optimizers that are not PyTorch's or lack the implementation, those with sparse gradients where foreach or fused has no
implementation for them, and those whose learning rate is a tensor where the implementation would read it as a number.

*The paper's optimizations* are what the paper made of a model, so that row stands beside its figures: gradients zeroed
by foreach instead of a kernel each, and in hf_Reformer the square root on the host, too. Its speedup is computed: the
step's time over that with foreach, over the same with kernels, which two processes measured. So its interval is wider,
and holds at 90%. Gradients set to None, the newer default, are no part of it.

A model needs six quads (4 blocks) to be decided: fewer can't give 95%. The models that gain, and those that lose, are
counted of the decided ones; the mean over all has the others, too. The largest speedup is that of a decided model whose
interval is above 1, where there is one. *Networks kept on the device* is the paper's finding about pig2, applied to the
evaluation of each model: it says what any model would lose if they were moved. The mean over the models that gain is of
models that were chosen by the outcome, so it is too high wherever noise has chosen.
"""


def plan(choice: Choice) -> RunRequest:
    """Every change in turns with the model's own step, on the paper's 84 models unless others are named."""
    changes = tuple(Backend(f"paper_optimizations/{one.name}", one.option) for one, *_ in CHANGES)
    return RunRequest(
        patterns=choice.patterns,
        suites=choice.suites_or("torchbench"),
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.TRAIN, Mode.EVAL), devices=(), backends=changes),
        settings=Settings(time_limit_s=8.0),  # six quads of steps of up to 0.3 s
    )


class Gain(NamedTuple):
    """The gain of a change in a model."""

    model: str
    speedup: Estimate
    ratio: CaseRatio
    is_decided: bool  # enough quads for 95%


def gains(run: Run, change: Change, mode: Mode) -> list[Gain]:
    """The models on which the change was measured, the largest gain first."""
    found = []
    for result in case_results(run):
        if (result.case.backend, result.case.mode) != (change.backend, mode) or not result.passed:
            continue
        speedup, ratio = _speedup(result), ratio_of(result.case, paired_ratios(result))
        if change.is_old:
            speedup, ratio = stats.inverse(speedup), inverse(ratio)
        found.append(Gain(result.case.model, speedup, ratio, speedup.confidence >= STATED_CONFIDENCE))
    return sorted(found, key=lambda gain: -gain.speedup.value)


def papers_gains(run: Run) -> list[Gain]:
    """The joint gain of the paper's optimizations of training, on models with both ways to zero gradients."""
    old, new, root = (
        {one.model: one for one in gains(run, change, Mode.TRAIN)} for change in (KERNELS, FOREACH, RSQRT)
    )
    found = [_both(old[name], new[name]) for name in old if name in new]
    found = [_both(one, root[one.model]) if one.model in root else one for one in found]
    return sorted(found, key=lambda gain: -gain.speedup.value)


def _both(one: Gain, other: Gain) -> Gain:
    """The product of two gains that were measured independently."""
    return Gain(
        one.model,
        stats.quotient(one.speedup, stats.inverse(other.speedup)),
        quotient(one.ratio, inverse(other.ratio)),
        one.is_decided and other.is_decided,
    )


def _speedup(result: CaseResult) -> Estimate:
    figures = result.figures
    assert figures is not None, "a case that passed has figures"
    assert figures.speedup is not None, "a case with a candidate has a speedup"
    return figures.speedup


def that_lose(found: Sequence[Gain], mode: Mode) -> list[Gain]:
    """The decided models that lose by as much as would count as a gain."""
    return [gain for gain in found if gain.is_decided and gain.speedup.high < 1 / LEAST_GAIN[mode]]


def largest_of(found: Sequence[Gain]) -> Gain:
    """The largest decided speedup with an interval above 1, else the largest of all."""
    return next((gain for gain in found if gain.is_decided and gain.speedup.low > 1), found[0])


def that_gain(found: Sequence[Gain], mode: Mode) -> list[Gain]:
    """The decided models whose whole interval is above the least gain."""
    return [gain for gain in found if gain.is_decided and gain.speedup.low > LEAST_GAIN[mode]]


def rows(run: Run) -> list[Row]:
    """The rows of each change: the models that gain and lose, the means over the gaining and all, the largest gain."""
    rows = _of_change(Mode.TRAIN, PAPERS, papers_gains(run), beside=str(Mode.TRAIN))
    for mode in (Mode.TRAIN, Mode.EVAL):
        for change in CHANGES:
            rows += _of_change(mode, change.text, gains(run, change, mode))
    why = "the published one is pig2's, and the zoo has no pig2"
    rows.append(Row(table=LARGEST, figure=Mode.TRAIN, measured=None, missing=why))
    why = "our data do not say which changes to evaluation the paper counts"
    rows += [Row(table=table, figure=Mode.EVAL, measured=None, missing=why) for table in (GAINS, LARGEST)]
    why = "the zoo has no pig2"
    rows.append(Row(table=LARGEST, figure="pig2, networks kept on the device", measured=None, missing=why))
    why = "here the whole step is measured"
    rows.append(Row(table=LARGEST, figure="hf_Reformer, that function alone", measured=None, missing=why))
    return rows


def _of_change(mode: Mode, text: str, found: Sequence[Gain], *, beside: str = "") -> list[Row]:
    if not found:
        return []
    name, winners = f"{mode}, {text}", that_gain(found, mode)
    decided = sum(gain.is_decided for gain in found)
    of = f"of {decided} decided; {len(that_lose(found, mode))} lose"
    of += f"; {len(found) - decided} undecided" if decided < len(found) else ""
    count = exactly(len(winners)) if decided else None
    none = f"none of {len(found)} models has the six quads that decide it"
    rows = [Row(table=GAINS, figure=name, beside=beside, measured=count, note=of, missing=none)]
    for which, some in (("those that gain", winners), ("all", found)):
        mean = geomean_of([gain.ratio for gain in some]) if some else None
        note = f"{len(some)} models" + (f"; {verdict(mean, some)}" if mean is not None else "")
        figure = f"{name}, {which}"
        rows.append(Row(table=MEAN, figure=figure, beside=beside, measured=mean, missing="no model gains", note=note))
    largest = largest_of(found)
    note = largest.model if largest.is_decided and largest.speedup.low > 1 else f"{largest.model}; no gain is decided"
    rows.append(Row(table=LARGEST, figure=name, measured=largest.speedup, note=note))
    return rows


def verdict(mean: Estimate, found: Sequence[Gain]) -> str:
    """The verdict of a mean on the optimization. Undecided models alone give none."""
    if not any(gain.is_decided for gain in found) or not mean.excludes(1.0):
        return "no difference is sure"
    return "faster" if mean.value > 1 else "slower"


def panels(run: Run) -> list[Panel]:
    """The charts of Figure 6: the gain of each change in each model, by mode. Rows have the names of changed steps."""
    found = []
    for mode in (Mode.TRAIN, Mode.EVAL):
        groups = tuple(_group(change, mode, some) for change in CHANGES if (some := gains(run, change, mode)))
        if groups:
            title = f"What each optimization gains, {mode} (Figure 6)"
            axis = "time with the other way / time with the optimization: right of 1x it is faster"
            found.append(Panel(title=title, axis=axis, groups=groups))
    return found


def _group(change: Change, mode: Mode, some: Sequence[Gain]) -> DotRow:
    mean = geomean_of([gain.ratio for gain in some])
    values = tuple(Value(name=one.model, value=one.speedup.value) for one in some)
    return DotRow(name=str(change.backend), mode=mode, values=values, mean=mean, count=len(some))


def report(run: Run) -> list[Block | str]:
    """The report: a table for each mode, with a line for each model and a column for each change."""
    lines: list[Block | str] = []
    for mode in (Mode.TRAIN, Mode.EVAL):
        by_change = {change.text: gains(run, change, mode) for change in CHANGES}
        if mode is Mode.TRAIN:
            by_change = {PAPERS: papers_gains(run), **by_change}
        columns = {text: {gain.model: gain.speedup for gain in some} for text, some in by_change.items() if some}
        models = list(dict.fromkeys(model for column in columns.values() for model in column))
        if not models:
            continue
        cells = (
            [model, *(units.speedup(column[model]) if model in column else "" for column in columns.values())]
            for model in models
        )
        lines += [Heading(f"Each model, {mode}"), table(("model", *columns), cells)]
    if not lines:
        lines = ["No case of this run has a change beside the model's own step that passed.", ""]
    return [*lines, READING, *not_measured(run)]
