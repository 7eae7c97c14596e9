"""The zoo's models as a Markdown table: metadata, and what building a model tells, its inputs' shapes and its FLOPs.

Models are built and stepped on the meta device, where tensors have shapes and no data.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchzoo.catalog import load_model_class
from torchzoo.spec import Mode, ModelSpec

HEADINGS = ("model", "domain", "task", "source", "parameters", "batch", "inputs", "GFLOP per step")

#: What the meta device raises where a value is asked for.
_NEEDS_DATA = (RuntimeError, NotImplementedError, AttributeError)

EXPLANATION = """# The models

Written by `torchzoo describe all --write docs/models.md`. Batches are the default ones, inputs those of the main
network at these batches; FLOPs are of matrix products, convolutions and attentions in one step (in training with its
backward passes), a multiply-add counted as two; `-` stands for a step whose work depends on data. Where train
and eval differ, they are given in this order.
"""


def describe(specs: Iterable[ModelSpec]) -> str:
    """The whole document."""
    lines = [EXPLANATION, "| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    lines += [row(spec) for spec in specs]
    return "\n".join(lines) + "\n"


def row(spec: ModelSpec) -> str:
    """One model's line of the table."""
    facts = [_facts(spec, mode) for mode in spec.modes()]
    built = [_both(inputs for inputs, _ in facts), _both(flops for _, flops in facts)]
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


def _facts(spec: ModelSpec, mode: Mode) -> tuple[str, str]:
    """Shapes of the example inputs and the step's GFLOP at the default batch; `-` where only data could tell."""
    from torchzoo.measure.flops import step_flops

    model_class = load_model_class(spec)
    try:
        model = model_class(mode, "meta", spec.batch_size[mode])
    except _NEEDS_DATA:
        return _shapes(model_class(mode, "cpu", spec.batch_size[mode]).example_inputs), "-"
    inputs = _shapes(model.example_inputs)
    try:
        flops = step_flops(model.train_step if mode is Mode.TRAIN else model.eval_step)
    except _NEEDS_DATA:
        return inputs, "-"
    return inputs, f"{flops / 1e9:,.4g}"


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
