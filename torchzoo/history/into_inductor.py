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

import math
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from torchzoo.analysis.cases import case_results
from torchzoo.case import Case
from torchzoo.environments.make import PythonEnvironment, prepare
from torchzoo.environments.parsing import run_without_input
from torchzoo.errors import attempt
from torchzoo.files import read_json, to_json
from torchzoo.history.changes import Kind
from torchzoo.history.inductor_script import Inside, Task, no_answer
from torchzoo.store import Run, write_json

#: The file with the answer.
INSIDE = "inside.json"
#: Inductor is examined if its step, relative to eager's in the same process, became slower by at least 2%.
_LEAST_CHANGE = 1.02
#: Seconds for a whole search. A small model takes a minute of CPU time; a large one compiles for minutes in each try.
LIMIT_S = 3600.0


def applies_to(kind: Kind, case: Case) -> bool:
    """Whether inductor's own bisector has a question for this change: slow code, or wrong results."""
    return case.backend.name == "inductor" and kind in (Kind.LATENCY, Kind.INCORRECT)


def look_inside(kind: Kind, case: Case, base: Run, candidate: Run, spec: str, kept: Path) -> Inside:
    """Let inductor's bisector examine the first bad version. This takes minutes, since the case is compiled many times.

    The runs were measured in turns, `base` with the last good version and `candidate` with the first bad one, `spec`.
    An answer that the file `kept` holds is returned without a search.
    """
    before = attempt(lambda: read_json(kept, Inside))
    if isinstance(before, Inside):
        return before
    found = _looked_for(kind, case, base, candidate, spec)
    write_json(kept, found)
    return found


def _looked_for(kind: Kind, case: Case, base: Run, candidate: Run, spec: str) -> Inside:
    slow_from = None
    if kind is Kind.LATENCY:
        was, now = _over_eager(base, case), _over_eager(candidate, case)
        if was is None or now is None:
            return Inside(words="not looked into: the step was not measured beside eager's in both versions")
        if now < was * _LEAST_CHANGE:
            return Inside(
                words="not looked into: the step did not become slower beside eager's. It took "
                f"{was:.2f} times as long before, and {now:.2f} times now"
            )
        slow_from = math.sqrt(was * now)
    task = Task(case=case, models_dirs=candidate.manifest.models_dirs, slow_from=slow_from)
    threads = candidate.manifest.settings.threads
    return bisect_inductor(task, prepare(spec), {"OMP_NUM_THREADS": str(threads)} if threads is not None else {})


def _over_eager(run: Run, case: Case) -> float | None:
    """Return the ratio of the compiled step's time to eager's; None if it was not measured."""
    figures = next((one.figures for one in case_results(run) if one.case == case), None)
    return None if figures is None or figures.time_ratio is None else figures.time_ratio.value


def bisect_inductor(task: Task, environment: PythonEnvironment, variables: Mapping[str, str]) -> Inside:
    """Find the backend, the subsystem and its application that make a case wrong or slow, in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="torchzoo-bisect-") as folder:
        task_file, answer_file = Path(folder, "task.json"), Path(folder, "answer.json")
        task_file.write_bytes(to_json(task))
        every = {
            **os.environ,
            **environment.variables,
            **variables,
            "TORCHINDUCTOR_CACHE_DIR": str(Path(folder, "cache")),
            "TORCHINDUCTOR_FX_GRAPH_CACHE": "0",  # a graph of one try is no answer for the next
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "0",
        }
        command = [environment.python, "-m", "torchzoo.history.inductor_script", str(task_file), str(answer_file)]
        try:
            done = run_without_input(command, every, LIMIT_S)
        except subprocess.TimeoutExpired:
            return no_answer(task, f"bisecting inductor took longer than {LIMIT_S:g} s")
        except OSError as error:
            return no_answer(task, f"can't start {command[0]}: {error.strerror or error}")
        answer = attempt(lambda: read_json(answer_file, Inside))
    if isinstance(answer, Inside):
        return answer
    status = done.returncode
    how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
    *_, last = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
    return no_answer(task, f"the process that bisected inductor {how}: {last}")
