"""The check: results of a case's backend and precision against eager's, with an fp64 reference to judge by.

Models are built anew from the case's seed, one at a time, and step once (three times where a backend runs only from
the third step on what is timed). What is checked differs from what is timed in this: nothing is dropped out
(`randomness.without_dropout`), generators are seeded before the step, inductor draws the random numbers that eager
draws (`fallback_random`), and the fp64 reference is given those numbers. Kernels are the ones that are timed:
deterministic algorithms are not asked for, so eager runs twice, and what it can't agree on with itself is not judged.

What is compared: in evaluation the outputs; in training the loss, the gradients that the step leaves in `.grad` (if
any), what it added to the parameters, and the buffers. `comparing` has the tolerances and the rules.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
import torch._dynamo
import torch._inductor.config
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._pytree import tree_leaves, tree_map

from torchzoo.case import EAGER, Backend, Case, Mode, NativeDtype, Precision
from torchzoo.errors import attempt
from torchzoo.measure.check.comparing import (
    ROUNDING,
    CanNotCompare,
    Reference,
    Results,
    collect_outputs,
    compare,
    l2_norm,
    on_host,
    tolerance_of,
)
from torchzoo.measure.check.randomness import RecordDraws, ReplayDraws, seed_everything, without_dropout
from torchzoo.measure.compilation import CompilationWatch, count_compiled
from torchzoo.measure.precision import Inspection, apply_memory_format, apply_precision, inspect_step
from torchzoo.measure.variant import candidate_variant
from torchzoo.model import Model
from torchzoo.record import Check, CheckStatus, Comparison, ResultKind
from torchzoo.zoo.spec import ModelSpec

#: Of eager with its weights changed as by rounding, where the first comparison finds something wrong.
SENSITIVITY_RUNS = 3

#: Steps of every run for backends that record CUDA graphs (a warm-up, the recording, a replay) or a profile.
STEADY_STEPS = 3


def check_case(case: Case, spec: ModelSpec, model_class: type[Model], device: torch.device) -> Check:
    """Whether the case computes what eager computes, as far as its precision allows.

    What the case itself raises is not caught: it is a failure of the case.
    """
    with _settings_kept(), torch._inductor.config.patch(fallback_random=True):
        try:
            runs = _Runs(case, spec, model_class, device)
            found = _check(case, spec, runs)
            is_open = found.status in (CheckStatus.REFERENCE_FAILED, CheckStatus.NONDETERMINISTIC)
            is_tf32 = runs.arithmetic is Precision.TF32 and case.backend != EAGER
            is_blurred = is_open and bool(found.comparisons) and is_tf32
            return _judged_without_tf32(case, spec, runs, found) if is_blurred else found
        except CanNotCompare as reason:
            return Check(status=CheckStatus.REFERENCE_FAILED, reason=f"the results can't be compared: {reason}")
        finally:
            torch._dynamo.reset()


def _judged_without_tf32(case: Case, spec: ModelSpec, runs: _Runs, found: Check) -> Check:
    """The verdict on the same program with fp32's rounding, where TF32's alone turns the results round.

    Gradients of a randomly initialised network with batch normalisation are so; there, sums that a GPU takes in another
    order each time can also make two runs of eager differ by more than is allowed. TF32 changes how products are
    rounded and nothing else, so a backend that is right at fp32 and makes no more of TF32 than eager is a right one.
    Autocast and casts change the program: what can't be judged there stays so.
    """
    at_fp32 = msgspec.structs.replace(case, precision=Precision.FP32)
    finer = _check(at_fp32, spec, dataclasses.replace(runs, case=at_fp32))
    if finer.status not in (CheckStatus.CORRECT, CheckStatus.INCORRECT):
        return found
    reason = "; ".join(filter(None, [f"judged at fp32, since at TF32 {found.reason}", finer.reason]))
    return msgspec.structs.replace(finer, reason=reason, judged_at=Precision.FP32)


def _check(case: Case, spec: ModelSpec, runs: _Runs) -> Check:
    torch._dynamo.reset()
    draws = RecordDraws()
    eager = runs.eager(draws)
    again, inspection = runs.inspected()
    reference, why = _reference(runs, draws)
    itself = Reference(dataclasses.replace(eager, weights=reference.weights if reference else {}))
    repeated = _Judge(case, spec, runs.arithmetic, itself)(again)
    if any(comparison.is_close is not True for comparison in repeated):
        return Check(status=CheckStatus.NONDETERMINISTIC, reason=_nondeterministic(repeated), comparisons=repeated)

    del again
    judge = _Judge(case, spec, runs.arithmetic, Reference(reference) if reference else itself)
    if case.backend == EAGER:
        found, equal_to = eager, None
        native = runs.native(draws) if runs.is_cast else None
        beside = native
        if reference is None and native is not None:
            judge = _Judge(case, spec, runs.arithmetic, Reference(native))
    else:
        found = runs.candidate(inspection)
        equal_to = eager
        beside = eager if reference else None
    comparisons = judge(found, beside=beside, eager=equal_to)
    if any(comparison.is_close is False for comparison in comparisons):
        shaken = [runs.shaken(draws, seed) for seed in range(SENSITIVITY_RUNS)]
        comparisons = judge(found, beside=beside, eager=equal_to, sensitivity=shaken)
    if reference is None:
        return _without_reference(case, why, comparisons, is_judged=case.backend != EAGER or runs.is_cast)
    return _verdict(case, comparisons, is_native_eager=case.backend == EAGER and not runs.is_cast)


def _reference(runs: _Runs, draws: RecordDraws) -> tuple[Results | None, str]:
    """The fp64 results; or None and why there are none."""
    reference = attempt(lambda: runs.reference(draws))  # a model may raise anything in a dtype it was not written for
    _free_memory(runs.device)
    if isinstance(reference, CanNotCompare):
        raise reference
    if isinstance(reference, Exception):
        text = " ".join(str(reference).split())
        text = text if len(text) <= 250 else f"{text[:100]} ... {text[-150:]}"  # TorchScript's says what at its end
        return None, f"in fp64 it raises {type(reference).__name__}: {text}"
    leaves = tree_leaves(list(reference.values.values()))
    floating = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    if any(math.isnan(l2_norm(leaf)) for leaf in floating):
        return None, "in fp64 it gives NaN"
    return reference, ""


def _verdict(case: Case, comparisons: tuple[Comparison, ...], *, is_native_eager: bool) -> Check:
    """Eager at its own precision is what others are judged by: where it is not what fp64 gives, nothing can be said."""
    wrong = [c for c in comparisons if c.is_close is False]
    if wrong:
        reason = "; ".join(map(_say_wrong, wrong))
        if is_native_eager:
            reason = f"eager and the fp64 reference differ by more than rounding: {reason}"
            return Check(status=CheckStatus.REFERENCE_FAILED, reason=reason, comparisons=comparisons)
        return Check(status=CheckStatus.INCORRECT, reason=reason, comparisons=comparisons)
    not_judged = [c for c in comparisons if c.is_close is None]
    if not not_judged:
        return Check(status=CheckStatus.CORRECT, comparisons=comparisons)
    kinds = {c.what for c in comparisons}
    essential = kinds
    if case.mode is Mode.TRAIN:
        essential = {ResultKind.LOSS, ResultKind.GRADIENTS if ResultKind.GRADIENTS in kinds else ResultKind.PARAMETERS}
    reason = "nothing to judge by: " + "; ".join(map(_say_not_judged, not_judged))
    is_judged = not essential & {c.what for c in not_judged}
    status = CheckStatus.CORRECT if is_judged else CheckStatus.REFERENCE_FAILED
    return Check(status=status, reason=reason, comparisons=comparisons)


def _without_reference(case: Case, why: str, comparisons: tuple[Comparison, ...], *, is_judged: bool) -> Check:
    """Beside eager alone a backend may be called wrong, but nothing is called correct."""
    wrong = [c for c in comparisons if c.is_close is False]
    beside = "eager" if case.backend != EAGER else "its native precision"
    if case.backend != EAGER and wrong:
        reason = f"against eager, without a reference ({why}): " + "; ".join(map(_say_wrong, wrong))
        return Check(status=CheckStatus.INCORRECT, reason=reason, comparisons=comparisons)
    said = f"it agrees with {beside}" if is_judged else "eager agrees with itself"
    if wrong:
        said = f"beside {beside}: " + "; ".join(map(_say_wrong, wrong))
    elif not_judged := [c for c in comparisons if c.is_close is None]:
        said = f"nothing to judge by beside {beside}: " + "; ".join(map(_say_not_judged, not_judged))
    return Check(status=CheckStatus.REFERENCE_FAILED, reason=f"{why}; {said}", comparisons=comparisons)


def _say_wrong(c: Comparison) -> str:
    error = "not finite where it should be, missing or of another shape" if c.error is None else f"off by {c.error:.2g}"
    limits = [f"eager by {c.eager_error:.2g}"] if c.eager_error is not None else []
    limits += [f"allowed {c.allowed:.2g}"] if c.allowed is not None else []
    return f"{c.what}: {c.worst} is {error}" + (f" ({', '.join(limits)})" if limits else "")


def _say_not_judged(c: Comparison) -> str:
    return (
        f"{c.what}: for {c.tensors_not_judged} of {c.tensors} tensors, {c.worst} for one, rounding alone would allow "
        + ("anything" if c.allowed is None else f"an error of {c.allowed:.2g}")
    )


def _nondeterministic(comparisons: tuple[Comparison, ...]) -> str:
    worst = next(c for c in comparisons if c.is_close is not True)
    difference = "" if worst.error is None else f" by {worst.error:.2g} (allowed {worst.tolerance:.2g})"
    return f"two runs of eager from the same seed differ in {worst.what}, most in {worst.worst},{difference}"


class _Judge:
    """Compares all kinds of results with one reference, by the tolerances of one case."""

    def __init__(self, case: Case, spec: ModelSpec, arithmetic: Precision, yardstick: Reference) -> None:
        self._case, self._rules = case, spec.tolerances
        self._arithmetic, self._yardstick = arithmetic, yardstick

    def __call__(self, found: Results, **others: Any) -> tuple[Comparison, ...]:
        """An update is not known better than its gradient: it may be twice as far off (see `Reference`)."""
        comparisons: list[Comparison] = []
        twice_gradients: dict[str, float] = {}
        for kind in self._yardstick.reference.values:
            at_least = twice_gradients if kind is ResultKind.PARAMETERS else {}
            tolerance = self._tolerance(kind)
            judged = compare(kind, self._yardstick, found, tolerance=tolerance, at_least=at_least, **others)
            if kind is ResultKind.GRADIENTS:
                twice_gradients = {name: 2 * allowed for name, allowed in judged.allowed.items()}
            comparisons.append(judged.comparison)
        return tuple(comparisons)

    def _tolerance(self, kind: ResultKind) -> float:
        own = [r.tolerance for r in self._rules if r.matches(self._case) and (not r.what or kind in r.what)]
        return own[0] if own else tolerance_of(kind, self._arithmetic)


@dataclass
class _Runs:
    """Builds the case's model anew for each run, and takes its results to the host."""

    case: Case
    spec: ModelSpec
    model_class: type[Model]
    device: torch.device
    arithmetic: Precision = field(init=False)  # the coarsest that the case computes in
    loss_scale: float = 2.0**16  # GradScaler's own to begin with; halved until eager's gradients are finite

    def __post_init__(self) -> None:
        self.arithmetic = self._arithmetic()

    @property
    def is_cast(self) -> bool:
        """Whether the case's precision is another than the model's own."""
        native = Precision(self.spec.native_dtype)
        return self.case.precision not in (Precision.DEFAULT, native)

    def eager(self, draws: RecordDraws) -> Results:
        """At the case's precision; its random numbers are kept in `draws`."""
        while True:
            draws.draws.clear()
            results, has_scaler = self._run(self.case.precision, context=draws)
            gradients = [
                leaf for leaf in results.values.get(ResultKind.GRADIENTS, {}).values() if isinstance(leaf, Tensor)
            ]
            if not has_scaler or self.loss_scale <= 1 or all(math.isfinite(l2_norm(g)) for g in gradients):
                return results
            self.loss_scale /= 4

    def inspected(self) -> tuple[Results, Inspection]:
        """Once more, and what the step showed."""
        seen: list[Inspection] = []

        def inspect(model: Model, step: Callable[[], Any]) -> Any:
            results: list[Any] = []
            seen.append(inspect_step(model, lambda: results.append(step())))
            return results[0]

        results, _ = self._run(self.case.precision, first_step=inspect)
        return results, seen[0]

    def native(self, draws: RecordDraws) -> Results:
        """Eager at the precision that the model has by itself, with the same random numbers."""
        return self._run(Precision.DEFAULT, context=ReplayDraws(draws.draws))[0]

    def reference(self, draws: RecordDraws) -> Results:
        """Eager in fp64, tensors that the step makes included, with the same random numbers."""
        with contextlib.ExitStack() as stack:
            weights = stack.enter_context(_gradients_given_to_optimizers())
            return self._run(Precision.FP64, context=ReplayDraws(draws.draws), weights=weights)[0]

    def shaken(self, draws: RecordDraws, seed: int) -> Results:
        """Eager at the case's precision with its weights changed as by rounding."""
        return self._run(self.case.precision, context=ReplayDraws(draws.draws), shake_seed=seed)[0]

    def candidate(self, inspection: Inspection) -> Results:
        """The case's backend.

        Raises:
            LabelNotReached: it is behind Dynamo and compiled nothing: eager would be found to agree with eager.
        """
        watch = CompilationWatch()
        results, _ = self._run(self.case.precision, inspection=inspection)
        count_compiled(watch, self.case.backend, None)
        return results

    def _run(
        self,
        precision: Precision,
        *,
        context: contextlib.AbstractContextManager[Any] | None = None,
        first_step: Callable[[Model, Callable[[], Any]], Any] | None = None,
        inspection: Inspection | None = None,
        shake_seed: int | None = None,
        weights: dict[int, Tensor] | None = None,
    ) -> tuple[Results, bool]:
        case, device = self.case, self.device
        assert case.batch_size is not None
        _use_default_flags()
        model = self.model_class(case.mode, device, case.batch_size, seed=case.seed)
        without_dropout(model)
        apply_precision(model, precision)
        if precision is Precision.FP64:
            _cast_attributes(model)
        apply_memory_format(model, case.memory_format)
        if model.scaler is not None:
            model.scaler = torch.amp.GradScaler(device.type, init_scale=self.loss_scale)
        if shake_seed is not None:
            _shake(model, ROUNDING[self.arithmetic], shake_seed)
        before = {name: p.detach().to("cpu", copy=True) for name, p in _parameters(model)} if self._trains else {}
        step: Callable[[], Any] = model.train_step if self._trains else model.eval_step
        if inspection is not None:
            with _buffers_kept(model):
                variant = candidate_variant(model, step, case, inspection.take_calls())
            variant.select()
            step = variant.step
        outputs: Any = None
        with contextlib.ExitStack() as stack:
            stack.enter_context(context or contextlib.nullcontext())
            if precision is Precision.FP64:
                stack.enter_context(_default_dtype(torch.float64))
            for index in range(STEADY_STEPS if changes_after_first_step(case.backend) else 1):
                outputs = None
                seed_everything(case.seed + index)
                outputs = first_step(model, step) if first_step is not None and index == 0 else step()
        results = self._collect(model, outputs, before, weights)
        has_scaler = model.scaler is not None
        del model, step, outputs
        _free_memory(device)
        return results, has_scaler

    @property
    def _trains(self) -> bool:
        return self.case.mode is Mode.TRAIN

    def _collect(
        self, model: Model, outputs: Any, before: dict[str, Tensor], weights: dict[int, Tensor] | None
    ) -> Results:
        if not self._trains:
            return Results(values=collect_outputs(outputs, rows=self.spec.detection_rows))
        values: dict[ResultKind, dict[str, Any]] = {ResultKind.LOSS: {"loss": outputs.detach().to("cpu", copy=True)}}
        gradients: dict[str, Tensor] = {}
        updates: dict[str, Tensor] = {}
        resolution: dict[str, float] = {}
        for name, parameter in _parameters(model):
            if parameter.grad is not None:
                gradients[name] = on_host(parameter.grad)
            old = before.pop(name)
            resolution[name] = torch.finfo(old.dtype).eps * float(torch.linalg.vector_norm(old.double()))
            wide = torch.promote_types(old.dtype, torch.float32)
            update = parameter.detach().to("cpu", wide, copy=True) - old
            updates[name] = on_host(update)
        values |= {ResultKind.GRADIENTS: gradients} if gradients else {}
        values |= {ResultKind.PARAMETERS: updates} if updates else {}
        for network_name, network in model.networks().items():
            for name, buffer in network.named_buffers():
                kind = ResultKind.BUFFERS if buffer.is_floating_point() else ResultKind.INTEGERS
                values.setdefault(kind, {})[f"{network_name}.{name}"] = buffer.detach().to("cpu", copy=True)
        by_id = {id(parameter): name for name, parameter in _parameters(model)}
        named = {by_id[key]: weight for key, weight in (weights or {}).items() if key in by_id}
        return Results(values=values, weights=named, resolution=resolution)

    def _arithmetic(self) -> Precision:
        """`default` is the model's own dtype, or TF32 where convolutions may use it; `amp` is autocast's dtype."""
        precision, device = self.case.precision, self.device
        by_dtype = {torch.float16: Precision.FP16, torch.bfloat16: Precision.BF16}
        if precision is Precision.AMP:
            return by_dtype[torch.get_autocast_dtype(device.type)]
        if precision is Precision.DEFAULT and self.spec.native_dtype is NativeDtype.FP64:
            return Precision.FP64
        if precision is Precision.DEFAULT:
            has_tf32 = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
            return Precision.TF32 if has_tf32 and not torch.version.hip else Precision.FP32
        return {Precision.AMP_FP16: Precision.FP16, Precision.AMP_BF16: Precision.BF16}.get(precision, precision)


def changes_after_first_step(backend: Backend) -> bool:
    """Whether later steps run other code than the first: CUDA graphs, TorchScript's profiling executor."""
    return backend.name in ("cudagraphs", "torchscript") or backend.option in ("reduce-overhead", "max-autotune")


def _parameters(model: Model) -> Iterator[tuple[str, nn.Parameter]]:
    seen: set[int] = set()
    for network_name, network in model.networks().items():
        for name, parameter in network.named_parameters():
            if id(parameter) not in seen and parameter.is_floating_point():
                seen.add(id(parameter))
                yield f"{network_name}.{name}", parameter


def _cast_attributes(model: Model) -> None:
    """Floating tensors that the model holds beside its networks and its batch, to fp64."""

    def cast(leaf: Any) -> Any:
        return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf

    for name, value in vars(model).items():
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(value)):
            setattr(model, name, tree_map(cast, value))


@contextlib.contextmanager
def _buffers_kept(model: Model) -> Iterator[None]:
    """Running statistics as they were before: tracing runs the network once more than a step does."""
    buffers = [buffer for network in model.networks().values() for buffer in network.buffers()]
    before = [buffer.clone() for buffer in buffers]
    yield
    with torch.no_grad():
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(old)


@torch.no_grad()
def _shake(model: Model, epsilon: float, seed: int) -> None:
    """Change every weight (of a model without weights: its data) by at most `epsilon`, relatively, at random."""
    tensors: list[Any] = [parameter for _, parameter in _parameters(model)] or tree_leaves(model.batch)
    generator = torch.Generator().manual_seed(seed)
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            signs = torch.randint(-1, 2, tensor.shape, generator=generator, dtype=torch.int8, device="cpu")
            tensor.mul_(1 + epsilon * signs.to(tensor.device, tensor.dtype))


@contextlib.contextmanager
def _gradients_given_to_optimizers() -> Iterator[dict[int, Tensor]]:
    """Sums of the magnitudes of all gradients that optimizers step by, on the host, by the parameter's id."""
    found: dict[int, Tensor] = {}

    def keep(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    magnitude = on_host(parameter.grad).abs()
                    found[id(parameter)] = found[id(parameter)] + magnitude if id(parameter) in found else magnitude

    handle = register_optimizer_step_pre_hook(keep)
    try:
        yield found
    finally:
        handle.remove()


@contextlib.contextmanager
def _settings_kept() -> Iterator[None]:
    """PyTorch's flags that a precision sets, as they were before."""
    matmul, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = tf32


def _use_default_flags() -> None:
    """PyTorch's own; `precision.apply_precision` then changes what its precision needs."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _free_memory(device: torch.device) -> None:
    gc.collect()
    if device.type != "cpu":
        torch.accelerator.empty_cache()
