"""Options that choose what is measured and how. Each option is declared once, with its spelling, parser and effect.

`torchzoo run`, `ab`, `bisect` and `watch` have all options; userbenchmarks and studies have some, which replace the
plan's values. `torchzoo.run` takes them as keywords.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from torchzoo import backends
from torchzoo.case import AXES, EAGER, Axes, Axis, Case, Mode, Parallel
from torchzoo.commands.arguments import (
    MOST_REPEATS,
    add_models,
    backends_of,
    batch_sizes,
    budget,
    choices,
    chosen_models,
    counts,
    devices_of,
    folder,
    indices,
    positive_int,
    recorded_path,
    repeat_count,
    seconds,
    seed,
    size_in_bytes,
    usable_path,
)
from torchzoo.errors import UsageError
from torchzoo.run.request import RunRequest
from torchzoo.settings import CacheMode, Pass, Settings, StageLimits

#: The default limit of a stage, in seconds.
TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Option:
    """An option of commands that measure. Its default, None, leaves the request unchanged."""

    flags: str  # in words; the last is the name
    sets: str  # fields of a `RunRequest` that get the value, in words: `settings.threads`
    read: Callable[[str], Any]  # parses a word; may raise ArgumentTypeError, which UsageError is
    metavar: str
    help: str
    default: str = ""  # description of the default in the help

    @property
    def name(self) -> str:
        """The keyword in Python, and the destination in argparse."""
        return self.flags.split()[-1].lstrip("-").replace("-", "_")

    def add(self, parser: Any, default: str | None = None) -> None:
        """Add the option to a parser; `default` replaces its own description of the default."""
        said = self.default if default is None else default
        text = self.help + (f" (default: {said})" if said else "")
        parser.add_argument(*self.flags.split(), dest=self.name, type=self.read, metavar=self.metavar, help=text)


def _parallels(text: str) -> tuple[Parallel, ...]:
    found = choices(text, Parallel, "kind of parallelism")
    if Parallel.NONE in found:
        raise UsageError("--parallel none: write --world 1 instead")
    return found


#: Parsers of the axes that are not enums.
_READERS: dict[str, Callable[[str], Any]] = {
    "device": devices_of,
    "backend": backends_of,
    "batch_size": batch_sizes,
    "world": counts,
    "parallel": _parallels,
    "seed": seed,
}
_AXIS_DEFAULTS = {
    "mode": str(Mode.EVAL),
    "device": "the accelerator, else cpu",
    "batch_size": "in evaluation the batch that `torchzoo doctor --batches` found for the device, else the model's own",
    "parallel": str(Parallel.DDP),
}


def axis_reader(axis: Axis) -> Callable[[str], Any]:
    """The parser of a comma list of values of the axis."""
    return _READERS.get(axis.name) or partial(
        choices, known=axis.kind.__members__.values(), what=axis.name.replace("_", " ")
    )


def axis_help(axis: Axis) -> str:
    """The help of the axis' option, with all known values."""
    known: Iterable[object] = backends.BACKENDS if axis.name == "backend" else ()
    if hasattr(axis.kind, "__members__"):
        known = [one for one in axis.kind if one is not Parallel.NONE]
    return axis.help.format(known=", ".join(map(str, known)))


def _of_axis(axis: Axis) -> Option:
    return Option(
        flags=" ".join(axis.options),
        sets=f"axes.{axis.plural}",
        read=axis_reader(axis),
        metavar=axis.metavar,
        help=axis_help(axis),
        default=_AXIS_DEFAULTS.get(axis.name, "" if axis.default is None else str(axis.default)),
    )


def _cache(text: str) -> CacheMode | Path:
    """Read `cold`, `warm`, or the path of a folder that the cases share."""
    if text in (CacheMode.COLD, CacheMode.WARM):
        return CacheMode(text)
    if text == CacheMode.SHARED:
        raise UsageError("--cache: name the folder that the cases share, or write cold or warm")
    return recorded_path(text)


def _limit(flag: str, fields: str, text: str, default: str = "") -> Option:
    sets = " ".join(f"settings.limits.{name}" for name in fields.split())
    return Option(flag, sets, seconds, "S", text, default)


_OPTIONS = (
    *map(_of_axis, AXES),
    Option(
        "--batch-file",
        "batch_file",
        usable_path,
        "F",
        "evaluation batches by `torchzoo doctor --batches`",
        "torchzoo's own",
    ),
    Option(
        "--repeats",
        "axes.repeats",
        repeat_count,
        "N",
        f"processes that measure each case, to know how much processes differ; at most {MOST_REPEATS}",
        "1",
    ),
    Option("--threads", "settings.threads", positive_int, "N", "CPU threads", "PyTorch's choice"),
    Option(
        "--time-limit",
        "settings.time_limit_s",
        seconds,
        "S",
        "the most seconds of timing, if the interval stays wide",
        f"{Settings().time_limit_s:g}",
    ),
    Option(
        "--budget",
        "budget",
        budget,
        "T",
        "how long steps are timed on each device over all cases, such as 90s, 15m or 1h: each case has an equal share, "
        "and goes beyond it, up to --time-limit, only where that brings its interval down to 1%%; auto: by the number "
        "of cases",
        "auto for `torchzoo run` without --time-limit, else none",
    ),
    _limit(
        "--timeout",
        "build_s compile_s measure_s alone_s",
        "seconds a stage (build, compile, measure) may take before it is killed",
        f"{TIMEOUT_S:g}",
    ),
    _limit("--build-timeout", "build_s", "--timeout for the stage build alone"),
    _limit("--compile-timeout", "compile_s", "--timeout for the stage compile alone"),
    _limit("--measure-timeout", "measure_s", "--timeout for the stage measure alone"),
    _limit(
        "--alone-timeout",
        "alone_s",
        "--timeout for the process of --memory-alone; the case continues without its figures",
    ),
    Option(
        "-j --jobs",
        "jobs",
        positive_int,
        "N",
        "workers that prepare cases at the same time",
        "one for each core; on the CPU the number of cores over --threads",
    ),
    Option("--devices", "device_indices", indices, "I[,I]", "accelerators to spread the cases over: 0,1,2"),
    Option(
        "--host-memory-limit",
        "settings.host_memory_limit_bytes",
        size_in_bytes,
        "SIZE",
        "limit of a worker's host memory for data, such as 8GiB",
    ),
    Option(
        "--cache",
        "settings.cache settings.cache_dir",
        _cache,
        "C",
        "the compilers' caches when a case begins: cold (empty), warm (the case was compiled once before), or a "
        "folder that all cases share and that is kept",
        str(CacheMode.COLD),
    ),
    Option(
        "--debug",
        "settings.debug_dir",
        recorded_path,
        "DIR",
        "keep there, in a folder for each case: what compiling did (PyTorch's structured trace, for tlparse), and "
        "of a case that fails a script, reproduce.py, that stops with the same error (compile times then include "
        "writing the trace, and the record says so)",
    ),
    Option(
        "--trace",
        "settings.trace_dir",
        recorded_path,
        "DIR",
        "keep the Chrome traces of --breakdown, which this asks for, there",
    ),
)
OPTIONS = {one.name: one for one in _OPTIONS}


def add_options(parser: argparse.ArgumentParser, *, repeats: int) -> None:
    """Add the options that `run_request` reads; `repeats` is the default of `--repeats`."""
    add_models(parser)
    passes = parser.add_argument_group(
        "passes", "more about each case, in steps of their own after the timing (--check-only: instead of it)"
    )
    for name, option in OPTIONS.items():
        if name != "trace":
            option.add(parser, str(repeats) if name == "repeats" else None)
    parser.add_argument(
        "--exclusive", action="store_true", help="prepare one case at a time, for wall-clock compile times"
    )
    for one in Pass:
        passes.add_argument(_flag(one), dest="passes", action="append_const", const=one, help=one.help)
    OPTIONS["trace"].add(passes)


def add_some(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Add options that replace values of a plan."""
    for name in names:
        OPTIONS[name].add(parser, default="the plan's own")


def add_nightly_index(parser: argparse.ArgumentParser) -> None:
    """Add the option that `history.specs.with_index` writes into SPECs."""
    parser.add_argument(
        "--nightly-index",
        metavar="URL",
        help="an index beside pip's own, such as that of PyTorch's nightlies; the same as index=URL in each SPEC",
    )


def run_request(arguments: argparse.Namespace, *, repeats: int = 1) -> RunRequest:
    """The request of a command with the options of `add_options`; `repeats` is the default of `--repeats`."""
    patterns, suites = chosen_models(arguments)
    request = RunRequest(
        patterns=patterns,
        suites=suites,
        axes=Axes(modes=(Mode.EVAL,), devices=(), backends=(EAGER,), parallels=(Parallel.DDP,), repeats=repeats),
        settings=Settings(
            passes=_passes(arguments),
            limits=StageLimits(build_s=TIMEOUT_S, compile_s=TIMEOUT_S, measure_s=TIMEOUT_S, alone_s=TIMEOUT_S),
        ),
        models_dirs=tuple(map(str, arguments.models_dir)),
    )
    request = applied(request, arguments)
    return msgspec.structs.replace(request, jobs=1) if arguments.exclusive else request


def applied(request: RunRequest, arguments: argparse.Namespace) -> RunRequest:
    """The request with the values of all given options."""
    for name, option in OPTIONS.items():
        value = getattr(arguments, name, None)
        if value is None:
            continue
        if name in ("cache", "debug", "trace") and isinstance(value, Path):
            value = folder(value, f"--{name}")
        kept = str(value) if isinstance(value, Path) else value  # settings are kept as JSON
        if name == "cache":
            kept = (CacheMode.SHARED, kept) if isinstance(value, Path) else (value, None)
        for number, path in enumerate(option.sets.split()):
            request = _with(request, path, kept[number] if name == "cache" else kept)
    return request


def _with(struct: Any, path: str, value: Any) -> Any:
    """A copy of the struct with `value` at a path such as `settings.threads`."""
    name, _, rest = path.partition(".")
    return msgspec.structs.replace(struct, **{name: _with(getattr(struct, name), rest, value) if rest else value})


def _flag(one: Pass) -> str:
    return f"--{one.replace('_', '-')}"


def _passes(arguments: argparse.Namespace) -> tuple[Pass, ...]:
    asked = set(arguments.passes or ())
    if arguments.trace is not None:
        asked.add(Pass.BREAKDOWN)
    if Pass.CHECK_ONLY in asked and (others := asked - {Pass.CHECK, Pass.CHECK_ONLY}):
        names = ", ".join(_flag(one) for one in Pass if one in others)
        raise UsageError(f"--check-only times nothing: leave it out, or what comes after the timing ({names})")
    return (Pass.CHECK_ONLY,) if Pass.CHECK_ONLY in asked else tuple(one for one in Pass if one in asked)


_EAGER_ALONE = "all cases are eager alone, which compiles nothing"
_NOT_TIMED = "--check-only times nothing"


def _compiles(_: argparse.Namespace, cases: Collection[Case]) -> bool:
    return any(case.backend != EAGER for case in cases)


def _is_timed(arguments: argparse.Namespace, _: Collection[Case]) -> bool:
    return Pass.CHECK_ONLY not in (arguments.passes or ())


def _keeps_backends(arguments: argparse.Namespace, cases: Collection[Case]) -> bool:
    """Whether each named backend has cases: eager has none of its own beside another backend."""
    names = {one.name for one in arguments.backend or ()}
    return EAGER.name not in names or len(names) == 1 or not _compiles(arguments, cases)


#: When an option or a pass that was asked for has an effect on the cases, and why it has none otherwise.
EFFECTS: dict[str, tuple[Callable[[argparse.Namespace, Collection[Case]], bool], str]] = {
    "backend": (_keeps_backends, "for eager: the others are measured in turns with eager"),
    "parallel": (
        lambda _, cases: any(case.world > 1 for case in cases),
        "each case has one rank; --world N gives it more",
    ),
    **{axis.name: (_compiles, _EAGER_ALONE) for axis in AXES if axis.of_compiler},
    "batch_file": (
        lambda asked, cases: asked.batch_size is None and any(case.mode is Mode.EVAL for case in cases),
        "its batches are those of evaluation without --bs",
    ),
    "time_limit": (_is_timed, _NOT_TIMED),
    "budget": (_is_timed, _NOT_TIMED),
    "measure_timeout": (_is_timed, _NOT_TIMED),
    "alone_timeout": (
        lambda asked, cases: Pass.MEMORY_ALONE in (asked.passes or ()) and _compiles(asked, cases),
        "it limits the process of --memory-alone, and no case has one",
    ),
    "jobs": (lambda asked, _: not asked.exclusive, "--exclusive prepares one case at a time"),
    "devices": (lambda _, cases: any(case.device_type != "cpu" for case in cases), "all cases are on the CPU"),
    "cache": (_compiles, _EAGER_ALONE),
    "compile_stats": (_compiles, _EAGER_ALONE),
    "memory_alone": (_compiles, _EAGER_ALONE),
    "energy": (
        lambda _, cases: any(case.device_type == "cuda" for case in cases),
        "it reads NVML's counter, which NVIDIA's GPUs have",
    ),
}


def without_effect(arguments: argparse.Namespace, cases: Collection[Case]) -> list[str]:
    """A line for each given option of `torchzoo run` that has no effect on the planned cases; none without cases."""
    given = [name for name in EFFECTS if getattr(arguments, name, None) or name in (arguments.passes or ())]
    return [
        f"--{name.replace('_', '-')} has no effect: {why}"
        for name in given
        for has_effect, why in [EFFECTS[name]]
        if cases and not has_effect(arguments, cases)
    ]
