"""Find the part of inductor that makes a case wrong or slow.

PyTorch's own `torch._inductor.compiler_bisector` searches: first over the backends (eager, aot_eager,
aot_eager_decomp_partition, inductor), then over the subsystems of that backend (passes before the gradients, joint
passes, passes after the gradients, lowerings and some settings), then over the applications of a subsystem. torchzoo
adds more settings, such as one without fusion, and answers one question each time: is the result wrong, or is the step
slow? `inductor_script` does so, in a process of its own.

The search does not apply if:

- the case's backend is not inductor, or the problem is there in eager too;
- the problem is a crash or a hang: those end the process, and the search with it;
- random numbers are wrong: in the check, inductor gets eager's numbers;
- no single subsystem makes the code slow. A pass is found only if the code is fast without it. Without lowerings
  nothing is fused, so a slow lowering is found only if it is slower than that. Tiling and generated code are no
  subsystems;
- the question is which kernel is at fault, and a setting such as `max_fusion_size` removes the problem;
- host code is slow, such as guards and recompilations.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from torchzoo.case import Case
from torchzoo.errors import TorchzooError, UsageError, attempt, one_line
from torchzoo.files import read_file, to_json
from torchzoo.history.inductor_script import Answer, Task

#: Seconds for a whole search. A small model takes a minute of CPU time; a large one compiles for minutes in each try.
LIMIT_S = 3600.0
ANSWER_BYTES = 2**20

_SUBSYSTEMS = {
    "decomposition": "a decomposition of an operator",
    "pre_grad_passes": "a pass before the gradients",
    "joint_graph_passes": "a pass on the joint graph",
    "post_grad_passes": "a pass after the gradients",
    "cudagraphs": "the recording of CUDA graphs",
    "lowerings": "the lowering of an operator",
}


class BisectionFailed(TorchzooError):
    """The bisection of the compiler gave no answer. The message is one line with the reason."""


def bisect_inductor(
    case: Case,
    *,
    slow_from: float | None = None,
    models_dirs: tuple[str, ...] = (),
    python: str = sys.executable,
    variables: Mapping[str, str] | None = None,
    limit_s: float = LIMIT_S,
) -> Answer:
    """Find the backend, the subsystem and its application that make a case wrong or slow.

    Args:
        case: with the backend `inductor`; each try compiles it again.
        slow_from: the compiled step is slow if it takes more than this many times as long as eager's step: 0.9 where it
            should take 80% of eager's time, and takes 95%. None: the case's results are wrong.
        models_dirs: more folders of models.
        python: the Python that has the torch to examine, and what torchzoo needs.
        variables: more environment variables for it; with another Python also the PYTHONPATH that has torchzoo.
        limit_s: seconds for the whole search.

    Raises:
        UsageError: the case's backend is not inductor, or it has no batch size.
        BisectionFailed: the case does not show the problem, its process died or took too long, or nothing was found.
    """
    if case.backend.name != "inductor" or case.batch_size is None:
        raise UsageError(f"{case.label()}: only cases with the backend inductor and a batch size can be bisected")
    task = Task(case=case, models_dirs=models_dirs, slow_from=slow_from)
    with tempfile.TemporaryDirectory(prefix="torchzoo-bisect-") as folder:
        task_file, answer_file = Path(folder, "task.json"), Path(folder, "answer.json")
        task_file.write_bytes(to_json(task))
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [_root(), os.environ.get("PYTHONPATH")])),
            **(variables or {}),
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "cache")),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",  # a graph of one try is no answer for the next
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        command = [python, "-m", "torchzoo.history.inductor_script", str(task_file), str(answer_file)]
        said = _run(command, environment, limit_s, case)
        answer = attempt(lambda: msgspec.json.decode(read_file(answer_file, ANSWER_BYTES), type=Answer))
    if not isinstance(answer, Answer):
        raise BisectionFailed(f"{case.label()}: the process that bisected inductor {said}")
    if answer.backend is None:
        raise BisectionFailed(f"{case.label()}: {answer.problem}")
    return answer


def in_words(answer: Answer) -> str:
    """Return an answer in words: `inductor, the lowering of an operator (lowerings), number 12: relu`."""
    parts = [f"backend {answer.backend}"]
    if answer.subsystem is None:
        return f"{parts[0]}; which part of it is not known"
    if answer.subsystem in _SUBSYSTEMS:
        parts.append(f"{_SUBSYSTEMS[answer.subsystem]} ({answer.subsystem}), number {answer.number}")
    else:
        parts.append(f"the problem is gone with the setting {answer.setting or answer.subsystem}")
    about = f": {one_line(answer.about)}" if answer.about and answer.about != answer.subsystem else ""
    return ", ".join(parts) + about


def reproduce_in_words(answer: Answer) -> str:
    """Return shell variables that turn off the part at fault and all later ones of its kind; empty if none do."""
    if answer.subsystem not in _SUBSYSTEMS or answer.number is None:
        return ""
    last_good = answer.number - 1
    return (
        f"TORCH_BISECT_BACKEND={answer.backend} TORCH_BISECT_SUBSYSTEM={answer.subsystem} TORCH_BISECT_MAX={last_good}"
    )


def _root() -> str:
    return str(Path(__file__).resolve().parents[2])


def _run(command: list[str], environment: dict[str, str], limit_s: float, case: Case) -> str:
    """Run the script. Return how it ended, with the last line of its output."""
    try:
        done = subprocess.run(  # noqa: S603  our own script
            command,
            env=environment,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            timeout=limit_s,
        )
    except subprocess.TimeoutExpired as error:
        raise BisectionFailed(f"{case.label()}: bisecting inductor took longer than {limit_s:g} s") from error
    except OSError as error:
        raise BisectionFailed(f"{case.label()}: can't start {command[0]}: {error.strerror or error}") from error
    lines = done.stdout.strip().splitlines() or ["it printed nothing"]
    how = f"was killed by signal {-done.returncode}" if done.returncode < 0 else f"ended with status {done.returncode}"
    return f"{how}: {one_line(lines[-1])}"
