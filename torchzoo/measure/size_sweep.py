"""Give one compiled network one size of input after another, and compare it with networks compiled for each size alone.

The sweep runs in a process of its own (`torchzoo.run.fresh`), in which Dynamo has seen no other size.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch._dynamo
from torch import Tensor, nn
from torch._dynamo.decorators import mark_unbacked
from torch.utils._pytree import tree_leaves, tree_map

from torchzoo import stats
from torchzoo.backends import NotRunnable
from torchzoo.errors import attempt, one_line
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.compilation import CompilationWatch, caches_in, watch_compilation
from torchzoo.measure.fresh_turns import Fresh, SizeResult, SizeSweep
from torchzoo.measure.host import HostGate
from torchzoo.measure.latency import measure_latency, quiet_python, steps_in, timed_step_s
from torchzoo.measure.passes.breakdown import measure_breakdown
from torchzoo.measure.precision import apply_memory_format, apply_precision, inspect_step
from torchzoo.measure.process_group import use_device
from torchzoo.measure.variant import Variant
from torchzoo.model import Model
from torchzoo.model.tasks import LanguageModel
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, REFUSED, Breakdown
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.catalog import load_model_class

# A model with batches of several sizes: numbers of samples, or lengths.


class Sized:
    """A model and its batches of several sizes, one of which `use` selects.

    Args:
        model: the model whose networks are compiled.
        batches: by size, the model's own size first.
        is_batch_size: whether a size is that of the batch; otherwise it is a length.
        problems: by size, why there is no batch.
    """

    def __init__(
        self, model: Model, batches: dict[int, Any], *, is_batch_size: bool, problems: dict[int, str] | None = None
    ) -> None:
        self.model, self.batches, self.is_batch_size = model, batches, is_batch_size
        self.problems = problems or {}

    def use(self, size: int) -> None:
        self.model.batch = self.batches[size]
        if self.is_batch_size:
            self.model.batch_size = size


def batches_of(model: Model, build: Callable[[int], Model]) -> Sized:
    """Return the batches B, 2 B, B + 1, B / 2 and 1, each made by a model that is built for it."""
    own = model.batch_size
    batches, problems = {own: model.batch}, {}
    for size in dict.fromkeys((2 * own, own + 1, own // 2, 1)):
        if size not in (0, own):
            made = attempt(lambda size=size: build(size).batch)  # type: ignore[misc]
            if isinstance(made, Exception):
                problems[size] = in_a_line(made)
            else:
                batches[size] = made
    return Sized(model, batches, is_batch_size=True, problems=problems)


def lengths_of(model: Model) -> Sized:
    """Return the lengths T, T / 2, 3 T / 4 and T / 2 - 1, cut from the batch. Longer inputs may have no positions.

    Raises:
        NotRunnable: the model is no language model, so that a length is not defined.
    """
    if not isinstance(model, LanguageModel):
        raise NotRunnable("it is no `torchzoo.model.tasks.LanguageModel`, so that it is not known what a length is")
    own = model.length
    sizes = [size for size in (own // 2, 3 * own // 4, own // 2 - 1) if size > 1]
    batches = {own: model.batch} | {size: _cut(model.batch, own, size) for size in dict.fromkeys(sizes)}
    return Sized(model, batches, is_batch_size=False)


def _cut(batch: Any, length: int, size: int) -> Any:
    """Return the first `size` positions of all tensors (B, T, ...), with the strides of tensors of this size."""

    def cut(leaf: Any) -> Any:
        is_sequence = isinstance(leaf, Tensor) and leaf.ndim > 1 and leaf.shape[1] == length
        if not is_sequence:
            return leaf
        return leaf[:, :size].clone(memory_format=torch.contiguous_format)  # `contiguous` keeps the strides of one row

    return tree_map(cut, batch)


def in_a_line(error: Exception) -> str:
    """Return the name of an error and the beginning of its message."""
    return f"{type(error).__name__}: {one_line(error)[:300]}"


#: How compiled code is prepared for other sizes: the argument `dynamic` of torch.compile, and the mark of dimensions.
POLICIES: dict[str, tuple[bool | None, Callable[[Tensor, int], None] | None]] = {
    "static": (False, None),
    "automatic": (None, None),
    "mark_dynamic": (None, torch._dynamo.mark_dynamic),
    "mark_unbacked": (None, mark_unbacked),
}

#: Steps after which compilation for a size counts as complete. Training may compile again in its second step.
SETTLING_STEPS = 3

#: Compilations for one size alone must not be refused because the sweep has compiled the same function before.
_NO_LIMIT = {"recompile_limit": 10_000, "accumulated_recompile_limit": 10_000}

#: The dimensions that differ between sizes, by network and by the index of a tensor among the leaves of its inputs.
Dims = dict[str, dict[int, tuple[int, ...]]]


def sweep(fresh: Fresh) -> SizeSweep:
    """Compile the networks once, take steps at each size in turn, then time each size against code for it alone.

    Options: `policy` (a key of `POLICIES`) and `axis` (`batch` or `length`).

    Raises:
        NotRunnable: the inputs of the networks do not change with the size.
    """
    ask = fresh.ask
    fresh.tell(Stage.IMPORT)
    model_class = load_model_class(ask.spec)
    fresh.tell(Stage.BUILD)
    device = use_device(ask.device, ask.settings.threads)

    def build(batch_size: int) -> Model:
        model = model_class(ask.case.mode, device, batch_size, seed=ask.case.seed)
        apply_precision(model, ask.case.precision)
        apply_memory_format(model, ask.case.memory_format)
        return model

    assert ask.case.batch_size is not None
    model = build(ask.case.batch_size)
    sized = batches_of(model, build) if ask.options["axis"] == "batch" else lengths_of(model)
    fresh.tell(Stage.WARM_UP)
    shared = Path(ask.folder) / "alone"
    return sweep_sizes(sized, ask.options["policy"], DeviceClock(device), ask.settings, fresh.tell, shared=shared)


# --- the sweep ---


def sweep_sizes(
    sized: Sized,
    policy: str,
    clock: DeviceClock,
    settings: Settings,
    tell: Callable[[Stage], None],
    backend: str = "inductor",
    shared: Path | None = None,
) -> SizeSweep:
    """See `sweep`. Code for one size alone is cached in the folder `shared`, for the processes of other policies."""
    dims = _try_in_eager(sized)
    dynamic, mark = POLICIES[policy]
    tell(Stage.COMPILE)
    watch = watch_compilation()
    candidate = _Compiled(sized.model, policy, backend, dynamic=dynamic, mark=mark, dims=dims)
    met = []
    for size in (*sized.batches, *(size for size in sized.problems if size not in sized.batches)):
        problem = sized.problems.get(size)
        met.append(SizeResult(size=size, problem=problem) if problem else _met(sized, size, candidate, watch, clock))
    tell(Stage.MEASURE)
    alone = {one.size: _Compiled(sized.model, f"alone {one.size}", backend, dynamic=False) for one in met}
    timed = [
        one if one.problem else _beside_its_own(sized, one, alone[one.size], candidate, watch, clock, settings, shared)
        for one in met
    ]
    tell(Stage.EXAMINE)  # after the last timing: launches may take longer once a profiler was active
    timed = [_profiled(sized, one, alone[one.size], candidate, clock) if one.blocks else one for one in timed]
    marked = sum(len(numbers) for of_network in dims.values() for numbers in of_network.values())
    return SizeSweep(sizes=tuple(timed), marked_dims=marked if mark is not None else 0)


def _try_in_eager(sized: Sized) -> Dims:
    """Return the dimensions in which inputs of the networks differ. A size that fails in eager becomes a problem."""
    model = sized.model
    shapes: dict[str, list[list[tuple[int, ...] | None]]] = {}
    for size in sized.batches:
        sized.use(size)
        found = attempt(lambda: inspect_step(model, model.measured_step))
        if isinstance(found, Exception):
            sized.problems[size] = f"in eager too: {in_a_line(found)}"
            continue
        for name, call in found.take_calls().items():
            leaves = tree_leaves((call.args, call.kwargs))
            shapes.setdefault(name, []).append([tuple(x.shape) if isinstance(x, Tensor) else None for x in leaves])
    dims = {name: dict(_differences(of_network)) for name, of_network in shapes.items()}
    if not any(dims.values()):
        raise NotRunnable("the inputs of its networks do not change with this size")
    return dims


def _differences(of_sizes: Sequence[Sequence[tuple[int, ...] | None]]) -> Iterator[tuple[int, tuple[int, ...]]]:
    for place, shapes in enumerate(zip(*of_sizes, strict=False)):
        if all(shape is not None and len(shape) == len(shapes[0] or ()) for shape in shapes):
            lengths = zip(*(shape for shape in shapes if shape is not None), strict=True)
            differing = tuple(number for number, lengths_of_one in enumerate(lengths) if len(set(lengths_of_one)) > 1)
            if differing:
                yield place, differing


def _met(sized: Sized, size: int, candidate: _Compiled, watch: CompilationWatch, clock: DeviceClock) -> SizeResult:
    """Take the first steps at a size. A refusal by Dynamo or its backend becomes the problem of the result."""
    sized.use(size)
    with candidate.selected(), candidate.marking():
        failed, result = _settled(sized, SizeResult(size=size), watch, clock)
    refused = [one.reason for one in result.recompilations if one.reason.startswith(REFUSED)]
    problem = in_a_line(failed) if isinstance(failed, Exception) else next(iter(refused), "")
    return msgspec.structs.replace(result, problem=problem)


def _settled(
    sized: Sized, met: SizeResult, watch: CompilationWatch, clock: DeviceClock
) -> tuple[float | Exception, SizeResult]:
    """Return the time of the last of the first steps, or their exception, and the result with what they compiled."""
    before = watch.counts(None)
    found = attempt(lambda: _last_step_s(sized, clock))
    after = watch.counts(None)
    return found, msgspec.structs.replace(
        met,
        graphs=met.graphs + after.graphs - before.graphs,
        recompilations=(*met.recompilations, *after.recompilations[len(before.recompilations) :]),
        compile_s=met.compile_s + (after.compile_s or 0.0) - (before.compile_s or 0.0),
    )


def _last_step_s(sized: Sized, clock: DeviceClock) -> float:
    return [timed_step_s(sized.model.measured_step, clock) for _ in range(SETTLING_STEPS)][-1]


def _beside_its_own(
    sized: Sized,
    met: SizeResult,
    alone: _Compiled,
    candidate: _Compiled,
    watch: CompilationWatch,
    clock: DeviceClock,
    settings: Settings,
    shared: Path | None,
) -> SizeResult:
    """Time the network that has met all sizes in turns with a network that was compiled for this size alone.

    Compilations of the former when it meets this size again are counted, compilations of the latter are not.
    """
    sized.use(met.size)
    step = sized.model.measured_step
    variants = [
        Variant(name=EAGER_VARIANT, step=step, select=alone.select),
        Variant(name=CANDIDATE_VARIANT, step=step, select=candidate.select),
    ]

    def time_both() -> SizeResult:
        with caches_in(shared), alone.selected():
            alone_s = _last_step_s(sized, clock)
        with candidate.selected():
            candidate_s, result = _settled(sized, met, watch, clock)
        if isinstance(candidate_s, Exception):
            raise candidate_s
        steps = {
            EAGER_VARIANT: steps_in(settings.block_s, alone_s),
            CANDIDATE_VARIANT: steps_in(settings.block_s, candidate_s),
        }
        graphs = watch.graphs()
        with quiet_python():
            latency = measure_latency(variants, clock, HostGate(None, clock.now_ns), settings, steps_per_block=steps)
        if watch.graphs() != graphs:
            return msgspec.structs.replace(result, problem="it was compiled again while it was timed")
        return msgspec.structs.replace(result, blocks=latency.blocks)

    with torch._dynamo.config.patch(_NO_LIMIT):
        found = attempt(time_both)
    return msgspec.structs.replace(met, problem=in_a_line(found)) if isinstance(found, Exception) else found


def _profiled(
    sized: Sized, timed: SizeResult, alone: _Compiled, candidate: _Compiled, clock: DeviceClock
) -> SizeResult:
    """Profile both networks at a size that was timed: whether host or device takes longer, and which kernels run.

    Where profiling fails, the breakdown has the reason, and the times remain.
    """
    sized.use(timed.size)
    step, device = sized.model.measured_step, sized.model.device
    breakdowns = {}
    with quiet_python(), torch._dynamo.config.patch(_NO_LIMIT):
        for variant, network in ((EAGER_VARIANT, alone), (CANDIDATE_VARIANT, candidate)):
            step_s = stats.latency_s(timed.blocks, variant).value
            with network.selected():
                found = attempt(functools.partial(measure_breakdown, step, clock, device, step_s=step_s, trace=None))
            if isinstance(found, Exception):
                found = Breakdown(steps=(), kernels=(), problem=in_a_line(found))
            breakdowns[variant] = found
    return msgspec.structs.replace(timed, breakdowns=breakdowns)


# --- compiled networks ---


@dataclass
class _Marks:
    are_on: bool = False


class _Compiled:
    """All networks of a model, compiled in one way. Two instances share no compiled code.

    Args:
        model: the model that has the networks.
        name: a name for this way, unique in this process.
        backend: of torch.compile.
        dynamic: of torch.compile.
        mark: marks a dimension of a tensor; None: nothing is marked.
        dims: the dimensions to mark.
    """

    def __init__(
        self,
        model: Model,
        name: str,
        backend: str,
        *,
        dynamic: bool | None,
        mark: Callable[[Tensor, int], None] | None = None,
        dims: Dims | None = None,
    ) -> None:
        self.backend = backend
        self._marks = _Marks()
        self._networks = list(model.networks().values())
        self._calls: dict[nn.Module, Callable[..., Any]] = {}
        for network_name, network in model.networks().items():
            function = _own_code(network, f"{network_name} {name}")
            compiled = torch.compile(function, backend=backend, dynamic=dynamic)
            if mark is not None:
                compiled = _marked(compiled, mark, (dims or {}).get(network_name, {}), self._marks)
            self._calls[network] = compiled

    def select(self) -> None:
        for network in self._networks:
            network._compiled_call_impl = self._calls[network]

    @contextmanager
    def selected(self) -> Iterator[None]:
        """Run the networks this way inside the context, and in eager after it."""
        self.select()
        try:
            yield
        finally:
            for network in self._networks:
                network._compiled_call_impl = None

    @contextmanager
    def marking(self) -> Iterator[None]:
        """Mark inputs inside the context, for the compiler. Timed steps have no marks, since marking takes time."""
        self._marks.are_on = True
        try:
            yield
        finally:
            self._marks.are_on = False


def _own_code(network: nn.Module, name: str) -> Callable[..., Any]:
    """Return a function that calls the network and has its own code object, by which Dynamo keeps compiled code."""
    call: Callable[..., Any] = network._call_impl

    def from_outside(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    code = from_outside.__code__.replace(co_name=f"call of {name}")
    return types.FunctionType(code, globals(), closure=from_outside.__closure__)


def _marked(
    compiled: Callable[..., Any], mark: Callable[[Tensor, int], None], dims: dict[int, tuple[int, ...]], marks: _Marks
) -> Callable[..., Any]:
    @functools.wraps(compiled)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not marks.are_on:
            return compiled(*args, **kwargs)
        leaves = tree_leaves((args, kwargs))
        with ExitStack() as stack:
            for place, numbers in dims.items():
                leaf = leaves[place] if place < len(leaves) else None
                if isinstance(leaf, Tensor) and leaf.ndim > max(numbers):  # a later call may have other inputs
                    stack.enter_context(_attributes_put_back(leaf))
                    for number in numbers:
                        mark(leaf, number)
            return compiled(*args, **kwargs)

    return call


@contextmanager
def _attributes_put_back(tensor: Tensor) -> Iterator[None]:
    """Restore a tensor's attributes, which hold its marks. Code for one size alone gets the same tensors as inputs."""
    before = dict(vars(tensor))
    try:
        yield
    finally:
        vars(tensor).clear()
        vars(tensor).update(before)
