"""The zoo's models as a Markdown table: metadata, and what building a model tells, its inputs' shapes and its FLOPs.

Models are built and stepped on the meta device, where tensors have shapes and no data. What a step does whose work
depends on data is taken from a run that measured it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from torchzoo.case import EAGER, Mode, Precision
from torchzoo.record import Flops, Measured
from torchzoo.store import Run
from torchzoo.zoo.catalog import NEEDS_DATA, load_model_class
from torchzoo.zoo.spec import ModelSpec

HEADINGS = ("model", "domain", "task", "source", "parameters", "batch", "inputs", "GFLOP per step")

#: FLOPs of measured steps: by model, mode and batch.
Counted = Mapping[tuple[str, Mode, int], Flops]

EXPLANATION = """# The models

Written by `torchzoo describe`. Batches are the default ones, inputs those of the main network at these batches; FLOPs
are of matrix products, convolutions, attentions and recurrent layers in one step (in training with its backward
passes), a multiply-add counted as two. They are counted on the meta device, without data; those marked `*` depend on
data (random, as in every run), or can't be had there, and were counted in a real step of a measured run. Where
train and eval differ, they are given in this order.
"""
NOT_COUNTED = "something in the step needs data, and no run was given that counted it at this batch"


class _Facts(NamedTuple):
    """`inputs` and `gflop` are cells; `problem` says why a number is missing or too low."""

    inputs: str
    gflop: str
    problem: str = ""


def counted_in(runs: Iterable[Run]) -> Counted:
    """The FLOPs of eager steps at the default precision that `torchzoo run --flops` counted; later runs overrule."""
    found = {}
    for run in runs:
        for record in run.records:
            case, outcome = record.case, record.outcome
            is_plain = case.backend == EAGER and case.precision is Precision.DEFAULT
            if is_plain and isinstance(outcome, Measured) and outcome.flops is not None and case.batch_size is not None:
                found[case.model, case.mode, case.batch_size] = outcome.flops
    return found


def describe(specs: Iterable[ModelSpec], counted: Counted, *, sources: Sequence[str] = ()) -> str:
    """The whole document; `sources` name the runs that `counted` is from."""
    lines = [EXPLANATION]
    if sources:
        lines += [f"Marked `*`: counted in {', '.join(f'`{source}`' for source in sources)}.", ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    problems: dict[str, list[str]] = {}
    for spec in specs:
        facts = {mode: _facts(spec, mode, counted) for mode in spec.modes()}
        lines.append(_row(spec, facts))
        for mode, one in facts.items():
            if one.problem:
                problems.setdefault(one.problem, []).append(f"{spec.name} {mode}")
    if problems:
        lines += ["", "Not counted, or not in full:", ""]
        lines += [f"- {problem}: {', '.join(steps)}" for problem, steps in problems.items()]
    return "\n".join(lines) + "\n"


def row(spec: ModelSpec, counted: Counted) -> str:
    """One model's line of the table."""
    return _row(spec, {mode: _facts(spec, mode, counted) for mode in spec.modes()})


def _row(spec: ModelSpec, facts: dict[Mode, _Facts]) -> str:
    built = [_both(one.inputs for one in facts.values()), _both(one.gflop for one in facts.values())]
    return " | ".join([*known_cells(spec), *built]) + " |"


def known_cells(spec: ModelSpec) -> list[str]:
    """The cells that metadata alone tells, the first with the line's beginning."""
    return [
        f"| {spec.name}",
        spec.domain.value,
        spec.task,
        f"[{' '.join(spec.source.split())}]({spec.paper})",
        f"{spec.parameters:,}",
        _both(f"{spec.batch_size[mode]:,}" for mode in spec.modes()),
    ]


def _both(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(texts))


def _facts(spec: ModelSpec, mode: Mode, counted: Counted) -> _Facts:
    """Shapes of the example inputs and the step's GFLOP at the default batch."""
    from torchzoo.measure.passes.flops import count_work

    model_class, batch_size = load_model_class(spec), spec.batch_size[mode]
    inputs = ""
    try:
        model = model_class(mode, "meta", batch_size)
        inputs = _shapes(model.example_inputs)
        work = count_work(model.train_step if mode is Mode.TRAIN else model.eval_step)
        return _Facts(inputs, *_gflop(work))
    except NEEDS_DATA:
        inputs = inputs or _shapes(model_class(mode, "cpu", batch_size).example_inputs)
    measured = counted.get((spec.name, mode, batch_size))
    if measured is None:
        return _Facts(inputs, "-", NOT_COUNTED)
    cell, problem = _gflop(measured)
    return _Facts(inputs, f"{cell}*", problem)


def _gflop(work: Flops) -> tuple[str, str]:
    """The cell, and what is wrong with it."""
    gflop = f"{work.total / 1e9:,.4g}"
    if not work.without_formula:
        return gflop, ""
    return f"above {gflop}", f"no formula for {', '.join(sorted(work.without_formula))}"


def _shapes(inputs: Any) -> str:
    """`float32 8x3x224x224`, with names where inputs have names, equal ones counted."""
    from torch import Tensor
    from torch.utils._pytree import keystr, tree_flatten_with_path

    texts: dict[str, int] = {}
    for path, leaf in tree_flatten_with_path(inputs)[0]:
        if isinstance(leaf, Tensor):
            name = f"{keystr(path[:1])[2:-2]} " if isinstance(inputs, dict) else ""  # of ['input_ids']
            text = f"{name}{str(leaf.dtype).removeprefix('torch.')} {'x'.join(map(str, leaf.shape)) or 'scalar'}"
            texts[text] = texts.get(text, 0) + 1
    return ", ".join(text if count == 1 else f"{count} of {text}" for text, count in texts.items())
