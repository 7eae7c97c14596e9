"""`torchzoo run`: measure models over modes x devices x backends x precisions, or resume a run."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from torchzoo import backends
from torchzoo.analysis.cases import Status, case_results
from torchzoo.case import Case, CompileScope, MemoryFormat, Mode, Precision
from torchzoo.commands.arguments import (
    MOST_REPEATS,
    add_models,
    backends_of,
    batch_sizes,
    check_given,
    choices,
    chosen_models,
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
from torchzoo.record import Measured, Outcome, Record
from torchzoo.report import terminal, units
from torchzoo.report.progress import Progress
from torchzoo.report.remarks import not_measured_line
from torchzoo.report.text import json_text
from torchzoo.run.interrupts import terminated_as_interrupted
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.run.session import Session, new_run, resumed_run
from torchzoo.run.tuning import ignore_tried
from torchzoo.settings import CacheMode, Pass, Settings, StageLimits
from torchzoo.store import Run, RunStore, read_run


def add_parser(commands: Any) -> None:
    """Add `run` to argparse's subcommands."""
    parser = commands.add_parser(
        "run",
        help="measure models",
        description="Measure models over modes x devices x backends x precisions. A backend other than eager is "
        "measured beside eager, on the same weights, in turns. Exit status: 0 all measured or skipped with a reason, "
        "1 a case failed, 2 wrong usage.",
    )
    add_models(parser)
    parser.add_argument("-t", "--mode", default="eval", metavar="M[,M]", help="train, eval (default: eval)")
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
        choices=[scope.value for scope in CompileScope],
        default=CompileScope.NETWORK.value,
        help="what a backend is given: each network, as by torch.compile(model), or the whole step (default: network)",
    )
    parser.add_argument(
        "--bs",
        "--batch-size",
        metavar="N[,N]",
        help="numbers; smoke; default: each model's own; auto: the default, doubled in eager until throughput stops "
        "rising (without --bs: in evaluation the batch that `torchzoo tune-batch` found for the device, else default)",
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
        default=1,
        metavar="N",
        help="how many processes measure each case, to know what differs between processes (default: 1, at most "
        f"{MOST_REPEATS})",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of weights and data (default: 0)")
    parser.add_argument("--threads", type=positive_int, metavar="N", help="CPU threads (default: PyTorch's choice)")
    parser.add_argument(
        "-o", "--output", type=usable_path, metavar="DIR", help="keep the run: records, logs, environment"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the records, a JSON object a line, instead of a table"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
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
    _add_passes(parser)
    parser.add_argument(
        "--resume",
        type=usable_path,
        metavar="RUN",
        help="resume a run: measure its missing cases, with its own settings",
    )
    parser.add_argument("--retry-failed", action="store_true", help="with --resume: also repeat the cases that failed")
    parser.set_defaults(command=run, parser=parser)


def _add_passes(parser: argparse.ArgumentParser) -> None:
    passes = parser.add_argument_group("passes", "more about each case, in steps of their own after the timing")
    for one, text in {
        Pass.BREAKDOWN: "where a step's wall time goes: the device computes, moves data, idles; the longest kernels",
        Pass.FLOPS: "operations of a step, what the device achieved of its peak, and what bounds it",
        Pass.CHECK: "results compared with eager's, judged by an fp64 reference",
        Pass.LEAK_CHECK: "growth of device and host memory over many steps",
        Pass.ENERGY: "joules per step and per sample, by NVML's counter",
        Pass.API: "the functions and operators of PyTorch that a step touches",
    }.items():
        passes.add_argument(f"--{one.replace('_', '-')}", dest="passes", action="append_const", const=one, help=text)
    passes.add_argument("--trace", type=recorded_path, metavar="DIR", help="keep the breakdown's Chrome traces there")
    passes.add_argument(
        "--compile-stats", action="store_true", help="show what compilation did (kept of every compiling case anyway)"
    )


@terminated_as_interrupted()
def run(arguments: argparse.Namespace) -> int:
    """Resume a run, or plan a new one; then run it, show its results and sum up."""
    if arguments.resume is not None:
        obeyed = ("resume", "retry_failed", "json", "quiet", "compile_stats")
        check_given(arguments, obeyed, "--resume keeps the settings that the run began with")
        with RunStore(arguments.resume, resume=True) as run_store:
            session = resumed_run(read_run(arguments.resume), retry_failed=arguments.retry_failed)
            return _execute(session, run_store, arguments, is_kept=True)
    request = run_request(arguments)
    with _run_store(arguments.output) as (run_store, is_kept):
        session = new_run(request, run_store, ignore_tried if arguments.quiet else say_tried)
        return _execute(session, run_store, arguments, is_kept=is_kept)


def say_tried(case: Case, outcome: Outcome, samples_per_s: float | None) -> None:
    """Tell the user what a batch size that was tried came to."""
    if isinstance(outcome, Measured):
        assert samples_per_s is not None
        terminal.say(f"tuning {case.label()}: {units.rate(samples_per_s, 'samples')}")
    else:
        terminal.say(f"tuning {case.label()}: {not_measured_line(outcome)}")


def follow(session: Session, run_store: RunStore, *, quiet: bool) -> Run:
    """Run what is left of a session, its progress shown unless `quiet`. Returns the whole run, earlier records too."""
    total, records = len(session.manifest.cases), list(session.done)
    progress = Progress(total=total, done=len(records), lanes=session.lanes, quiet=quiet)
    with session.workers, progress:
        for record in session.run(run_store, progress.stage):
            records.append(record)
            progress.done(record)
    return Run(path=run_store.path, manifest=session.manifest, records=tuple(records))


def _execute(session: Session, run_store: RunStore, arguments: argparse.Namespace, *, is_kept: bool) -> int:
    finished = follow(session, run_store, quiet=arguments.quiet)
    _show(finished, as_json=arguments.json, quiet=arguments.quiet)
    if arguments.compile_stats:
        _show_compilation(finished.records, file=sys.stderr if arguments.json else sys.stdout)
    statuses = {result.status for result in case_results(finished)}
    if is_kept:
        terminal.say(f"run kept in {run_store.path}")
    elif Status.FAILED in statuses:
        terminal.say(f"logs are kept in {run_store.path}")
    return 1 if statuses & {Status.FAILED, Status.INCORRECT} else 0


def run_request(arguments: argparse.Namespace) -> RunRequest:
    """What the command line asks for.

    Raises:
        UsageError: a word that means nothing, or nothing to measure.
    """
    patterns, suites = chosen_models(arguments)
    if arguments.retry_failed:
        raise UsageError("--retry-failed goes with --resume RUN")
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
        ),
        cache=cache,
        cache_dir=cache_dir,
        passes=_passes(arguments),
        trace_dir=None if arguments.trace is None else str(folder(arguments.trace, "--trace")),
    )


def _passes(arguments: argparse.Namespace) -> tuple[Pass, ...]:
    asked = set(arguments.passes or ())
    if arguments.trace is not None:
        asked.add(Pass.BREAKDOWN)
    return tuple(one for one in Pass if one in asked)


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


def _axes(arguments: argparse.Namespace, devices: tuple[str, ...]) -> Axes:
    return Axes(
        modes=choices(arguments.mode, Mode, "mode"),
        devices=devices,
        backends=backends_of(arguments.backend),
        precisions=choices(arguments.precision, Precision, "precision"),
        memory_formats=choices(arguments.memory_format, MemoryFormat, "memory format"),
        compile_scope=CompileScope(arguments.compile_scope),
        batch_sizes=batch_sizes(arguments.bs),
        seed=arguments.seed,
        repeats=arguments.repeats,
    )


@contextlib.contextmanager
def _run_store(path: Path | None) -> Iterator[tuple[RunStore, bool]]:
    """A store for the run, and whether it is kept: in a temporary folder it is kept only if a case failed."""
    if path is not None:
        with RunStore(path) as run_store:
            yield run_store, True
        return
    folder = Path(tempfile.mkdtemp(prefix="torchzoo-run-"))
    keep = False
    try:
        with RunStore(folder) as run_store:
            yield run_store, False
            keep = run_store.has_failures
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _show(finished: Run, *, as_json: bool, quiet: bool = False) -> None:
    """One case in detail, or many cases a line each with their totals."""
    from torchzoo.report import tables
    from torchzoo.report.summary import summary

    records = finished.records
    if as_json:
        for record in records:
            print(json_text(record))
        if len(records) > 1 and not quiet:
            terminal.show(summary(finished), file=sys.stderr)
        return
    if len(records) > 1:
        terminal.show(tables.terminal_table(case_results(finished)), summary(finished))
    else:
        terminal.show(tables.case_detail(records[0]))


def _show_compilation(records: Sequence[Record], file: TextIO) -> None:
    from torchzoo.report.sections.compilation import table

    for line in ["", *table(records)]:
        terminal.show_line(line, file)
