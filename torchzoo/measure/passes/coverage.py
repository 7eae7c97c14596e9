"""Count operators of a compiled step that ran in eager: in functions that Dynamo refused or left to Python."""

from __future__ import annotations

import contextlib
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from functools import partial
from typing import Any

import torch._dynamo
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function

from torchzoo.measure.passes import Fields, PassContext
from torchzoo.measure.variant import Variant
from torchzoo.record import EAGER_VARIANT, Coverage

#: Ranges of the profiler: a call of a module that the label compiles (or the whole step), of a compiled graph, and of
#: the broadcast of buffers by `DistributedDataParallel`.
_COMPILED_BY_LABEL, _GRAPH, _BROADCAST = "torchzoo: compiled by label", "torchzoo: graph", "torchzoo: broadcast"
#: Beginnings of the names of ranges that are no operators of a network: the backward pass, and communication.
_NOT_OF_NETWORK = ("autograd::engine::evaluate_function", "c10d::", "FSDP::")
#: Dynamo puts each compiled graph into the globals of the module whose function it compiled, with this prefix.
_GRAPH_NAME = "__compiled_fn_"
_OPERATOR = re.compile(r"(?!(torch::)?autograd::|profiler::)\w+::\w")


def measure(context: PassContext) -> Fields:
    """Count the operators that the candidate left to eager."""
    ranks, candidate = context.ranks, context.variant
    modules = ranks.own.variants[candidate.name].modules
    return {"coverage": measure_coverage(ranks.variant(EAGER_VARIANT), candidate, modules)}


def measure_coverage(eager: Variant, candidate: Variant, modules: Collection[nn.Module]) -> Coverage | None:
    """Count the operators of one step of each variant: eager's, and the candidate's outside of compiled graphs.

    Operators count in the forward pass of `modules`, or without modules in the whole step but for its backward pass. A
    view is an operator, and an operator inside another one does not count. Communication between ranks does not count:
    no compiler takes part in it. The profiler sees operators, which changes nothing that Dynamo guards.

    Args:
        eager: the baseline.
        candidate: the step compiled by a backend behind Dynamo.
        modules: the modules that the label compiles; empty: the whole step.

    Returns:
        None where no graph can be found, so that nothing is known.
    """
    graphs = list(_graphs())
    if not graphs:
        return None
    counts = []
    for variant, marked in ((eager, []), (candidate, graphs)):
        variant.select()
        with _graphs_marked(marked), _modules_marked(modules):
            step = variant.step if modules else partial(_marked_call, _COMPILED_BY_LABEL, variant.step)
            step()  # Dynamo may compile again where it meets a marked module inside another network
            with profile(activities=[ProfilerActivity.CPU]) as profiler:
                step()
        counts.append(_count(profiler))
    operators, in_eager = counts
    return Coverage(operators=operators, in_eager=in_eager)


def _graphs() -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the namespace and the name of each graph that Dynamo has installed."""
    namespaces = {
        id(vars(module)): vars(module) for module in list(sys.modules.values()) if hasattr(module, "__dict__")
    }
    for namespace in namespaces.values():
        yield from ((namespace, name) for name in list(namespace) if name.startswith(_GRAPH_NAME))


@contextlib.contextmanager
def _graphs_marked(graphs: Collection[tuple[dict[str, Any], str]]) -> Iterator[None]:
    before = [namespace[name] for namespace, name in graphs]
    for (namespace, name), graph in zip(graphs, before, strict=True):
        namespace[name] = torch.compiler.disable(partial(_marked_call, _GRAPH, graph))  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for (namespace, name), graph in zip(graphs, before, strict=True):
            namespace[name] = graph


@contextlib.contextmanager
def _modules_marked(modules: Collection[nn.Module]) -> Iterator[None]:
    before = {module: vars(module).get("_compiled_call_impl") for module in modules}
    with_buffers = [module for module in modules if isinstance(module, DistributedDataParallel)]
    for module, compiled in before.items():
        vars(module)["_compiled_call_impl"] = partial(_marked_call, _COMPILED_BY_LABEL, compiled or module._call_impl)
    for module in with_buffers:
        marked = partial(_marked_call, _BROADCAST, module._sync_buffers)
        vars(module)["_sync_buffers"] = torch.compiler.disable(marked)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for module in with_buffers:
            vars(module).pop("_sync_buffers")
        for module, compiled in before.items():
            vars(module).pop("_compiled_call_impl")
            if compiled is not None:
                vars(module)["_compiled_call_impl"] = compiled


def _marked_call(mark: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    with record_function(mark):
        return function(*args, **kwargs)


def _count(profiler: profile) -> int:
    """Count the operators directly inside of what the label compiles: in no graph, operator or other range."""
    kineto = profiler.profiler
    assert kineto is not None
    assert kineto.kineto_results is not None
    by_thread: defaultdict[int, list[tuple[int, int, str]]] = defaultdict(list)
    for event in kineto.kineto_results.events():
        name = event.name()
        if _is_range(name) or _OPERATOR.match(name):
            by_thread[event.start_thread_id()].append((event.start_ns(), -event.duration_ns(), name))
    return sum(_count_nested(sorted(events)) for events in by_thread.values())


def _count_nested(events: list[tuple[int, int, str]]) -> int:
    found, around = 0, list[tuple[int, str]]()
    for begin_ns, minus_ns, name in events:
        while around and around[-1][0] <= begin_ns:
            around.pop()
        if not _is_range(name) and around and all(outer == _COMPILED_BY_LABEL for _, outer in around):
            found += 1
        around.append((begin_ns - minus_ns, name))
    return found


def _is_range(name: str) -> bool:
    return name in (_COMPILED_BY_LABEL, _GRAPH, _BROADCAST) or name.startswith(_NOT_OF_NETWORK)
