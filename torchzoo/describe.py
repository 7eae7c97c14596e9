"""The zoo's models as a Markdown table: metadata, and what building a model tells, its inputs' shapes and its FLOPs.

Models are built and stepped on the meta device, where tensors have shapes and no data. Steps whose work depends on data
are run for real on the CPU, if that takes little time and memory.
"""

from __future__ import annotations

import contextlib
import gc
import resource
import signal
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import psutil

from torchzoo.catalog import load_model_class
from torchzoo.record import Flops
from torchzoo.spec import Mode, ModelSpec

HEADINGS = ("model", "domain", "task", "source", "parameters", "batch", "inputs", "GFLOP per step")

#: What the meta device raises where a value is asked for.
_NEEDS_DATA = (RuntimeError, NotImplementedError, AttributeError)

#: What a real step on the CPU may take: seconds of all cores together, which other work on the machine does not change.
LONGEST_CPU_S, MOST_GIB = 30, 6

EXPLANATION = f"""# The models

Written by `torchzoo describe all --write docs/models.md`. Batches are the default ones, inputs those of the main
network at these batches; FLOPs are of matrix products, convolutions, attentions and recurrent layers in one step (in
training with its backward passes), a multiply-add counted as two. They are counted on the meta device; where a step's
work depends on data, in a real step on the CPU, with random weights, if that takes less than {LONGEST_CPU_S} s of CPU
time and {MOST_GIB} GiB. `-` stands for those that could not be counted, for the reasons below the table. Where train
and eval differ, they are given in this order.
"""


class _Facts(NamedTuple):
    """`inputs` and `gflop` are cells; `problem` says why a number is missing or too low."""

    inputs: str
    gflop: str
    problem: str = ""


def describe(specs: Iterable[ModelSpec]) -> str:
    """The whole document."""
    lines = [EXPLANATION, "| " + " | ".join(HEADINGS) + " |", "|" + " --- |" * len(HEADINGS)]
    problems: dict[str, list[str]] = {}
    for spec in specs:
        facts = {mode: _facts(spec, mode) for mode in spec.modes()}
        lines.append(_row(spec, facts))
        for mode, one in facts.items():
            if one.problem:
                problems.setdefault(one.problem, []).append(f"{spec.name} {mode}")
    if problems:
        lines += ["", "Not counted, or not in full:", ""]
        lines += [f"- {problem}: {', '.join(steps)}" for problem, steps in problems.items()]
    return "\n".join(lines) + "\n"


def row(spec: ModelSpec) -> str:
    """One model's line of the table."""
    return _row(spec, {mode: _facts(spec, mode) for mode in spec.modes()})


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


def _facts(spec: ModelSpec, mode: Mode) -> _Facts:
    """Shapes of the example inputs and the step's GFLOP at the default batch."""
    model_class = load_model_class(spec)
    inputs = ""
    try:
        model = model_class(mode, "meta", spec.batch_size[mode])
        inputs = _shapes(model.example_inputs)
        work = _work(model, mode)
    except _NEEDS_DATA:
        return _facts_on_cpu(spec, mode, inputs)
    return _Facts(inputs, *_gflop(work))


def _facts_on_cpu(spec: ModelSpec, mode: Mode, inputs: str) -> _Facts:
    """The same from a real step. Only steps declared to depend on data are run: others lack the meta device alone."""
    if mode not in spec.syncs:
        model = load_model_class(spec)(mode, "cpu", spec.batch_size[mode])
        return _Facts(_shapes(model.example_inputs), "-", "something in the step does not run on the meta device")
    too_large = spec.large is not None or spec.device_memory_gib.get(mode, 0) > MOST_GIB
    if too_large and inputs:
        return _Facts(inputs, "-", "depends on data, and too large for a step on the CPU")
    try:
        with _limited_memory():
            model = load_model_class(spec)(mode, "cpu", spec.batch_size[mode])
            inputs = _shapes(model.example_inputs)
            if too_large:
                return _Facts(inputs, "-", "depends on data, and too large for a step on the CPU")
            with _limited_time():
                work = _work(model, mode)
    except TimeoutError:
        return _Facts(
            inputs, "-", f"depends on data, and a step on the CPU takes more than {LONGEST_CPU_S} s of CPU time"
        )
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error):
            raise
        return _Facts(inputs, "-", f"depends on data, and a step on the CPU takes more than {MOST_GIB} GiB")
    return _Facts(inputs, *_gflop(work))


def _work(model: Any, mode: Mode) -> Flops:
    from torchzoo.measure.flops import count_work

    return count_work(model.train_step if mode is Mode.TRAIN else model.eval_step)


def _gflop(work: Flops) -> tuple[str, str]:
    """The cell, and what is wrong with it."""
    gflop = f"{work.total / 1e9:,.4g}"
    if not work.without_formula:
        return gflop, ""
    return f"above {gflop}", f"no formula for {', '.join(sorted(work.without_formula))}"


@contextlib.contextmanager
def _limited_time() -> Iterator[None]:
    """Raises `TimeoutError` between two operators, once the time is over."""

    def stop(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, LONGEST_CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """Allocations beyond what is in use now and `MOST_GIB` fail."""
    gc.collect()
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (psutil.Process().memory_info().data + MOST_GIB * 2**30, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


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
