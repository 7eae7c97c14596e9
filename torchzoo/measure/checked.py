"""Check the results of one case without timing, in a fraction of the time of a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch

from torchzoo import backends
from torchzoo.case import Case
from torchzoo.machine import facts
from torchzoo.measure.case_rank import CaseRank
from torchzoo.measure.case_ranks import CaseRanks, Line
from torchzoo.measure.compilation import CompilationWatch
from torchzoo.measure.measure_case import build_everywhere, check_results, count_parameters, with_model
from torchzoo.measure.precision import check_precision
from torchzoo.measure.process_group import use_device
from torchzoo.measure.quantization import refusals_are_skips
from torchzoo.measure.stages import Stages, Tell
from torchzoo.record import Checked
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import ModelSpec


def check_alone(
    case: Case,
    spec: ModelSpec,
    device_name: str,
    settings: Settings,
    tell: Tell,
    *,
    lines: Sequence[Line] = (),
) -> Checked:
    """Check whether a case computes what eager computes, after one eager step that shows that its label is true.

    The arguments are those of `torchzoo.measure.measure_case.measure_case`.

    Raises:
        NotRunnable: the case can't run as its label says, or its training is not finite after one step of eager.
        LabelNotReached: the step is not what its label says, or its backend was given nothing to compile.
    """
    stages = Stages(tell)
    device = use_device(device_name, settings.threads)
    stages.enter(Stage.IMPORT)
    ranks = CaseRanks(CaseRank(case, spec, device), lines)
    ranks.everywhere(CaseRank.load)
    step = with_model(ranks, partial(_take_a_step, ranks, stages))
    watch = CompilationWatch()
    check = check_results(ranks, stages)
    stages.close()
    return Checked(
        check=check,
        graphs=watch.graphs() if backends.info(case.backend.name).uses_dynamo else None,
        parameters=step.parameters,
        operator_dtypes=step.operator_dtypes,
        precision_flags=step.flags,
        threads=torch.get_num_threads(),
        device_name=facts.device_name(device),
        put_back=ranks.own.put_back,
        stage_seconds=stages.seconds,
        stage_cpu_seconds=stages.cpu_seconds,
    )


class _Step(NamedTuple):
    """Findings of one eager step; see the fields of `Checked`."""

    flags: dict[str, str]
    parameters: int
    operator_dtypes: dict[str, int]


def _take_a_step(ranks: CaseRanks, stages: Stages) -> _Step:
    """Build and prepare the model, inspect one eager step, and require that it is finite and what the label says."""
    flags = build_everywhere(ranks, stages)
    own = ranks.own
    case = own.case
    stages.enter(Stage.WARM_UP)
    with refusals_are_skips(case.precision):
        ranks.everywhere(CaseRank.inspect)
    own.finite.require(1, loss_is_finite=own.inspection.result_is_finite, candidate_stepped=False)
    check_precision(own.model, case.precision, own.spec.native_dtype, own.inspection)
    return _Step(flags, count_parameters(own.model), own.inspection.operator_dtypes)
