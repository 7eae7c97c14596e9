"""The options that say what is measured and how: those of `torchzoo run`, and of commands that measure as it does."""

from __future__ import annotations

import argparse
from pathlib import Path

from torchzoo import backends
from torchzoo.case import CompileScope, MemoryFormat, Mode, Parallel, Precision
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
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.settings import CacheMode, Pass, Settings, StageLimits


def add_nightly_index(parser: argparse.ArgumentParser) -> None:
    """Add the option that `history.specs.with_index` writes into SPECs."""
    parser.add_argument(
        "--nightly-index",
        metavar="URL",
        help="an index beside pip's own, such as that of PyTorch's nightlies; the same as index=URL in each SPEC",
    )


def add_options(parser: argparse.ArgumentParser, *, repeats: int) -> None:
    """Add the options that `run_request` reads.

    Args:
        parser: of a command.
        repeats: the default of `--repeats`.
    """
    add_models(parser)
    parser.add_argument(
        "-t",
        "--mode",
        default="eval",
        metavar="M[,M]",
        help=f"{', '.join(Mode)}; the last two of models that generate (default: eval)",
    )
    parser.add_argument(
        "-d", "--device", metavar="D[,D]", help="cpu, cuda, cuda:1 ... (default: the accelerator, else cpu)"
    )
    parser.add_argument(
        "--backend",
        default="eager",
        metavar="B[,B]",
        help=f"{', '.join(backends.BACKENDS)}, or any that Dynamo has registered; modes as in inductor:reduce-overhead "
        "and torchscript:script (default: eager)",
    )
    parser.add_argument("--precision", default="default", metavar="P[,P]", help=f"{', '.join(Precision)}")
    parser.add_argument("--memory-format", default="contiguous", metavar="F[,F]", help=f"{', '.join(MemoryFormat)}")
    parser.add_argument(
        "--compile-scope",
        default=CompileScope.NETWORK.value,
        metavar="S[,S]",
        help=f"{', '.join(CompileScope)}: a backend is given each network, as by torch.compile(model); each repeated "
        "block of the networks by itself; or the whole step (default: network)",
    )
    parser.add_argument(
        "--bs",
        "--batch-size",
        metavar="N[,N]",
        help="numbers; smoke; default: each model's own; serving: a busy server's, for prefill and decode; auto: the "
        "default, doubled in eager until throughput stops rising (without --bs: in evaluation the batch that "
        "`torchzoo tune-batch` found for the device, else default)",
    )
    parser.add_argument(
        "--world",
        type=counts,
        default=(1,),
        metavar="N[,N]",
        help="how many ranks share a step, each with a device of its own; the batch is each rank's (default: 1)",
    )
    parser.add_argument(
        "--parallel",
        default=Parallel.DDP.value,
        metavar="P[,P]",
        help="what ranks do: ddp, fsdp2, or tp, where all have the same batch (default: ddp)",
    )
    parser.add_argument(
        "--batch-file",
        type=usable_path,
        metavar="F",
        help="evaluation batches by `torchzoo tune-batch` (default: torchzoo's own)",
    )
    parser.add_argument(
        "--repeats",
        type=repeat_count,
        default=repeats,
        metavar="N",
        help="how many processes measure each case, to know what differs between processes "
        f"(default: {repeats}, at most {MOST_REPEATS})",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of weights and data (default: 0)")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="CPU threads (default: PyTorch's choice)")
    defaults = Settings()
    parser.add_argument(
        "--time-limit",
        type=seconds,
        default=defaults.time_limit_s,
        metavar="S",
        help=f"the most seconds of timing, if the interval stays wide (default: {defaults.time_limit_s:g})",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=900.0,
        metavar="S",
        help="seconds a stage (build, compile, measure) may take before it is killed (default: 900)",
    )
    for stage in ("build", "compile", "measure"):
        parser.add_argument(f"--{stage}-timeout", type=seconds, metavar="S", help=f"the same for {stage} alone")
    parser.add_argument(
        "--alone-timeout",
        type=seconds,
        metavar="S",
        help="the same for the process of --memory-alone: the case goes on without its figures",
    )
    parser.add_argument(
        "-j",
        "--jobs",
        type=positive_int,
        metavar="N",
        help="workers that prepare at once (default: one for each core; on the CPU the number of cores over --threads)",
    )
    parser.add_argument(
        "--exclusive",
        action="store_true",
        help="prepare one case at a time, for wall-clock compile times",
    )
    parser.add_argument("--devices", type=indices, metavar="I[,I]", help="accelerators to spread the cases over: 0,1,2")
    parser.add_argument(
        "--host-memory-limit", type=size_in_bytes, metavar="SIZE", help="limit of a worker's data, such as 8GiB"
    )
    parser.add_argument(
        "--cache",
        type=_cache_word,
        default=CacheMode.COLD.value,
        metavar="C",
        help="the compilers' caches when a case begins: cold (empty), warm (the case was compiled once before), or a "
        "folder that all cases share and that is kept (default: cold)",
    )
    parser.add_argument(
        "--debug",
        type=recorded_path,
        metavar="DIR",
        help="keep there, in a folder for each case: what compiling did (PyTorch's structured trace, for tlparse), and "
        "of a case that fails a script, reproduce.py, that stops with the same error (compile times then include "
        "writing the trace, and the record says so)",
    )
    _add_passes(parser)


def _add_passes(parser: argparse.ArgumentParser) -> None:
    passes = parser.add_argument_group(
        "passes", "more about each case, in steps of their own after the timing (--check-only: instead of it)"
    )
    for one, text in {
        Pass.BREAKDOWN: "where a step's wall time goes: the device computes, moves data, idles; the longest kernels",
        Pass.OP_SHAPES: "operators by the shapes and dtypes that they take, with their calls and times; "
        "`torchzoo export RUN --format op-shapes` writes them",
        Pass.FLOPS: "operations of a step, what the device achieved of its peak, and what bounds it",
        Pass.CHECK: "results compared with eager's, judged by an fp64 reference",
        Pass.CHECK_ONLY: "the same, and nothing is timed: many cases are checked at once",
        Pass.MEMORY_ALONE: "peaks of a compiled candidate in a process of its own, in which eager never ran",
        Pass.LEAK_CHECK: "growth of device and host memory over many steps",
        Pass.ENERGY: "joules per step and per sample, by NVML's counter",
        Pass.API: "the functions and operators of PyTorch that a step touches",
    }.items():
        passes.add_argument(f"--{one.replace('_', '-')}", dest="passes", action="append_const", const=one, help=text)
    passes.add_argument("--trace", type=recorded_path, metavar="DIR", help="keep the breakdown's Chrome traces there")


def run_request(arguments: argparse.Namespace) -> RunRequest:
    """What the command line asks for.

    Raises:
        UsageError: a word that means nothing, or nothing to measure.
    """
    patterns, suites = chosen_models(arguments)
    devices = devices_of(arguments.device) if arguments.device is not None else ()
    return RunRequest(
        patterns=patterns,
        suites=suites,
        axes=_axes(arguments, devices),
        settings=_settings(arguments),
        jobs=1 if arguments.exclusive else arguments.jobs,
        device_indices=arguments.devices,
        models_dirs=tuple(map(str, arguments.models_dir)),
        batch_file=None if arguments.batch_file is None else str(arguments.batch_file),
    )


def _settings(arguments: argparse.Namespace) -> Settings:
    cache, cache_dir = _cache(arguments.cache)
    return Settings(
        time_limit_s=arguments.time_limit,
        threads=arguments.threads,
        host_memory_limit_bytes=arguments.host_memory_limit,
        limits=StageLimits(
            build_s=arguments.build_timeout or arguments.timeout,
            compile_s=arguments.compile_timeout or arguments.timeout,
            measure_s=arguments.measure_timeout or arguments.timeout,
            alone_s=arguments.alone_timeout or arguments.timeout,
        ),
        cache=cache,
        cache_dir=cache_dir,
        passes=_passes(arguments),
        trace_dir=None if arguments.trace is None else str(folder(arguments.trace, "--trace")),
        debug_dir=None if arguments.debug is None else str(folder(arguments.debug, "--debug")),
    )


def _passes(arguments: argparse.Namespace) -> tuple[Pass, ...]:
    asked = set(arguments.passes or ())
    if arguments.trace is not None:
        asked.add(Pass.BREAKDOWN)
    if Pass.CHECK_ONLY in asked and (others := asked - {Pass.CHECK, Pass.CHECK_ONLY}):
        names = ", ".join(f"--{one.replace('_', '-')}" for one in Pass if one in others)
        raise UsageError(f"--check-only times nothing: leave it out, or what comes after the timing ({names})")
    return (Pass.CHECK_ONLY,) if Pass.CHECK_ONLY in asked else tuple(one for one in Pass if one in asked)


def _cache_word(text: str) -> str:
    """`cold`, `warm`, or the path of a folder."""
    return text if text in tuple(CacheMode) else str(recorded_path(text))


def _cache(text: str) -> tuple[CacheMode, str | None]:
    """`cold`, `warm`, or a folder, which is made.

    Raises:
        UsageError: the folder can't be made.
    """
    if text in (CacheMode.COLD, CacheMode.WARM):
        return CacheMode(text), None
    if text == CacheMode.SHARED:
        raise UsageError("--cache: name the folder that the cases share, or write cold or warm")
    return CacheMode.SHARED, str(folder(Path(text), "--cache"))


def _parallels(text: str) -> tuple[Parallel, ...]:
    found = choices(text, Parallel, "kind of parallelism")
    if Parallel.NONE in found:
        raise UsageError("--parallel none is --world 1")
    return found


def _axes(arguments: argparse.Namespace, devices: tuple[str, ...]) -> Axes:
    return Axes(
        modes=choices(arguments.mode, Mode, "mode"),
        devices=devices,
        backends=backends_of(arguments.backend),
        precisions=choices(arguments.precision, Precision, "precision"),
        memory_formats=choices(arguments.memory_format, MemoryFormat, "memory format"),
        compile_scopes=choices(arguments.compile_scope, CompileScope, "compile scope"),
        batch_sizes=batch_sizes(arguments.bs),
        worlds=arguments.world,
        parallels=_parallels(arguments.parallel),
        seed=arguments.seed,
        repeats=arguments.repeats,
    )
