"""`torchzoo list --table`: write models as a Markdown table of metadata, shapes of inputs, and FLOPs.

Models are built and stepped on the meta device, where tensors have shapes and no values. If the work of a step depends
on values, its FLOPs come from a measured run. Only this option and `check-model` import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from torchzoo.case import EAGER, Mode, Precision
from torchzoo.record import Flops, Measured
from torchzoo.report.document import Block, Items, Marked, Text, table
from torchzoo.report.markdown import code, escape, link, render
from torchzoo.store import Run
from torchzoo.zoo.catalog import NEEDS_DATA, load_model_class
from torchzoo.zoo.spec import ModelSpec

if TYPE_CHECKING:
    from torchzoo.model import Model

HEADINGS = ("model", "domain", "task", "source", "parameters", "batch", "inputs", "GFLOP per step")

#: FLOPs of measured steps, by model, mode and batch size.
Counted = Mapping[tuple[str, Mode, int], Flops]

EXPLANATION = """# The models

Written by `torchzoo list --table`. Batches are the default ones, inputs those of the main network at these batches;
FLOPs are of matrix products, convolutions, attentions and recurrent layers in one step (in training with its backward
passes), a multiply-add counted as two. They are counted on the meta device, without data; those marked `*` depend on
data (random, as in every run), or can't be had there, and were counted in a real step of a measured run. A fused kernel
of attention computes its scores once more in the backward pass; a training step with data (`--flops`, marked `*`) has
these operations, too, and a step without data has not: some percent of the step. Where the modes differ, they are given
in the order train, eval, prefill, decode."""
NOT_COUNTED = "something in the step needs data, and no run was given that counted it at this batch"


def counted_in(runs: Iterable[Run]) -> Counted:
    """The FLOPs of eager steps at the default precision in runs with `--flops`. Later runs replace earlier ones."""
    found = {}
    for one in runs:
        for record in one.records:
            case, outcome = record.case, record.outcome
            is_plain = case.backend == EAGER and case.precision is Precision.DEFAULT
            if is_plain and isinstance(outcome, Measured) and outcome.flops is not None and case.batch_size is not None:
                found[case.model, case.mode, case.batch_size] = outcome.flops
    return found


def count_step(model: Model) -> Flops:
    """Count the FLOPs of a step of a model."""
    from torchzoo.measure.passes.flops import count_work

    return count_work(model.measured_step)


def document(specs: Iterable[ModelSpec], counted: Counted, *, sources: Sequence[str] = ()) -> str:
    """The whole document. `sources` are the runs of `counted`."""
    rows, problems = [], dict[str, list[str]]()
    for spec in specs:
        steps = {mode: _step(spec, mode, counted, count_step) for mode in spec.modes()}
        rows.append(_row(spec, steps.values()))
        for mode, step in steps.items():
            if step.problem:
                problems.setdefault(step.problem, []).append(escape(f"{spec.name} {mode}"))
    marked = [Text(Marked(f"Marked `*`: counted in {', '.join(map(code, sources))}."))] if sources else []
    blocks: list[Block] = [Text(Marked(EXPLANATION)), *marked, table(HEADINGS, rows)]
    if problems:
        items = (Marked(f"{problem}: {', '.join(names)}") for problem, names in problems.items())
        blocks += [Text("Not counted, or not in full:"), Items(tuple(items))]
    return render(blocks)


def row(
    spec: ModelSpec,
    counted: Counted,
    count: Callable[[Model], Flops] = count_step,
    smoke_flops: Mapping[Mode, int | None] = MappingProxyType({}),
) -> list[Marked]:
    """A model's cells of the table. `smoke_flops` are of steps with data at the smoke batch, where they are known."""
    return _row(spec, [_step(spec, mode, counted, count, smoke_flops.get(mode)) for mode in spec.modes()])


def known_cells(spec: ModelSpec) -> list[Marked]:
    """The cells from metadata alone."""
    source = link(spec.source, spec.paper)
    batches = _both(f"{spec.batch_size[mode]:,}" for mode in spec.modes())
    texts = (spec.name, spec.domain.value, spec.task, source, f"{spec.parameters:,}", batches)
    return [one if isinstance(one, Marked) else escape(one) for one in texts]


class _TableStep(NamedTuple):
    """The cells `inputs` and `gflop` of a step. `problem` says why a number is missing or too low."""

    inputs: str
    gflop: str
    problem: str = ""


def _row(spec: ModelSpec, steps: Iterable[_TableStep]) -> list[Marked]:
    columns = zip(*((step.inputs, step.gflop) for step in steps), strict=True)
    return [*known_cells(spec), *map(_both, columns)]


def _both(texts: Iterable[str]) -> Marked:
    return Marked("; ".join(dict.fromkeys(texts)))


def _step(
    spec: ModelSpec, mode: Mode, counted: Counted, count: Callable[[Model], Flops], smoke_flops: int | None = None
) -> _TableStep:
    """The shapes of the example inputs and the step's GFLOP, at the default batch size."""
    model_class, batch_size = load_model_class(spec), spec.batch_size[mode]
    from torchzoo.measure.without_data import true_answers

    inputs = ""
    try:
        model = model_class(mode, "meta", batch_size)
        inputs = _shapes(model.example_inputs)
        with true_answers(spec, mode, smoke_flops):
            return _TableStep(inputs, *_gflop(count(model)))
    except NEEDS_DATA:
        inputs = inputs or _shapes(model_class(mode, "cpu", batch_size).example_inputs)
    measured = counted.get((spec.name, mode, batch_size))
    if measured is None:
        return _TableStep(inputs, "-", NOT_COUNTED)
    cell, problem = _gflop(measured)
    return _TableStep(inputs, f"{cell}*", problem)


def _gflop(work: Flops) -> tuple[str, str]:
    gflop = f"{work.total / 1e9:,.4g}"
    if not work.without_formula:
        return gflop, ""
    return f"above {gflop}", f"no formula for {', '.join(sorted(work.without_formula))}"


def _shapes(inputs: Any) -> str:
    """The shapes, `float32 8x3x224x224`, with the names of named inputs. Equal shapes are counted."""
    from torch import Tensor
    from torch.utils._pytree import keystr, tree_flatten_with_path

    texts: dict[str, int] = {}
    for path, leaf in tree_flatten_with_path(inputs)[0]:
        if isinstance(leaf, Tensor):
            name = f"{keystr(path[:1])[2:-2]} " if isinstance(inputs, dict) else ""  # of ['input_ids']
            text = f"{name}{str(leaf.dtype).removeprefix('torch.')} {'x'.join(map(str, leaf.shape)) or 'scalar'}"
            texts[text] = texts.get(text, 0) + 1
    return escape(", ".join(text if count == 1 else f"{count} of {text}" for text, count in texts.items()))
