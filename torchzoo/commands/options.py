"""Options that choose what is measured and how. Each option is declared once, with its spelling, parser and effect.

`torchzoo run`, `ab`, `bisect` and `watch` have all options; userbenchmarks and studies have some, which replace the
plan's values. `torchzoo.run` takes them as keywords.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
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
class GivenOptions:
    """The given options, and the request's cases on the machine that measures."""

    arguments: argparse.Namespace
    cases: Collection[Case]

    @property
    def compiles(self) -> bool:
        """Whether a case has a backend beside eager."""
        return any(case.backend != EAGER for case in self.cases)

    def has(self, one: Pass) -> bool:
        """Whether the pass was requested."""
        return one in (self.arguments.passes or ())


@dataclass(frozen=True)
class Option:
    """An option of commands that measure. Its default, None, leaves the request unchanged."""

    flags: tuple[str, ...]  # the last is the name
    sets: tuple[str, ...]  # fields of a `RunRequest` that get the value: `settings.threads`
    read: Callable[[str], Any]  # parses a word; may raise ArgumentTypeError, which UsageError is
    metavar: str
    help: str
    default: str = ""  # description of the default in the help
    has_effect: Callable[[GivenOptions], bool] = field(default=lambda _: True)
    without: str = ""  # message for a given option without effect

    @property
    def name(self) -> str:
        """The keyword in Python, and the destination in argparse."""
        return self.flags[-1].lstrip("-").replace("-", "_")

    def add(self, parser: Any, default: str | None = None) -> None:
        """Add the option to a parser; `default` replaces its own description of the default."""
        said = self.default if default is None else default
        text = self.help + (f" (default: {said})" if said else "")
        parser.add_argument(*self.flags, dest=self.name, type=self.read, metavar=self.metavar, help=text)


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
    return _READERS.get(axis.name) or partial(choices, kind=axis.kind, what=axis.name.replace("_", " "))


def axis_help(axis: Axis) -> str:
    """The help of the axis' option, with all known values."""
    known: Iterable[object] = backends.BACKENDS if axis.name == "backend" else ()
    if hasattr(axis.kind, "__members__"):
        known = [one for one in axis.kind if one is not Parallel.NONE]
    return axis.help.format(known=", ".join(map(str, known)))


def _folds_eager(asked: GivenOptions) -> bool:
    names = [one.name for one in asked.arguments.backend or ()]
    return EAGER.name in names and len(set(names)) > 1 and asked.compiles


def _is_timed(asked: GivenOptions) -> bool:
    return not asked.has(Pass.CHECK_ONLY)


_EAGER_ALONE = "all cases are eager alone, which compiles nothing"
_NOT_TIMED = "--check-only times nothing"
_AXIS_EFFECTS: dict[str, tuple[Callable[[GivenOptions], bool], str]] = {
    "backend": (
        lambda asked: not _folds_eager(asked),
        "eager is measured in turns with each other backend, and not alone again",
    ),
    "parallel": (
        lambda asked: any(case.world > 1 for case in asked.cases),
        "--parallel has no effect: each case has one rank; --world N gives it more",
    ),
    **{
        axis.name: (lambda asked: asked.compiles, f"{axis.options[-1]} has no effect: {_EAGER_ALONE}")
        for axis in AXES
        if axis.of_compiler
    },
}


def _of_axis(axis: Axis) -> Option:
    has_effect, without = _AXIS_EFFECTS.get(axis.name, (lambda _: True, ""))
    return Option(
        flags=axis.options,
        sets=(f"axes.{axis.plural}",),
        read=axis_reader(axis),
        metavar=axis.metavar,
        help=axis_help(axis),
        default=_AXIS_DEFAULTS.get(axis.name, "" if axis.default is None else str(axis.default)),
        has_effect=has_effect,
        without=without,
    )


def _cache(text: str) -> CacheMode | Path:
    """Read `cold`, `warm`, or the path of a folder that the cases share."""
    if text in (CacheMode.COLD, CacheMode.WARM):
        return CacheMode(text)
    if text == CacheMode.SHARED:
        raise UsageError("--cache: name the folder that the cases share, or write cold or warm")
    return recorded_path(text)


def _limit(flag: str, fields: tuple[str, ...], text: str, default: str = "", **effect: Any) -> Option:
    sets = tuple(f"settings.limits.{name}" for name in fields)
    return Option(flags=(flag,), sets=sets, read=seconds, metavar="S", help=text, default=default, **effect)


_OPTIONS = (
    *map(_of_axis, AXES),
    Option(
        flags=("--batch-file",),
        sets=("batch_file",),
        read=usable_path,
        metavar="F",
        help="evaluation batches by `torchzoo doctor --batches`",
        default="torchzoo's own",
        has_effect=lambda asked: (
            asked.arguments.batch_size is None and any(case.mode is Mode.EVAL for case in asked.cases)
        ),
        without="--batch-file has no effect: its batches are those of evaluation without --bs",
    ),
    Option(
        flags=("--repeats",),
        sets=("axes.repeats",),
        read=repeat_count,
        metavar="N",
        help=f"processes that measure each case, to know how much processes differ; at most {MOST_REPEATS}",
        default="1",
    ),
    Option(
        flags=("--threads",),
        sets=("settings.threads",),
        read=positive_int,
        metavar="N",
        help="CPU threads",
        default="PyTorch's choice",
    ),
    Option(
        flags=("--time-limit",),
        sets=("settings.time_limit_s",),
        read=seconds,
        metavar="S",
        help="the most seconds of timing, if the interval stays wide",
        default=f"{Settings().time_limit_s:g}",
        has_effect=_is_timed,
        without=f"--time-limit has no effect: {_NOT_TIMED}",
    ),
    _limit(
        "--timeout",
        ("build_s", "compile_s", "measure_s", "alone_s"),
        "seconds a stage (build, compile, measure) may take before it is killed",
        f"{TIMEOUT_S:g}",
    ),
    _limit("--build-timeout", ("build_s",), "--timeout for the stage build alone"),
    _limit("--compile-timeout", ("compile_s",), "--timeout for the stage compile alone"),
    _limit(
        "--measure-timeout",
        ("measure_s",),
        "--timeout for the stage measure alone",
        has_effect=_is_timed,
        without=f"--measure-timeout has no effect: {_NOT_TIMED}",
    ),
    _limit(
        "--alone-timeout",
        ("alone_s",),
        "--timeout for the process of --memory-alone; the case continues without its figures",
        has_effect=lambda asked: asked.compiles and asked.has(Pass.MEMORY_ALONE),
        without="--alone-timeout has no effect: it limits the process of --memory-alone, and no case has one",
    ),
    Option(
        flags=("-j", "--jobs"),
        sets=("jobs",),
        read=positive_int,
        metavar="N",
        help="workers that prepare cases at the same time",
        default="one for each core; on the CPU the number of cores over --threads",
        has_effect=lambda asked: not asked.arguments.exclusive,
        without="--jobs has no effect: --exclusive prepares one case at a time",
    ),
    Option(
        flags=("--devices",),
        sets=("device_indices",),
        read=indices,
        metavar="I[,I]",
        help="accelerators to spread the cases over: 0,1,2",
        has_effect=lambda asked: any(case.device_type != "cpu" for case in asked.cases),
        without="--devices has no effect: all cases are on the CPU",
    ),
    Option(
        flags=("--host-memory-limit",),
        sets=("settings.host_memory_limit_bytes",),
        read=size_in_bytes,
        metavar="SIZE",
        help="limit of a worker's host memory for data, such as 8GiB",
    ),
    Option(
        flags=("--cache",),
        sets=("settings.cache", "settings.cache_dir"),
        read=_cache,
        metavar="C",
        help="the compilers' caches when a case begins: cold (empty), warm (the case was compiled once before), or a "
        "folder that all cases share and that is kept",
        default=str(CacheMode.COLD),
        has_effect=lambda asked: asked.compiles,
        without=f"--cache has no effect: {_EAGER_ALONE}",
    ),
    Option(
        flags=("--debug",),
        sets=("settings.debug_dir",),
        read=recorded_path,
        metavar="DIR",
        help="keep there, in a folder for each case: what compiling did (PyTorch's structured trace, for tlparse), and "
        "of a case that fails a script, reproduce.py, that stops with the same error (compile times then include "
        "writing the trace, and the record says so)",
    ),
    Option(
        flags=("--trace",),
        sets=("settings.trace_dir",),
        read=recorded_path,
        metavar="DIR",
        help="keep the Chrome traces of --breakdown, which this asks for, there",
    ),
)
OPTIONS = {one.name: one for one in _OPTIONS}

#: Condition under which a requested pass has an effect, and the message if it has none.
_PASS_EFFECTS: dict[Pass, tuple[Callable[[GivenOptions], bool], str]] = {
    Pass.MEMORY_ALONE: (lambda asked: asked.compiles, f"--memory-alone has no effect: {_EAGER_ALONE}"),
    Pass.ENERGY: (
        lambda asked: any(case.device_type == "cuda" for case in asked.cases),
        "no energy will be known: --energy reads NVML's counter, which NVIDIA's GPUs have",
    ),
}


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
    """The request of a command with the options of `add_options`; `repeats` is the default of `--repeats`.

    Raises:
        UsageError: a folder can't be made, options contradict each other, or no model or suite is named.
    """
    patterns, suites = chosen_models(arguments)
    request = RunRequest(
        patterns=patterns,
        suites=suites,
        axes=Axes(
            modes=(Mode.EVAL,),
            devices=(),
            backends=(EAGER,),
            parallels=(Parallel.DDP,),
            repeats=repeats,
        ),
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
        values = [kept] * len(option.sets)
        if name == "cache":
            values = [CacheMode.SHARED, kept] if isinstance(value, Path) else [value, None]
        for path, one in zip(option.sets, values, strict=True):
            request = _with(request, path, one)
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


def without_effect(arguments: argparse.Namespace, cases: Collection[Case]) -> list[str]:
    """A line for each given option of `torchzoo run` that has no effect on these cases.

    Args:
        arguments: what the parser returned.
        cases: all planned cases; empty if they are not known, which gives no lines.
    """
    asked = GivenOptions(arguments, cases)
    given = [option for name, option in OPTIONS.items() if getattr(arguments, name) is not None]
    found = [(one.has_effect, one.without) for one in given]
    found += [effect for one, effect in _PASS_EFFECTS.items() if asked.has(one)]
    found += [(lambda _: asked.compiles, f"--compile-stats has no effect: {_EAGER_ALONE}")] * arguments.compile_stats
    return [says for has_effect, says in found if cases and not has_effect(asked)]
