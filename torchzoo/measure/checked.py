"""Check the results of one case, and time nothing: a suite is checked in a fraction of the time of a whole run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from torchzoo import backends, environment
from torchzoo.case import Case
from torchzoo.measure.case import check_results, prepared_model
from torchzoo.measure.compilation import CompilationWatch
from torchzoo.measure.finite import NotFinite, why_not_measured
from torchzoo.measure.gang import Gang, Line
from torchzoo.measure.lending import Lending
from torchzoo.measure.member import Member
from torchzoo.measure.memory import free_memory
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
    lending: Lending | None = None,
    lines: Sequence[Line] = (),
) -> Checked:
    """Whether a case computes what eager computes. One eager step before shows that it is what its label says.

    The arguments are those of `torchzoo.measure.case.measure_case`.

    Raises:
        NotRunnable: the case can't run as its label says, or its training is not finite after one step of eager.
        LabelNotReached: the step is not what its label says, or its backend was given nothing to compile.
    """
    stages = Stages(tell)
    device = use_device(device_name, settings.threads)
    stages.enter(Stage.IMPORT)
    gang = Gang(Member(case, spec, device), lines)
    member = gang.member
    put_back: tuple[str, ...] = gang.everywhere("load")[0]
    not_finite: NotFinite | None = None
    try:
        flags = _take_a_step(gang, case, spec, stages)
        parameters = sum(p.numel() for network in member.model.networks().values() for p in network.parameters())
        operator_dtypes = member.inspection.operator_dtypes
    except NotFinite as error:
        not_finite = error.with_traceback(None)  # its frames hold the model
    gang.everywhere("release")
    if not_finite is not None:
        free_memory(device)
        raise why_not_measured(not_finite, case, partial(prepared_model, member.model_class, case, device))
    watch = CompilationWatch()
    check = check_results(gang, case, spec, device, stages, lending or Lending(), was_timed=False)
    stages.close()
    return Checked(
        check=check,
        graphs=watch.graphs() if backends.info(case.backend.name).uses_dynamo else None,
        parameters=parameters,
        operator_dtypes=operator_dtypes,
        precision_flags=flags,
        threads=torch.get_num_threads(),
        device_name=environment.device_name(device),
        put_back=put_back,
        stage_seconds=stages.seconds,
        stage_cpu_seconds=stages.cpu_seconds,
    )


def _take_a_step(gang: Gang, case: Case, spec: ModelSpec, stages: Stages) -> dict[str, str]:
    """Build and prepare the model, and look at one eager step. Returns PyTorch's flags of precision.

    Raises:
        NotRunnable, LabelNotReached: the step does not compute as the label says.
        NotFinite: training is not finite after it.
    """
    member = gang.member
    stages.enter(Stage.BUILD)
    if gang.size > 1:
        gang.meet()
    gang.everywhere("build")
    stages.enter(Stage.PREPARE)
    flags: dict[str, str] = gang.everywhere("prepare")[0]
    stages.enter(Stage.WARM_UP)
    with refusals_are_skips(case.precision):
        gang.everywhere("inspect")
    member.finite.require(1, loss_is_finite=True, candidate_stepped=False)
    check_precision(member.model, case.precision, spec.native_dtype, member.inspection)
    return flags
