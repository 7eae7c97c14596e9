"""Run a case again in this process without measuring, for the scripts of `torchzoo run --debug`."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from torchzoo.case import AXES, EAGER, Case
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.compilation import count_compiled, watch_compilation
from torchzoo.measure.finite import FiniteWatch
from torchzoo.measure.measure_case import prepared_model
from torchzoo.measure.precision import check_precision, inspect_step
from torchzoo.measure.process_group import use_device
from torchzoo.measure.variant import Variant, candidate_variant, eager_variant
from torchzoo.model.tensors import is_finite
from torchzoo.record import CheckStatus
from torchzoo.zoo.catalog import find_models, load_model_class


class WrongResults(RuntimeError):
    """The check finds that the case does not compute what eager computes."""


def reproduce(
    model: str,
    *,
    steps: int = 10,
    check: bool = False,
    threads: int | None = None,
    host_memory_limit: int | None = None,
    models_dir: Sequence[str] = (),
    minify_to: str | None = None,
    **axes: str,
) -> None:
    """Build the model, take a few steps in eager and a few with the backend. Exceptions of the case are not caught.

    Args:
        model: the name of its folder.
        steps: how many steps each variant takes. In training, a value that is not finite ends them.
        check: compare results with eager's at the end, as `--check` does.
        threads: CPU threads; None: PyTorch's choice.
        host_memory_limit: bytes of this process's data.
        models_dir: more folders of models.
        minify_to: a folder for the script that Dynamo then writes, which minimises the graph that fails; with `check`,
            also a graph with wrong results. (Each graph that AOTAutograd gives to the compiler is tried.)
        axes: the values of the case, as the command line takes them.

    Raises:
        NotRunnable, LabelNotReached: the case can't run as its label says.
        NotFinite: training is not finite.
        WrongResults: the results are wrong.
    """
    if host_memory_limit is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (host_memory_limit, host_memory_limit))
    if minify_to is not None:
        torch._dynamo.config.repro_after = "aot"
        torch._dynamo.config.debug_dir_root = minify_to
        if check:
            torch._dynamo.config.repro_level = 4  # a graph whose results are wrong fails, too
        torch._inductor.config.force_disable_caches = True  # graphs from a cache are not minimised
    case = Case(model=model, **{axis.name: axis.value(axes[axis.name]) for axis in AXES if axis.name in axes})
    _take_steps(case, use_device(case.device, threads), steps, list(map(Path, models_dir)), check=check)


def _take_steps(case: Case, device: torch.device, steps: int, models_dirs: list[Path], *, check: bool) -> None:
    spec = find_models(models_dirs).spec(case.model)
    model_class = load_model_class(spec)
    model = prepared_model(model_class, case, device)
    finite = FiniteWatch(model)
    _step(eager_variant(model, model.measured_step), steps, finite)
    inspection = inspect_step(model, model.measured_step)
    check_precision(model, case.precision, spec.native_dtype, inspection)
    if case.backend != EAGER:
        watch = watch_compilation()
        _step(candidate_variant(model, model.measured_step, case, inspection.take_calls()), steps, finite)
        count_compiled(watch, case, None)
    if check:
        del model, finite, inspection
        found = check_case(case, spec, model_class, device)
        if found.status is CheckStatus.INCORRECT:
            raise WrongResults(found.reason)


def _step(variant: Variant, steps: int, finite: FiniteWatch) -> None:
    variant.select()
    for number in range(1, steps + 1):
        result = variant.step()
        loss_is_finite = not isinstance(result, Tensor) or is_finite(result)
        finite.require(number, loss_is_finite=loss_is_finite, candidate_stepped=variant.name != "eager")
