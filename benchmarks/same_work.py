"""Whether compiled steps do the work of eager's, over the zoo: operators left to eager, and work that differs.

    python benchmarks/same_work.py all -d cuda --jobs 12 > same_work.md
    python benchmarks/same_work.py 'hf:*' 'timm:*' -d cpu --jobs 2

Each case takes its steps at the smoke batch size in a process of its own, in the model's small form where it has one,
and with Dynamo's backend `aot_eager`: what Dynamo captures does not depend on the compiler behind it. Nothing is timed.
The table has the cases that `torchzoo run --check` would refuse, and those whose metadata names a reason. The lines
above it count all.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

from torchzoo.case import Backend, Case, Mode, Precision
from torchzoo.report import markdown
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

PRELOAD = [
    "torch",
    "torch._dynamo",
    "torch._functorch.aot_autograd",
    "torchvision",
    "timm",
    "transformers",
    "torchzoo.measure.measure_case",
]
LIMIT_S = 240
UNKNOWN_GIB = 6  # what a case is taken to need where its metadata has no figure


class Found(NamedTuple):
    """The outcome of one case."""

    outcome: str  # same, refused, by nature, skipped, failed
    reason: str = ""
    in_eager: int | None = None
    operators: int | None = None
    refused_functions: int = 0


def look(case: Case, spec: ModelSpec, answer: Connection) -> None:
    """Compare the work of a case's variants in this process."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    try:
        answer.send(_look(case, spec))
    except Exception as error:  # noqa: BLE001  what fails is a row
        line = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        outcome = "skipped" if type(error).__name__ == "NotRunnable" else "failed"
        answer.send(Found(outcome, f"{type(error).__name__}: {line}"))


def _look(case: Case, spec: ModelSpec) -> Found:
    from torchzoo.analysis.refusals import EAGER_SHARE_LIMIT, why_unequal
    from torchzoo.measure.case_rank import CaseRank
    from torchzoo.measure.compilation import count_compiled, require_eager, watch_compilation
    from torchzoo.measure.passes.coverage import measure_coverage
    from torchzoo.measure.passes.flops import count_work
    from torchzoo.measure.process_group import use_device

    own = CaseRank(case, spec, use_device(case.device, 1))
    own.load()
    own.model_class = own.model_class.small() or own.model_class
    own.build()
    own.prepare()
    watch = watch_compilation()
    eager = own.variants["eager"]
    eager.select()
    eager.step()
    require_eager(own.model, watch)
    own.inspect()
    own.add_candidate()
    candidate = own.variants["candidate"]
    candidate.select()
    for _ in range(3):
        candidate.step()
    counts = count_compiled(watch, case, None)
    assert counts is not None
    of_candidate = count_work(candidate.step)
    coverage = measure_coverage(eager, candidate, candidate.modules)
    eager.select()
    reason = why_unequal(count_work(eager.step), of_candidate)
    outcome = "refused" if reason else "same"
    by_nature = next((rule.reason for rule in spec.unequal_work if rule.matches(case)), "")
    if reason and by_nature:
        outcome, reason = "by nature", f"{by_nature} ({reason})"
    if coverage is not None and coverage.eager_share > EAGER_SHARE_LIMIT:
        outcome, reason = "refused", "; ".join(filter(None, ["ran in eager", reason]))
    if coverage is None:
        return Found(outcome, reason, refused_functions=len(counts.refused))
    return Found(outcome, reason, coverage.in_eager, coverage.operators, len(counts.refused))


class Memory:
    """Device memory that cases may take together, in GiB."""

    def __init__(self, gib: float) -> None:
        self.free, self.most, self.changed = gib, gib, threading.Condition()

    def take(self, gib: float) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self.free >= min(gib, self.most))
            self.free -= min(gib, self.most)

    def give(self, gib: float) -> None:
        with self.changed:
            self.free += min(gib, self.most)
            self.changed.notify_all()


def looked_at(memory: Memory, spec: ModelSpec, case: Case) -> Found:
    """Compare the work of a case's variants in a process of its own."""
    skip = next((rule.reason for rule in spec.skips if rule.matches(case)), None)
    if skip is not None:
        return Found("skipped", skip)
    gib = spec.device_memory_gib.get(case.mode, UNKNOWN_GIB)
    memory.take(gib)
    context = multiprocessing.get_context("forkserver")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=look, args=(case, spec, there))
    try:
        process.start()
        there.close()
        if not here.poll(LIMIT_S):
            process.kill()
            return Found("failed", f"took longer than {LIMIT_S} s")
        try:
            found: Found = here.recv()
        except EOFError:
            process.join()
            return Found("failed", f"the process ended with {process.exitcode}")
        return found
    finally:
        process.join()
        memory.give(gib)


def main(words: Sequence[str]) -> None:
    """Look at all cases, and print what was found as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-t", "--modes", default=",".join(Mode))
    parser.add_argument("--precision", default=Precision.DEFAULT, type=Precision)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--memory", type=float, default=120, help="device memory for all cases together, in GiB")
    options = parser.parse_args(words)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # else CUDA does not start in a forked process
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # nothing is timed, and each job would take all cores
    multiprocessing.set_forkserver_preload(PRELOAD)
    catalog = find_models()
    specs, _ = catalog.specs_of(catalog.select(options.models))
    modes = [Mode(mode) for mode in options.modes.split(",")]
    cases = [
        (
            spec,
            Case(
                model=spec.name,
                mode=mode,
                device=options.device,
                batch_size=spec.smoke_batch_size,
                precision=options.precision,
                backend=Backend("aot_eager"),
            ),
        )
        for spec in specs
        for mode in spec.modes()
        if mode in modes
    ]
    cases.sort(key=lambda one: -one[0].device_memory_gib.get(one[1].mode, 0))
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(partial(_reported, Memory(options.memory), began), *zip(*cases, strict=True)))
    outcomes = Counter(found.outcome for found in rows)
    refused_functions = sum(found.refused_functions > 0 for found in rows)
    print(", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()))
    print(f"Dynamo reached its limit of recompilations in {refused_functions} cases.\n")
    shown = [
        (
            case.model,
            case.mode,
            found.outcome,
            "" if found.operators is None else f"{found.in_eager:,} of {found.operators:,}",
            str(found.refused_functions or ""),
            found.reason,
        )
        for (_, case), found in zip(cases, rows, strict=True)
        if found.outcome not in ("same", "skipped") or found.refused_functions or found.in_eager
    ]
    headings = ("model", "mode", "outcome", "operators in eager", "functions at the limit", "reason")
    print(*markdown.table(headings, sorted(shown)), sep="\n")


def _reported(memory: Memory, began: float, spec: ModelSpec, case: Case) -> Found:
    found = looked_at(memory, spec, case)
    print(f"{time.monotonic() - began:.0f} s: {case.label()}: {found}", file=sys.stderr, flush=True)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
