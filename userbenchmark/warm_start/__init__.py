"""How long a new process waits for its first result: eager, compiled cold, from caches, from a package.

Each process is a fresh Python. Its clock starts before Python does, and ends when the first step is done on the device.
`cold` compiles with inductor into empty caches. `disk cache` finds the caches (inductor's FX graphs, AOTAutograd's,
Triton's) that an earlier process left on the disk. `mega-cache` begins with an empty disk, and loads one file that an
earlier process wrote with `torch.compiler.save_cache_artifacts`. `package` loads what AOTInductor made, in evaluation.
Each has five processes, unless `--repeats` says otherwise, in turns: eager, cold, disk, mega, package, and back in the
other order, so that what drifts meets all alike. A process before them fills the caches. Nothing else runs meanwhile,
unless `--jobs` or `--devices` let processes of several cases run at once, each with as many cores of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

import msgspec

from torchzoo import backends, stats
from torchzoo.analysis.cases import by_case
from torchzoo.analysis.means import geomean
from torchzoo.case import Axes, Backend, Case, Mode
from torchzoo.errors import UsageError
from torchzoo.measure.fresh_turns import CacheCounts, FirstResult, Packages, Turn
from torchzoo.record import Took
from torchzoo.report import units
from torchzoo.report.document import Block, Heading, table
from torchzoo.run.plan import skip_reason
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings, StageLimits
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, without_result
from torchzoo.zoo.spec import ModelSpec

PROCESSES = 5
SEVERAL_AT_ONCE = True  # the times of imports and compilations, not of steps
EAGER, COLD, DISK, MEGA, PACKAGE = "eager", "cold", "disk cache", "mega-cache", "package"
VARIANTS = (EAGER, COLD, DISK, MEGA, PACKAGE)
FILLING, PACKING = "filling the caches", "making the package"
FUNCTIONS = "torchzoo.measure.first_result"
AOTI = Backend("aoti")

DEFAULT_MODELS = (
    "alexnet",
    "basic_gnn_gcn",
    "BERT_pytorch",
    "dcgan",
    "dlrm",
    "hf_Albert",
    "hf_Bert",
    "hf_GPT2",
    "hf_T5",
    "hf_Whisper",
    "LearningToPaint",
    "lennard_jones",
    "mobilenet_v2",
    "pytorch_unet",
    "resnet18",
    "resnet50",
    "soft_actor_critic",
    "timm_efficientnet",
    "timm_vision_transformer",
    "tts_angular",
)

READING = """## How to read it, and where it can mislead

- The time has four parts. *Import*: Python's own start, torch, the model's library. *Build*: the model and its batch
  are made on the device. *Load*: the file of the mega-cache, or the packages, are read. *First step*: what was not
  found is compiled, the compiler itself is imported, and the step is taken. A value is the median over processes. An
  interval is that of order statistics: five processes give at most 94%. Then its confidence stands behind it.
- Other processes have read the files of Python and torch before, so these are in the system's memory.
- A package needs no network in Python. Here the model is built all the same, since its step calls the package. A
  program that has only inputs and the package does not wait for the model's import and build.
- *From the caches* is what PyTorch's counters say. If a graph was compiled again although a cache was there, the row
  says so, and is in no mean.
- *Built* counts shared libraries that were compiled from C++. On the CPU the mega-cache has the generated code, but not
  what the C++ compiler makes of it: a row can find all graphs and still wait for `g++`. In an empty folder PyTorch also
  compiles small programs, to find out which vector instructions it can use; so it does when it loads a package.
  (`TORCHINDUCTOR_VEC_ISA_OK=1` leaves them out: then it asks the processor alone.)
"""


def plan(choice: Choice) -> RunRequest:
    """20 models in evaluation with inductor. `repeats` is the number of processes of each variant."""
    return RunRequest(
        patterns=choice.patterns if choice.names_models else DEFAULT_MODELS,
        suites=choice.suites,
        models_dirs=choice.models_dirs,
        axes=Axes(modes=(Mode.EVAL,), devices=(), backends=(Backend("inductor"),), repeats=PROCESSES),
        settings=Settings(limits=StageLimits(build_s=120.0, compile_s=400.0, measure_s=120.0)),
    )


def turns(case: Case, spec: ModelSpec, repeats: int) -> list[Turn]:
    """The processes that prepare, then all variants in turns.

    Raises:
        UsageError: the backend does not use Dynamo, so there are no caches.
    """
    if not backends.info(case.backend.name).uses_dynamo:
        raise UsageError(f"warm_start measures what is compiled behind Dynamo, and {case.backend} is not")
    no_package = skip_reason(msgspec.structs.replace(case, backend=AOTI), spec, {}) or ""
    found = [
        Turn(role=FILLING, function=f"{FUNCTIONS}:fill_caches", cache="disk"),
        Turn(role=PACKING, function=f"{FUNCTIONS}:package", skip=no_package),
    ]
    one_round = [
        Turn(role=EAGER, function=f"{FUNCTIONS}:eager"),
        Turn(role=COLD, function=f"{FUNCTIONS}:compiled"),
        Turn(role=DISK, function=f"{FUNCTIONS}:compiled", cache="disk", needs=FILLING),
        Turn(role=MEGA, function=f"{FUNCTIONS}:compiled_with_artifacts", needs=FILLING),
        Turn(role=PACKAGE, function=f"{FUNCTIONS}:packaged", needs=PACKING),
    ]
    for number in range(repeats):
        order = one_round if number % 2 == 0 else one_round[::-1]
        found += [msgspec.structs.replace(turn, number=number) for turn in order]
    return found


# --- the report ---


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """All processes of one variant of a case."""

    case: Case
    variant: str
    processes: tuple[FirstResult, ...]

    @property
    def total_s(self) -> stats.Estimate:
        return stats.median_estimate([one.total_s for one in self.processes])

    def part_s(self, name: str) -> float:
        return median(float(getattr(one, name)) for one in self.processes)


def starts(run: Run) -> dict[Case, dict[str, Start]]:
    """The processes by case and variant, in the order of `VARIANTS`."""
    found: dict[Case, dict[str, Start]] = {}
    for case, records in by_case(run.records).items():
        for variant in VARIANTS:
            results = tuple(
                msgspec.convert(record.outcome.result, FirstResult)
                for record in records
                if record.role == variant and isinstance(record.outcome, Took)
            )
            if results:
                found.setdefault(case, {})[variant] = Start(case=case, variant=variant, processes=results)
    return found


def report(run: Run) -> list[Block | str]:
    """The report: means over cases, then the times of each case, their parts, and the work of the caches."""
    found = starts(run)
    if not found:
        return ["No process has a result yet.", *without_result(run)]
    lines: list[Block | str] = [Heading("Time to the first result, over all cases"), table(*_means(found))]
    at_once = list(dict.fromkeys(part.manifest.settings.jobs for part in run.parts))
    if at_once != [1]:
        jobs = " or ".join(map(str, at_once))
        lines += [f"{jobs} processes ran at once, of different cases, each on its own share of the cores.", ""]
    lines += [Heading("Time to the first result"), table(*_times(found))]
    lines += [Heading("Its parts, and where the code came from"), table(*_parts(found))]
    lines += [Heading("What is kept"), table(*_sizes(run))]
    return [*lines, READING, *without_result(run)]


Table = tuple[Sequence[str], list[Sequence[str]]]


def _means(found: dict[Case, dict[str, Start]]) -> Table:
    """The speedups over cold: geometric means over the cases that have both variants without a problem."""
    rows: list[Sequence[str]] = []
    for mode in Mode:
        for variant in (EAGER, DISK, MEGA, PACKAGE):
            whole, step, missed = [], [], 0
            for case, by_variant in found.items():
                if case.mode is not mode or not {COLD, variant} <= set(by_variant):
                    continue
                cold, warm = by_variant[COLD], by_variant[variant]
                if problem(cold) or problem(warm):
                    missed += 1
                    continue
                whole.append([cold.total_s.value / warm.total_s.value])
                step.append([_after_build_s(cold) / _after_build_s(warm)])
            if whole:
                rows.append(
                    (
                        mode,
                        variant,
                        units.speedup(geomean(whole)),
                        units.speedup(geomean(step)),
                        str(len(whole)),
                        str(missed or ""),
                    )
                )
            elif missed:
                rows.append((mode, variant, "", "", "0", str(missed)))
    return ("mode", "against cold", "times as fast", "load and first step alone", "cases", "left out"), rows


def _after_build_s(start: Start) -> float:
    return median(one.load_s + one.step_s for one in start.processes)


def _times(found: dict[Case, dict[str, Start]]) -> Table:
    rows: list[Sequence[str]] = []
    for case, by_variant in found.items():
        rows.append((_label(case), *(_total(by_variant.get(variant)) for variant in VARIANTS)))
    return ("case", *VARIANTS), rows


def _total(start: Start | None) -> str:
    if start is None:
        return ""
    return units.latency(start.total_s) + (f" ({problem(start)})" if problem(start) else "")


def _label(case: Case) -> str:
    return case.label().replace(" inductor", "")


def _parts(found: dict[Case, dict[str, Start]]) -> Table:
    headings = ("case", "how", "import", "build", "load", "first step", "a later step", "from the caches", "built")
    names = ("import_s", "build_s", "load_s", "step_s", "later_step_s")
    rows: list[Sequence[str]] = []
    for case, by_variant in found.items():
        for variant, start in by_variant.items():
            parts = [units.seconds(start.part_s(name)) for name in names]
            if variant not in (MEGA, PACKAGE):
                parts[2] = ""
            built = start.part_s("libraries_built")
            rows.append((_label(case), variant, *parts, cache_words(start), f"{built:g}" if built else ""))
    return headings, rows


def _sizes(run: Run) -> Table:
    rows: list[Sequence[str]] = []
    for case, records in by_case(run.records).items():
        took = {record.role: record.outcome.result for record in records if isinstance(record.outcome, Took)}
        if FILLING not in took and PACKING not in took:
            continue
        filled = msgspec.convert(took[FILLING], FirstResult) if FILLING in took else None
        package = msgspec.convert(took[PACKING], Packages) if PACKING in took else None
        rows.append(
            (
                _label(case),
                units.size(filled.cache_bytes) if filled else "",
                units.size(filled.artifact_bytes) if filled else "",
                units.size(package.package_bytes) if package else "",
                units.seconds(package.compile_s) if package else "",
            )
        )
    return ("case", "caches on the disk", "file of the mega-cache", "package, with weights", "making the package"), rows


def problem(start: Start) -> str:
    """The reason why a row is not what its name says; empty if it is.

    A graph counts as found if AOTAutograd's cache had it. Then inductor's cache, which that cache reads, had it, too.
    """
    if start.variant in (DISK, MEGA) and not all(map(_found_all, start.processes)):
        return "missed the cache"
    if start.variant == COLD and any(one.autograd_cache.hits or one.inductor_cache.hits for one in start.processes):
        return "found a cache"
    return ""


def _found_all(one: FirstResult) -> bool:
    caches = (one.autograd_cache, one.inductor_cache)
    return all(cache.hits and not cache.misses and not cache.bypasses for cache in caches)


def cache_words(start: Start) -> str:
    """`all 3 graphs`, `none`, or the share of each cache if some graphs were not found."""
    if start.variant in (EAGER, PACKAGE):
        return ""
    return "; ".join(dict.fromkeys(map(_words, start.processes)))  # one entry for each kind of process


def _words(one: FirstResult) -> str:
    if _found_all(one):
        return f"all {one.autograd_cache.hits} graphs" if one.autograd_cache.hits > 1 else "the one graph"
    if not one.autograd_cache.hits and not one.inductor_cache.hits:
        bypasses = one.autograd_cache.bypasses + one.inductor_cache.bypasses
        return f"none ({bypasses} could not be cached)" if bypasses else "none"
    return f"AOTAutograd {_share(one.autograd_cache)}, inductor {_share(one.inductor_cache)}"


def _share(cache: CacheCounts) -> str:
    return f"{cache.hits} of {cache.hits + cache.misses + cache.bypasses}"
