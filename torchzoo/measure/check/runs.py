"""Runs of a case's steps from the same start: in eager, at fp64, by the backend.

A run is `STEPS` consecutive steps: code that keeps something from one call to the next, or that is recorded in the
first calls and replayed later, is wrong from the second step on. The loss or the outputs of each step are compared, all
results of the first step, and of the last step the gradients, buffers and caches, and the state of optimizers if the
backend makes the updates.

The candidate runs the very code that was timed if possible: the measured model is restored to its state before the
first step (`torchzoo.measure.start_state`), and takes its steps in eager and by the candidate (`timed_runs`). Its eager
results must be those of a new model. All other runs are on models that are built anew from the case's seed.

The code is checked under other conditions than it is timed in four ways: where dropout draws random numbers, dropout is
off (`randomness.without_dropout`), the generators are seeded before each step, compiled code draws the random numbers
that eager draws (`randomness.compiled_draws_as_eager`), and the run at fp64 gets those numbers, too. The kernels are
those of the timing: deterministic algorithms are not requested.

If the measured model can't be restored, or the case is judged again (`check_case`), a new model runs the code that
Dynamo holds: Dynamo keeps compiled code by the Python code that it came from, and a new model of the same class passes
its guards. Dynamo is told to fail rather than to compile. If it fails, the candidate is compiled anew, and the check
says so. Code that was compiled at TF32 can also run at fp32: libraries read the flag when they are called. Then Dynamo
is told to skip its guards, since one of them may ask for that flag. The guard on the precision of matrix products is
never skipped, so code that was compiled at `--precision tf32` is compiled anew.

Where a network amplifies rounding, its weights are damped, too (`rounding.damp_weights`).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchzoo import backends
from torchzoo.backends.optimizer_copies import states_after
from torchzoo.case import Backend, Case, Mode, Precision, ResultKind
from torchzoo.errors import attempt
from torchzoo.machine.limits import available_bytes
from torchzoo.measure.check.norms import l2_norm
from torchzoo.measure.check.quantized import keep_fake_quantization_single, quantize_reference
from torchzoo.measure.check.randomness import (
    RecordRandomDraws,
    ReplayRandomDraws,
    compiled_draws_as_eager,
    generator_states,
    has_drawn,
    has_dropout,
    seed_everything,
    without_dropout,
)
from torchzoo.measure.check.reference import activations_on_host, attention_in_pieces
from torchzoo.measure.check.results import (
    Before,
    CanNotCompare,
    Results,
    Run,
    collect_evaluation,
    collect_loss,
    collect_training,
    gradients_given_to_optimizers,
    parameters_before,
    run_bytes,
    sharing_equal,
    state_before,
)
from torchzoo.measure.check.rounding import (
    MovedDecisions,
    RoundedProducts,
    damp_weights,
    dampable_biases,
    perturb_weights,
    perturbed_activations,
)
from torchzoo.measure.check.tolerances import PERTURBATIONS, coarsest_precision, tolerance_of
from torchzoo.measure.compilation import CompilationWatch, count_compiled
from torchzoo.measure.global_state import keeping_state
from torchzoo.measure.memory import free_memory
from torchzoo.measure.precision import Inspection, apply_memory_format, apply_precision, inspect_step
from torchzoo.measure.start_state import CanNotRestore, StartState
from torchzoo.measure.variant import Variant, candidate_variant
from torchzoo.model import Model
from torchzoo.model.tensors import cast, mapped, tensors_in
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.zoo.spec import ModelSpec

if TYPE_CHECKING:
    from torchzoo.measure.case_rank import CaseRank

#: The message of Dynamo's exception if no code that it holds fits a call.
_RECOMPILES = "Detected recompile"

#: Steps of a run, as many as new CUDA graphs need: a warm-up, the recording, a replay.
STEPS = 3

_Step = Callable[[], Any]
_Context = contextlib.AbstractContextManager[Any]


@dataclass(frozen=True, kw_only=True)
class TimedRuns:
    """The results of the measured model from its start: in eager, and by the code that was timed."""

    eager: Run = ()
    candidate: Run = ()
    why_not: str = ""  # the reason if there are none


def timed_runs(own: CaseRank) -> TimedRuns:
    """Restore the start of the measured model, and take the steps that are compared."""
    if not isinstance(own.start, StartState):
        return TimedRuns(why_not=str(own.start))
    runs = Runs(case=own.case, spec=own.spec, model_class=own.model_class, device=own.device, was_timed=True)
    try:
        return runs.of_measured(own.model, own.variants, own.start)
    except (CanNotRestore, CanNotCompare) as reason:
        return TimedRuns(why_not=str(reason))
    except torch.OutOfMemoryError:
        return TimedRuns(why_not="the device has too little memory for it beside what the measured model holds")


@dataclass(kw_only=True)
class Runs:
    """Make runs of one case, one at a time, and copy their results to the host."""

    case: Case
    spec: ModelSpec
    model_class: type[Model]
    device: torch.device

    # Conditions, which another way of judging may change.
    timed: TimedRuns | None = None  # results of the code that was timed
    was_timed: bool = False  # whether the case's code has been compiled in this process, and timed
    was_checked: bool = False  # whether Dynamo holds the code of an earlier run of the candidate here
    skips_guards: bool = False  # whether code that Dynamo holds runs whatever the flags it was compiled for
    damps_weights: bool = False  # so that the network amplifies rounding less
    drops_out: bool = True  # whether the model may drop out; not in training, nor where evaluation draws random numbers
    loss_scale: float = 2.0**16  # the default of a GradScaler; reduced until eager's gradients are finite
    compares_last: bool = True  # whether all results of the last step are compared, and not its loss alone

    # Known after the first run.
    draws: RecordRandomDraws = field(default_factory=RecordRandomDraws)  # the random numbers of its steps
    draws_random: bool = False  # whether its steps draw any
    scales_loss: bool = False  # whether there is a GradScaler
    can_damp_weights: bool = False
    # Known after the candidate's run, and after results were judged.
    compiled_anew: str = ""  # why the candidate was compiled again
    amplifies_rounding: bool = False  # so much that many gradients are useless

    def __post_init__(self) -> None:
        self.drops_out &= self.case.mode is not Mode.TRAIN
        self.was_timed |= self.timed is not None

    @property
    def arithmetic(self) -> Precision:
        """The coarsest precision in which the case computes."""
        return coarsest_precision(self.case.precision, self.spec.native_dtype, self.device)

    @property
    def is_coarse(self) -> bool:
        """Whether results at fp32 are much more exact than the case can be."""
        return self.arithmetic not in (Precision.FP64, Precision.FP32)

    @property
    def widest(self) -> torch.dtype:
        """The dtype of the largest results: a reference for coarse precisions needs no fp64 once it is computed."""
        return torch.float32 if self.is_coarse else torch.float64

    @property
    def can_reuse_code(self) -> bool:
        """Whether a new model can run code that Dynamo holds, which is not so if its graphs hold addresses."""
        is_of_dynamo = backends.info(self.case.backend.name).uses_dynamo
        has_code = self.was_timed or self.was_checked
        return has_code and is_of_dynamo and not changes_after_first_step(self.case.backend)

    @property
    def compares_state(self) -> bool:
        """Whether buffers and caches are compared, too: not where the reference is another network."""
        return self.case.mode is not Mode.TRAIN and self.model_class.reference() is self.model_class

    @property
    def has_native(self) -> bool:
        """Whether the error of eager at the model's own precision is a measure for the case's error.

        Not for quantized precisions: that error includes the effect of quantization, which their reference shares.
        """
        return self.is_cast and not self.case.precision.is_quantized

    @property
    def is_cast(self) -> bool:
        """Whether the case's precision differs from the model's own."""
        native = Precision(self.spec.native_dtype)
        return self.case.precision not in (Precision.DEFAULT, native)

    def of_measured(self, model: Model, variants: Mapping[str, Variant], start: StartState) -> TimedRuns:
        """Return the results of the measured model from its start, by the code that was timed.

        Raises:
            CanNotRestore: the model can't be restored, or works under other conditions than those of the check.
            CanNotCompare: the results are of a kind that can't be compared.
        """
        if backends.makes_updates(self.case):
            raise CanNotRestore("what its own optimizer keeps can't be put back")
        if model.mode is Mode.TRAIN and has_dropout(model):
            raise CanNotRestore("it was timed with dropout, which is checked without")
        while True:
            eager = self._from_start(model, variants[EAGER_VARIANT], start)
            if self._has_finite_gradients(eager):
                break
            self.loss_scale /= 4
        if run_bytes(eager) > available_bytes() / 2:
            raise CanNotRestore("the host has too little memory for the results of the measured model")
        if self.draws_random:
            raise CanNotRestore("its steps draw random numbers, which compiled code is told to draw as eager does")
        with torch.compiler.set_stance("fail_on_recompile"):
            candidate = attempt(lambda: self._from_start(model, variants[CANDIDATE_VARIANT], start))
        if isinstance(candidate, Exception):
            if _RECOMPILES not in str(candidate):
                raise candidate
            raise CanNotRestore("Dynamo would compile for the state before the first step")
        return TimedRuns(eager=eager, candidate=candidate)

    def _from_start(self, model: Model, variant: Variant, start: StartState) -> Run:
        start.restore()
        if model.scaler is not None:
            model.scaler = torch.amp.GradScaler(self.device.type, init_scale=self.loss_scale)
        variant.select()
        return self._take_steps(model, variant.step, self._before(model))

    def eager(self) -> Run:
        """Run eager at the case's precision, and keep the random numbers of its steps in `draws`."""
        while True:
            self.draws = RecordRandomDraws()
            run = self._run(self.case.precision, contexts=[self.draws])
            if self.drops_out and self.draws_random:
                self.drops_out = self.draws_random = False
                continue
            if self._has_finite_gradients(run):
                return run
            self.loss_scale /= 4

    def _has_finite_gradients(self, run: Run) -> bool:
        """Whether gradients that a GradScaler scales are finite, or the scale can't be reduced."""
        if not self.scales_loss or self.loss_scale <= 1:
            return True
        gradients = [tensor for results in run for tensor in results.values.get(ResultKind.GRADIENTS, {}).values()]
        return all(math.isfinite(l2_norm(one, self.device)) for one in gradients if isinstance(one, Tensor))

    def eager_inspected(self) -> tuple[Run, Inspection]:
        """Run eager again at the case's precision, and inspect the first step."""
        seen: list[Inspection] = []

        def inspect(model: Model, step: _Step) -> Any:
            results: list[Any] = []
            seen.append(inspect_step(model, lambda: results.append(step())))
            return results[0]

        run = self._run(self.case.precision, first_step=inspect)
        return run, seen[0]

    def _with_draws(self, precision: Precision, *contexts: _Context, **options: Any) -> Run:
        """Run eager with the random numbers of its first run."""
        return self._run(precision, contexts=[ReplayRandomDraws(self.draws.draws), *contexts], **options)

    def native(self) -> Run:
        """Run eager at the model's own precision."""
        return self._with_draws(Precision.DEFAULT)

    def reference(self, precision: Precision, *, activations_go_to_host: bool = False) -> Run:
        """Run eager at fp64, also for tensors that the step makes; or at fp32.

        For a quantized precision, the reference is that of `torchzoo.measure.check.quantized`.
        """
        on_host = [activations_on_host()] if activations_go_to_host else []
        with gradients_given_to_optimizers(self.widest) as magnitudes:
            return self._with_draws(
                precision, attention_in_pieces(), *on_host, gradient_magnitudes=magnitudes, is_reference=True
            )

    def perturbed(self, seed: int) -> Run:
        """Run eager with weights changed as by rounding. If products may use TF32, all of them do."""
        products = [RoundedProducts()] if self.arithmetic is Precision.TF32 else []
        return self._with_draws(self.case.precision, *products, perturbation_seed=seed)

    def perturbed_backward(self, seed: int) -> Run | None:
        """Run eager with a backward pass that reads activations which were changed as by rounding.

        Return None where the step allows no such change.
        """
        changed = perturbed_activations(PERTURBATIONS[self.arithmetic], seed)
        return self._unless_refused("saved tensor hooks", changed)

    @property
    def keeps_coarse_activations(self) -> bool:
        """Whether the backward pass may read activations that are rounded to a dtype of 16 bits."""
        is_coarse = self.arithmetic not in (Precision.FP64, Precision.FP32, Precision.TF32)
        return is_coarse and self.case.mode is Mode.TRAIN

    def moved_decisions(self, sign: int) -> Run | None:
        """Run eager, and move the numbers by which it decides by the tolerance of outputs, up or down.

        Return None where the step allows no such change.
        """
        return self._unless_refused("", MovedDecisions(tolerance_of(ResultKind.OUTPUTS, self.arithmetic), sign))

    def _unless_refused(self, says: str, context: _Context) -> Run | None:
        """Run eager inside a context; return None if it raises a RuntimeError with these words."""
        run = attempt(lambda: self._with_draws(self.case.precision, context))
        if isinstance(run, RuntimeError) and says in str(run):
            return None
        if isinstance(run, Exception):
            raise run
        return run

    def candidate(self, inspection: Inspection) -> Run:
        """Run the case's backend on a new model, with the calls of the inspection.

        Raises:
            LabelNotReached: the backend is behind Dynamo and compiled nothing: eager would be compared with eager.
        """
        with compiled_draws_as_eager(if_draws=self.draws_random):
            if self.can_reuse_code and (self.was_checked or not self.draws_random):
                with torch.compiler.set_stance("fail_on_recompile", skip_guard_eval_unsafe=self.skips_guards):
                    run = attempt(lambda: self._run(self.case.precision, inspection=inspection))
                if not isinstance(run, Exception):
                    self.was_checked = True
                    return run
                if not self.skips_guards and _RECOMPILES not in str(run):
                    raise run  # the timed code fails
                del run  # its frames hold the model
                free_memory(self.device)
                inspection = self.eager_inspected()[1]
            why = self.timed.why_not if self.timed is not None else ""
            self.compiled_anew = "nothing was timed" if not self.was_timed else why or "a new model can't run it"
            torch._dynamo.reset()
            watch = CompilationWatch()
            run = self._run(self.case.precision, inspection=inspection)
        count_compiled(watch, self.case, None)
        self.was_checked = True
        return run

    def _change_for_check(self, model: Model) -> None:
        """Turn dropout off, and damp the weights, where that is asked for."""
        if not self.drops_out:
            without_dropout(model)
        self.can_damp_weights = any(True for _ in dampable_biases(model))
        if self.damps_weights:
            damp_weights(model)

    def _run(self, precision: Precision, **options: Any) -> Run:
        run = self._step_new_model(precision, **options)
        free_memory(self.device)
        return run

    def _step_new_model(
        self,
        precision: Precision,
        *,
        contexts: Iterable[_Context] = (),
        first_step: Callable[[Model, _Step], Any] | None = None,
        inspection: Inspection | None = None,
        perturbation_seed: int | None = None,
        gradient_magnitudes: dict[int, Tensor] | None = None,
        is_reference: bool = False,
    ) -> Run:
        """Build a model, let it step, and collect the results.

        Args:
            precision: the precision of the model.
            contexts: entered around the steps.
            first_step: takes the first step in its own way, and returns the result of the step.
            inspection: if given, the step is the candidate's, compiled for the recorded calls.
            perturbation_seed: if given, the weights are changed as by rounding.
            gradient_magnitudes: of the gradients given to the optimizers, by the parameter's id; filled by the caller
                while the steps run.
            is_reference: whether others are judged by the results.
        """
        case, device = self.case, self.device
        assert case.batch_size is not None
        _use_default_flags()
        model_class = self.model_class.reference() if is_reference else self.model_class
        model, _ = keeping_state(partial(model_class, case.mode, device, case.batch_size, seed=case.seed))
        self._change_for_check(model)
        if is_reference and case.precision.is_quantized:
            apply_precision(model, Precision.BF16)  # the same weights and data, before they are quantized
            quantize_reference(model, case.precision)
        apply_precision(model, precision)
        if precision is Precision.FP64:
            _cast_attributes(model)
            keep_fake_quantization_single(model)
        apply_memory_format(model, case.memory_format)
        if model.scaler is not None:
            model.scaler = torch.amp.GradScaler(device.type, init_scale=self.loss_scale)
        if perturbation_seed is not None:
            perturb_weights(model, PERTURBATIONS[self.arithmetic], perturbation_seed)
        step: _Step = model.measured_step
        before = self._before(model)
        if inspection is not None:
            with _buffers_kept(model):
                variant = candidate_variant(model, step, case, inspection.take_calls())
            variant.select()
            step = variant.step
        of_fp64 = [_default_dtype(torch.float64)] if precision is Precision.FP64 else []
        contexts = [*contexts, *of_fp64]
        return self._take_steps(model, step, before, contexts, first_step=first_step, magnitudes=gradient_magnitudes)

    def _before(self, model: Model) -> _Before:
        """Copy the compared tensors that steps may change to the host."""
        if model.mode is Mode.TRAIN:
            return _Before(parameters_before(model), None)
        return _Before({}, state_before(model) if self.compares_state else None)

    def _take_steps(
        self,
        model: Model,
        step: _Step,
        before: _Before,
        contexts: Iterable[_Context] = (),
        *,
        first_step: Callable[[Model, _Step], Any] | None = None,
        magnitudes: dict[int, Tensor] | None = None,
    ) -> Run:
        """Let a model step from its start, and collect the results. Arguments are those of `_step_new_model`."""
        self.scales_loss = model.scaler is not None
        run: list[Results] = []
        outputs: Any = None
        with contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context)
            for index in range(STEPS):
                outputs = None
                seed_everything(self.case.seed + index)
                before_draws = generator_states(self.device)
                outputs = first_step(model, step) if first_step is not None and index == 0 else step()
                self.draws_random |= has_drawn(before_draws, self.device)
                results = self._collect(index, model, step, outputs, before, magnitudes or {})
                run.append(sharing_equal(results, run[0]) if run else results)
        return tuple(run)

    def _collect(
        self, index: int, model: Model, step: _Step, outputs: Any, before: _Before, magnitudes: dict[int, Tensor]
    ) -> Results:
        """Collect the results of a step: all of the first and the last step, the return value of any other."""
        is_first = index == 0
        is_whole = is_first or (index == STEPS - 1 and self.compares_last)
        if model.mode is not Mode.TRAIN:
            state = before.state if is_whole else None
            return Results(values=collect_evaluation(model, outputs, state, rows=self.spec.detection_rows))
        if not is_whole:
            return collect_loss(outputs)
        if not backends.makes_updates(self.case):
            parameters = before.parameters if is_first else None
            return collect_training(model, outputs, parameters, dict(magnitudes), self.widest)
        parameters = dict(before.parameters) if is_first else before.parameters
        return collect_training(model, outputs, parameters, dict(magnitudes), self.widest, states_after(model, step))


class _Before(NamedTuple):
    """Host copies, from before the steps, of compared tensors that steps may change."""

    parameters: dict[str, Before]  # in training
    state: dict[str, Tensor] | None  # in other modes: buffers and caches, if they are compared


def changes_after_first_step(backend: Backend) -> bool:
    """Whether later steps run other code than the first: CUDA graphs, TorchScript's profiling executor."""
    return backend.name in ("cudagraphs", "torchscript") or backend.option in ("reduce-overhead", "max-autotune")


@contextlib.contextmanager
def flags_kept() -> Iterator[None]:
    """Restore PyTorch's flags of precision afterwards."""
    matmul, tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmul)
        torch.backends.cudnn.allow_tf32 = tf32


def _use_default_flags() -> None:
    """Set the flags of precision to PyTorch's own values; `apply_precision` then changes what its precision needs.

    Values that are right already are not set: Dynamo's guards distinguish a precision that was set from the default.
    """
    if torch.get_float32_matmul_precision() != "highest":
        torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = True


def _cast_attributes(model: Model) -> None:
    """Cast floating and complex tensors that the model holds outside of its networks and its batch to fp64."""
    for name, value in vars(model).items():
        if tensors_in(value):
            setattr(model, name, mapped(partial(cast, dtype=torch.float64), value))


@contextlib.contextmanager
def _buffers_kept(model: Model) -> Iterator[None]:
    """Restore running statistics afterwards: tracing runs the network once more than a step does."""
    buffers = [buffer for network in model.networks().values() for buffer in network.buffers()]
    before = [buffer.clone() for buffer in buffers]
    yield
    with torch.no_grad():
        for buffer, old in zip(buffers, before, strict=True):
            buffer.copy_(old)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
