"""Run PyTorch's `CompilerBisector` over one case, in a process of its own: the script of `into_inductor`.

The script reads a `Task` from the file of its first argument, and writes an `Inside` to that of its second. Torch is
imported by the functions, not by the module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from torchzoo.case import Case
from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.machine.process import with_room
from torchzoo.store import write_whole
from torchzoo.zoo.catalog import find_models, load_model_class

if TYPE_CHECKING:
    import torch

    from torchzoo.model import Model

NO_ANSWER = "inductor's own bisector gave no answer"
#: Pairs of steps (eager, compiled) that are timed for one answer to "is it slow?", and those before to warm up.
PAIRS, WARM_UP_STEPS = 11, 3

#: Settings of inductor that the search also tries, before lowerings. Each value turns off something that PyTorch's
#: bisector does not know: the pass that removes operators without effect, the reuse of buffers, fusion.
MORE_SETTINGS: dict[str, object] = {
    "disabled_passes": "remove_noop_ops",
    "shape_padding": False,
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
    "online_softmax": False,
    "split_reductions": False,
    "triton.mix_order_reduction": False,
    "max_fusion_size": 1,
}


_SUBSYSTEMS = {
    "decomposition": "a decomposition of an operator",
    "pre_grad_passes": "a pass before the gradients",
    "joint_graph_passes": "a pass on the joint graph",
    "post_grad_passes": "a pass after the gradients",
    "cudagraphs": "the recording of CUDA graphs",
    "lowerings": "the lowering of an operator",
}


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A case whose results are wrong, or whose compiled step is too slow."""

    case: Case
    models_dirs: tuple[str, ...] = ()
    #: The compiled step is slow if it takes more than this many times as long as eager's. None: the results are wrong.
    slow_from: float | None = None


class _NoPart(TorchzooError):
    """Each part of a backend was left out once, and the problem stayed. The argument is the backend."""


class Inside(msgspec.Struct, frozen=True, kw_only=True):
    """The part of inductor at fault, or why it is not known."""

    words: str
    without_it: str = ""  # shell variables that leave that part out; empty if there are none


def no_answer(task: Task, why: str) -> Inside:
    """Return why the search found nothing."""
    return Inside(words=f"{NO_ANSWER}: {task.case.label()}: {one_line(why)}")


@with_room
def main(task_file: str, answer_file: str) -> None:
    """Read the task, bisect, and write the answer."""
    task = msgspec.json.decode(Path(task_file).read_bytes(), type=Task)
    found = attempt(lambda: bisected(task))
    if isinstance(found, Exception):
        found = no_answer(task, f"{type(found).__name__}: {found}")
    write_whole(Path(answer_file), msgspec.json.encode(found))


def bisected(task: Task) -> Inside:
    """Bisect one case, if it has the symptom at all, in this process."""
    if task.slow_from is not None and task.slow_from < 1:
        os.environ["TORCH_BISECT_BACKEND"] = "inductor"  # other backends don't make a step faster than eager
    from torch._inductor.compiler_bisector import CompilerBisector

    has_symptom = _symptom(task)
    CompilerBisector.bisection_enabled = False
    if not has_symptom():
        what = "its results are not wrong" if task.slow_from is None else "it is not slow"
        return no_answer(task, f"the case does not show the problem in a single process: {what}")

    def is_good() -> bool:
        is_there = has_symptom()
        if is_there and _is_last_part():
            raise _NoPart(CompilerBisector.get_backend())
        return not is_there

    settings = _with_more_settings()
    try:
        found = CompilerBisector.do_bisect(is_good)
    except _NoPart as stayed:
        return Inside(words=f"backend {stayed.args[0]}; which part of it is not known")
    if found is None:
        return no_answer(task, "the problem was not there again in any backend")
    backend, part, number = found.backend, found.subsystem, found.bisect_number
    if part is None:
        return Inside(words=f"backend {backend}; which part of it is not known")
    about = f": {one_line(found.debug_info)}" if found.debug_info and found.debug_info != part else ""
    if part not in _SUBSYSTEMS:
        return Inside(
            words=f"backend {backend}, the problem is gone with the setting {settings.get(part, part)}{about}"
        )
    variables = f"TORCH_BISECT_BACKEND={backend} TORCH_BISECT_SUBSYSTEM={part} TORCH_BISECT_MAX="
    return Inside(
        words=f"backend {backend}, {_SUBSYSTEMS[part]} ({part}), number {number}{about}",
        without_it="" if number is None else f"{variables}{number - 1}",  # without all later ones of its kind, too
    )


def _is_last_part() -> bool:
    """Whether PyTorch's bisector leaves out the last part of a backend now, and would next try the others again."""
    from torch._inductor.compiler_bisector import BACKENDS, CompilerBisector

    backend, part = CompilerBisector.get_backend(), CompilerBisector.get_subsystem()
    if backend is None or part is None or part != BACKENDS[backend][-1].name:
        return False
    return CompilerBisector.get_run_state(backend, part) == "test_disable"


def _with_more_settings() -> dict[str, str]:
    """Let PyTorch's bisector also try MORE_SETTINGS. Return all settings that it tries, by its names for them."""
    from torch._inductor import config
    from torch._inductor.compiler_bisector import BACKENDS, ConfigChange

    known = config.get_config_copy()
    more = [
        ConfigChange("inductor", name, repr(value) if isinstance(value, str) else value)  # strings are evaluated
        for name, value in MORE_SETTINGS.items()
        if name in known
    ]
    of_inductor = BACKENDS["inductor"]
    before = next((n for n, subsystem in enumerate(of_inductor) if subsystem.name == "lowerings"), len(of_inductor))
    of_inductor[before:before] = more
    all_of_them = [one for subsystems in BACKENDS.values() for one in subsystems if isinstance(one, ConfigChange)]
    return {one.name: f"{one.config_field}={one.config_value}" for one in all_of_them}


def _symptom(task: Task) -> Callable[[], bool]:
    """Return a function that says whether the problem is present, and compiles anew each time."""
    import torch

    from torchzoo.measure.check.check_case import check_case
    from torchzoo.record import CheckStatus

    case, device = task.case, torch.device(task.case.device)
    spec = find_models(map(Path, task.models_dirs)).spec(case.model)
    model_class = load_model_class(spec)

    if (limit := task.slow_from) is not None:
        return lambda: _compiled_over_eager(case, model_class, device) > limit

    def is_wrong() -> bool:
        found = check_case(case, spec, model_class, device)
        if found.status not in (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT, CheckStatus.INCORRECT):
            raise ValueError(f"a try has no verdict: {found.status}, {found.reason}")
        return found.status is CheckStatus.INCORRECT

    return is_wrong


def _compiled_over_eager(case: Case, model_class: type[Model], device: torch.device) -> float:
    """Return the median ratio of the times of the compiled and the eager step, over pairs timed in turns."""
    import torch

    from torchzoo.measure.clock import DeviceClock
    from torchzoo.measure.latency import quiet_python, timed_step_s
    from torchzoo.measure.precision import apply_memory_format, apply_precision, inspect_step
    from torchzoo.measure.variant import candidate_variant, eager_variant

    assert case.batch_size is not None
    torch._dynamo.reset()
    model = model_class(case.mode, device, case.batch_size, seed=case.seed)
    step = model.measured_step
    apply_precision(model, case.precision)
    apply_memory_format(model, case.memory_format)
    eager = eager_variant(model, step)
    compiled = candidate_variant(model, step, case, inspect_step(model, step).take_calls())
    clock, ratios = DeviceClock(device), []
    with quiet_python():
        for number in range(WARM_UP_STEPS + PAIRS):
            times_s = {}
            for one in (eager, compiled):
                one.select()
                times_s[one.name] = timed_step_s(one.step, clock)
            if number >= WARM_UP_STEPS:
                ratios.append(times_s[compiled.name] / times_s[eager.name])
    return median(ratios)


if __name__ == "__main__":
    main(*sys.argv[1:3])
