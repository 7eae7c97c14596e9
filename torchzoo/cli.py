"""The command line. Torch is never imported in this process, but for `torchzoo describe`."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO, TypeVar

import msgspec

import torchzoo
from torchzoo import backends, plan
from torchzoo.batches import TIME_LIMIT_S, BatchFileError, default_file
from torchzoo.catalog import CatalogError, find_models, suite_names
from torchzoo.commands import compare, export, noise, report, userbenchmark
from torchzoo.install import is_installed
from torchzoo.plan import Axes, UsageError
from torchzoo.processes import ForkServer, TorchUnusable, terminated_as_interrupted
from torchzoo.record import EAGER, CacheMode, Failed, Manifest, Measured, Pass, Record, Settings, StageLimits
from torchzoo.report.progress import Progress
from torchzoo.runs import Asked, Session, new_run, resumed_run, tune_batches
from torchzoo.spec import CompileScope, Domain, MemoryFormat, Mode, Precision, SpecError
from torchzoo.store import RunStore, StoreError, read_run

OK, FAILURE, USAGE, INTERRUPTED = 0, 1, 2, 130
_Choice = TypeVar("_Choice", bound=str)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status: 0 all well, 1 a case failed, 2 wrong usage, 130 interrupted."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["install"]:
        from torchzoo import install

        return install.main(arguments[1:], prog="torchzoo install")
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.command(parsed)
    except (UsageError, CatalogError, SpecError, StoreError, BatchFileError, TorchUnusable) as error:
        print(f"torchzoo: error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("torchzoo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader, `head` for one, has seen enough
        sys.stderr.close()
        return OK
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="torchzoo", description="Measure PyTorch models: time, memory, speedups.")
    parser.add_argument("--version", action="version", version=f"torchzoo {torchzoo.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    _add_run(commands)
    _add_list(commands)
    report.add_parser(commands)
    compare.add_parser(commands)
    noise.add_parser(commands)
    export.add_parser(commands)
    _add_tune_batch(commands)
    _add_describe(commands)
    userbenchmark.add_parser(commands)
    doctor = commands.add_parser("doctor", help="say what this machine can run")
    doctor.add_argument(
        "--peaks", action="store_true", help="measure what matrix products and copies reach, and keep it for reports"
    )
    doctor.set_defaults(command=_doctor)
    commands.add_parser("install", help="install models' libraries; see `torchzoo install --help`")
    return parser


def _add_run(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="measure models",
        description="Measure models over modes x devices x backends x precisions. A backend other than eager is "
        "measured beside eager, on the same weights, in turns. Exit status: 0 all measured or skipped with a reason, "
        "1 a case failed, 2 wrong usage.",
    )
    run.add_argument("models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*'), a domain (nlp), or all")
    run.add_argument("--suite", default="", metavar="S[,S]", help=f"{', '.join(suite_names())}, or a YAML file")
    run.add_argument("-t", "--mode", default="eval", metavar="M[,M]", help="train, eval (default: eval)")
    run.add_argument(
        "-d", "--device", metavar="D[,D]", help="cpu, cuda, cuda:1 ... (default: the accelerator, else cpu)"
    )
    run.add_argument(
        "--backend",
        default="eager",
        metavar="B[,B]",
        help=f"{', '.join(backends.BACKENDS)}, or any that Dynamo has registered; modes as in inductor:reduce-overhead "
        "and torchscript:script (default: eager)",
    )
    run.add_argument("--precision", default="default", metavar="P[,P]", help=f"{', '.join(Precision)}")
    run.add_argument("--memory-format", default="contiguous", metavar="F[,F]", help=f"{', '.join(MemoryFormat)}")
    run.add_argument(
        "--compile-scope",
        choices=[scope.value for scope in CompileScope],
        default=CompileScope.NETWORK.value,
        help="what a backend is given: each network, as by torch.compile(model), or the whole step (default: network)",
    )
    run.add_argument(
        "--bs",
        "--batch-size",
        metavar="N[,N]",
        help="numbers; smoke; default: each model's own; auto: that one doubled until throughput stops rising, in "
        "eager (not given: in evaluation the one tuned for the device, where `torchzoo tune-batch` has found one, else "
        "default)",
    )
    run.add_argument(
        "--batch-file", type=Path, metavar="F", help="of evaluation batches by `torchzoo tune-batch` (default: its own)"
    )
    run.add_argument(
        "--repeats",
        type=_positive_int,
        default=1,
        metavar="N",
        help="processes that measure each case, so that what differs between processes is known (default: 1)",
    )
    run.add_argument("--seed", type=int, default=0, help="of weights and data (default: 0)")
    run.add_argument("--threads", type=_positive_int, metavar="N", help="CPU threads (default: PyTorch's choice)")
    run.add_argument("-o", "--output", type=Path, metavar="DIR", help="keep the run: records, logs, environment")
    run.add_argument("--json", action="store_true", help="print the records, a JSON object a line, instead of a table")
    run.add_argument("-q", "--quiet", action="store_true", help="no progress")
    run.add_argument("--models-dir", type=Path, action="append", default=[], metavar="DIR", help="more model folders")
    defaults = Settings()
    run.add_argument(
        "--time-limit",
        type=_positive_float,
        default=defaults.time_limit_s,
        metavar="S",
        help=f"seconds of timing at most, if the interval stays wide (default: {defaults.time_limit_s:g})",
    )
    run.add_argument(
        "--timeout",
        type=_positive_float,
        default=900.0,
        metavar="S",
        help="seconds a stage (build, compile, measure) may take before it is killed (default: 900)",
    )
    for stage in ("build", "compile", "measure"):
        run.add_argument(f"--{stage}-timeout", type=_positive_float, metavar="S", help="the same for this stage alone")
    run.add_argument(
        "-j",
        "--jobs",
        type=_positive_int,
        metavar="N",
        help="workers that prepare at once (default: 3/4 of the cores; on the CPU that number over --threads)",
    )
    run.add_argument("--exclusive", action="store_true", help="one case at a time, for wall-clock compile times")
    run.add_argument("--devices", type=_indices, metavar="I[,I]", help="accelerators to spread the cases over: 0,1,2")
    run.add_argument("--host-memory-limit", type=_size, metavar="SIZE", help="of a worker's data, such as 8GiB")
    run.add_argument(
        "--cache",
        default=CacheMode.COLD.value,
        metavar="C",
        help="what the compilers' caches hold when a case begins: cold (nothing), warm (what compiling it once before "
        "left), or a folder that all cases share and that is kept (default: cold)",
    )
    _add_passes(run)
    run.add_argument("--resume", type=Path, metavar="RUN", help="go on with a run: do what is missing, as it was begun")
    run.add_argument("--retry-failed", action="store_true", help="with --resume: do again what failed, too")
    run.set_defaults(command=_run, parser=run)


def _add_passes(run: argparse.ArgumentParser) -> None:
    passes = run.add_argument_group("passes", "more to know of each case, each in steps of its own after the timing")
    for one, text in {
        Pass.BREAKDOWN: "where a step's wall time goes: the device computes, moves data, idles; the longest kernels",
        Pass.FLOPS: "operations of a step, what the device achieved of its peak, and what bounds it",
        Pass.CHECK: "results against eager's, judged by an fp64 reference",
        Pass.LEAK_CHECK: "growth of device and host memory over many steps",
        Pass.ENERGY: "joules per step and per sample, by NVML's counter",
        Pass.API: "the functions and operators of PyTorch that a step touches",
    }.items():
        passes.add_argument(f"--{one.replace('_', '-')}", dest="passes", action="append_const", const=one, help=text)
    passes.add_argument("--trace", type=Path, metavar="DIR", help="keep the breakdown's Chrome traces there")
    passes.add_argument(
        "--compile-stats", action="store_true", help="show what compilation did (kept of every compiling case anyway)"
    )


def _add_list(commands: Any) -> None:
    listing = commands.add_parser("list", help="list the models")
    listing.add_argument("--domain", choices=[domain.value for domain in Domain])
    listing.add_argument("--suite", default="", metavar="S[,S]", help=f"{', '.join(suite_names())}, or a YAML file")
    listing.add_argument("--json", action="store_true", help="all metadata as a JSON array")
    listing.add_argument(
        "--models-dir", type=Path, action="append", default=[], metavar="DIR", help="more model folders"
    )
    listing.set_defaults(command=_list)


def _add_describe(commands: Any) -> None:
    describe = commands.add_parser(
        "describe",
        help="a Markdown table of models with their inputs and FLOPs",
        description="Build models (on the meta device where that can be) and print a Markdown table of what they are.",
    )
    describe.add_argument("models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*'), a domain (nlp), or all")
    describe.add_argument("--suite", default="", metavar="S[,S]", help=f"{', '.join(suite_names())}, or a YAML file")
    describe.add_argument("--write", type=Path, metavar="FILE", help="write the document there instead of printing it")
    describe.add_argument(
        "--models-dir", type=Path, action="append", default=[], metavar="DIR", help="more model folders"
    )
    describe.set_defaults(command=_describe)


def _add_tune_batch(commands: Any) -> None:
    tune = commands.add_parser(
        "tune-batch",
        help="find evaluation batch sizes for this device",
        description="Double the evaluation batch of models until throughput stops rising (by 5%) or memory is "
        "out, and keep what was found in a file; `torchzoo run` uses torchzoo's own file where the device matches.",
    )
    tune.add_argument("models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*'), a domain (nlp), or all")
    tune.add_argument("--suite", default="", metavar="S[,S]", help=f"{', '.join(suite_names())}, or a YAML file")
    tune.add_argument("-d", "--device", metavar="D", help="cpu, cuda, ... (default: the accelerator, else cpu)")
    tune.add_argument("--precision", default="default", metavar="P", help=f"{', '.join(Precision)}")
    tune.add_argument("--file", type=Path, default=default_file(), metavar="F", help="(default: torchzoo's own)")
    tune.add_argument(
        "--time-limit", type=_positive_float, default=TIME_LIMIT_S, metavar="S", help="of timing a batch size"
    )
    tune.add_argument("-j", "--jobs", type=_positive_int, metavar="N", help="as for run")
    tune.add_argument("--models-dir", type=Path, action="append", default=[], metavar="DIR", help="more model folders")
    tune.set_defaults(command=_tune_batch)


def _positive_int(text: str) -> int:
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found '{text}'")
    return value


def _positive_float(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a positive number of seconds, found '{text}'")


def _indices(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f"expected device numbers such as 0,1,2, found '{text}'")
    return tuple(dict.fromkeys(int(word) for word in words))


def _size(text: str) -> int:
    for suffix, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("", 1)):
        number = text.removesuffix(suffix)
        if number.isascii() and number.isdigit() and int(number) > 0:
            return int(number) * factor
    raise argparse.ArgumentTypeError(f"expected a size such as 8GiB or 500MiB, found '{text}'")


def _choices(text: str, kind: type[_Choice], what: str) -> tuple[_Choice, ...]:
    """A comma list as members of an enum, each once."""
    members = {member.value: member for member in kind}  # type: ignore[attr-defined]
    chosen = []
    for word in filter(None, text.split(",")):
        if word not in members:
            raise UsageError(f"unknown {what} '{word}'{plan.nearest(word, members)}; known: {', '.join(members)}")
        chosen.append(members[word])
    if not chosen:
        raise UsageError(f"no {what} given; known: {', '.join(members)}")
    return tuple(dict.fromkeys(chosen))


def _words(text: str) -> tuple[str, ...]:
    """A comma list, each word once."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def _batch_sizes(text: str | None) -> tuple[int | str | None, ...]:
    if text is None:
        return (None,)
    return tuple(_batch_size(word) for word in _words(text)) or (_batch_size(text),)


def _batch_size(word: str) -> int | str:
    if word in (plan.SMOKE, plan.DEFAULT, plan.AUTO):
        return word
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        words = f"'{plan.DEFAULT}', '{plan.AUTO}' or '{plan.SMOKE}'"
        raise UsageError(f"the batch size must be a whole number of at least 1, {words}: found '{word}'")
    return int(word)


def _devices(text: str) -> tuple[str, ...]:
    devices = tuple(dict.fromkeys(filter(None, text.split(","))))
    for device in devices:
        kind, colon, index = device.partition(":")
        if not kind.isalpha() or (colon and not (index.isascii() and index.isdigit())):
            raise UsageError(f"not a device: '{device}'; write cpu, cuda or cuda:1")
    if not devices:
        raise UsageError("no device given; write cpu, cuda or cuda:1")
    return devices


# --- run ---


@terminated_as_interrupted()
def _run(arguments: argparse.Namespace) -> int:
    """Go on with a run, or plan a new one; then run, show, sum up."""
    if arguments.resume is not None:
        _check_alone(arguments)
        run_store = RunStore(arguments.resume, resume=True)
        session = resumed_run(read_run(arguments.resume), retry_failed=arguments.retry_failed)
        return _execute(session, run_store, arguments, is_kept=True)
    asked = _asked(arguments)
    with _run_store(arguments.output) as (run_store, is_kept):
        session = new_run(asked, run_store, (lambda _: None) if arguments.quiet else _say)
        return _execute(session, run_store, arguments, is_kept=is_kept)


def _execute(session: Session, run_store: RunStore, arguments: argparse.Namespace, *, is_kept: bool) -> int:
    total = len(session.manifest.cases)
    records = list(session.done)
    progress = Progress(total=total, done=len(records), lanes=session.lanes, quiet=arguments.quiet)
    with session.workers, progress:
        for record in session.run(run_store, progress.stage):
            records.append(record)
            progress.done(record)
    _show(records, session.manifest, as_json=arguments.json, quiet=arguments.quiet)
    if arguments.compile_stats:
        _show_compilation(records, file=sys.stderr if arguments.json else sys.stdout)
    failed = any(isinstance(record.outcome, Failed) for record in records)
    incorrect = any(isinstance(record.outcome, Measured) and record.outcome.is_incorrect for record in records)
    if is_kept:
        print(f"run kept in {run_store.path}", file=sys.stderr)
    elif failed:
        print(f"logs are kept in {run_store.path}", file=sys.stderr)
    return FAILURE if failed or incorrect else OK


def _check_alone(arguments: argparse.Namespace) -> None:
    """Raises `UsageError` for anything given beside --resume that would not be obeyed."""
    obeyed = ("resume", "retry_failed", "json", "quiet", "compile_stats")
    defaults = arguments.parser.parse_args([])
    given = [
        name for name, value in vars(arguments).items() if name not in obeyed and value != getattr(defaults, name, None)
    ]
    if given:
        options = ", ".join("MODEL" if name == "models" else f"--{name.replace('_', '-')}" for name in given)
        raise UsageError(f"--resume goes on with the run as it was begun: leave out {options}")


def _asked(arguments: argparse.Namespace) -> Asked:
    suites = _words(arguments.suite)
    if not arguments.models and not suites:
        raise UsageError("name at least one MODEL, a glob, a domain, all or a --suite; see `torchzoo list`")
    if arguments.retry_failed:
        raise UsageError("--retry-failed goes with --resume RUN")
    devices = _devices(arguments.device) if arguments.device is not None else ()
    return Asked(
        patterns=tuple(arguments.models),
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
        trace_dir=None if arguments.trace is None else str(_folder(arguments.trace, "--trace")),
    )


def _passes(arguments: argparse.Namespace) -> tuple[Pass, ...]:
    asked = set(arguments.passes or ())
    if arguments.trace is not None:
        asked.add(Pass.BREAKDOWN)
    return tuple(one for one in Pass if one in asked)


def _cache(text: str) -> tuple[CacheMode, str | None]:
    """`cold`, `warm`, or a folder, which is made.

    Raises:
        UsageError: the folder can't be made.
    """
    if text in (CacheMode.COLD, CacheMode.WARM):
        return CacheMode(text), None
    if text == CacheMode.SHARED or not text:
        raise UsageError("--cache: name the folder that the cases share, or write cold or warm")
    return CacheMode.SHARED, str(_folder(Path(text), "--cache"))


def _folder(path: Path, option: str) -> Path:
    """`path`, made if need be.

    Raises:
        UsageError: it can't be made.
    """
    folder = path.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: can't make the folder {folder}: {error.strerror}") from error
    return folder


def _axes(arguments: argparse.Namespace, devices: tuple[str, ...]) -> Axes:
    words = [word for word in arguments.backend.split(",") if word]
    if not words:
        raise UsageError("no backend given, such as eager or inductor")
    return Axes(
        modes=_choices(arguments.mode, Mode, "mode"),
        devices=devices,
        backends=tuple(dict.fromkeys(plan.parse_backend(word) for word in words)),
        precisions=_choices(arguments.precision, Precision, "precision"),
        memory_formats=_choices(arguments.memory_format, MemoryFormat, "memory format"),
        compile_scope=CompileScope(arguments.compile_scope),
        batch_sizes=_batch_sizes(arguments.bs),
        seed=arguments.seed,
        repeats=arguments.repeats,
    )


@contextlib.contextmanager
def _run_store(path: Path | None) -> Iterator[tuple[RunStore, bool]]:
    """The run's folder and whether it was asked for; one that was not is kept only where its logs may be wanted."""
    if path is not None:
        yield RunStore(path), True
        return
    folder = Path(tempfile.mkdtemp(prefix="torchzoo-run-"))
    keep = False
    try:
        run_store = RunStore(folder)
        yield run_store, False
        keep = run_store.has_failures
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def _show(records: Sequence[Record], manifest: Manifest, *, as_json: bool, quiet: bool = False) -> None:
    """One case in detail, or many a line each and what they come to."""
    from rich.console import Console

    from torchzoo.report import rows, tables
    from torchzoo.report.summary import summary

    if as_json:
        for record in records:
            print(msgspec.json.encode(record).decode())
        if len(records) > 1 and not quiet:
            Console(highlight=False, stderr=True).print(summary(manifest, records))
        return
    console = Console(highlight=False)
    if len(records) > 1:
        console.print(tables.terminal_table(records))
        console.print(summary(manifest, records))
    elif isinstance(records[0].outcome, Measured):
        console.print(tables.case_table(records[0]))
    else:
        console.print(f"{records[0].case.label()}: {rows.in_a_line(records[0])}", markup=False)
        if isinstance(records[0].outcome, Failed):
            console.print(records[0].outcome.traceback.rstrip(), markup=False)


def _show_compilation(records: Sequence[Record], file: TextIO) -> None:
    from torchzoo.report.compilation import table

    print("\n".join(["", *table(records)]), file=file)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


@terminated_as_interrupted()
def _tune_batch(arguments: argparse.Namespace) -> int:
    suites = _words(arguments.suite)
    if not arguments.models and not suites:
        raise UsageError("name at least one MODEL, a glob, a domain, all or a --suite; see `torchzoo list`")
    devices = _devices(arguments.device)[:1] if arguments.device is not None else ()
    asked = Asked(
        patterns=tuple(arguments.models),
        suites=suites,
        axes=Axes(
            modes=(Mode.EVAL,),
            devices=devices,
            backends=(EAGER,),
            precisions=_choices(arguments.precision, Precision, "precision")[:1],
        ),
        settings=Settings(time_limit_s=arguments.time_limit),
        jobs=arguments.jobs,
        models_dirs=tuple(map(str, arguments.models_dir)),
    )
    with tempfile.TemporaryDirectory(prefix="torchzoo-tune-") as logs:
        found = tune_batches(asked, arguments.file, logs=Path(logs), say=_say)
    for name, tuned in found.items():
        curve = ", ".join(f"{size}: {rate:g}" for size, rate in tuned.samples_per_s.items())
        print(f"{name}: batch {tuned.batch_size} (samples/s at {curve})")
    print(f"kept in {arguments.file}", file=sys.stderr)
    return OK if found else FAILURE


# --- list, doctor ---


def _list(arguments: argparse.Namespace) -> int:
    catalog = find_models(arguments.models_dir)
    specs, errors = catalog.specs()
    for error in errors:
        print(f"torchzoo: left out: {error}", file=sys.stderr)
    suites = _words(arguments.suite)
    named = set(catalog.select([], suites)) if suites else set(catalog.names)
    chosen = [spec for spec in specs if spec.name in named and arguments.domain in (None, spec.domain)]
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(chosen), indent=1).decode())
        return OK
    width = max((len(spec.name) for spec in chosen), default=0)
    for spec in chosen:
        batches = " ".join(f"{mode} {size:,}" for mode, size in spec.batch_size.items())
        print(f"{spec.name:{width}}  {spec.domain:22}  {spec.task:22}  {batches:28}  {spec.source}")
    return OK


def _describe(arguments: argparse.Namespace) -> int:
    from torchzoo.describe import describe

    suites = _words(arguments.suite)
    if not arguments.models and not suites:
        raise UsageError("name at least one MODEL, a glob, a domain, all or a --suite; see `torchzoo list`")
    catalog = find_models(arguments.models_dir)
    specs = [catalog.spec(name) for name in catalog.select(arguments.models, suites)]
    text = describe(specs)
    if arguments.write is None:
        print(text, end="")
        return OK
    try:
        arguments.write.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write {arguments.write}: {error.strerror}") from error
    return OK


def _doctor(arguments: argparse.Namespace) -> int:
    """Devices, versions, backends and models: what can run here, and what to do about the rest."""
    server = ForkServer([])
    facts = server.facts()
    if arguments.peaks:
        from torchzoo.commands.peaks import measure_peaks

        measure_peaks(server, facts)
        return OK
    environment = facts.environment
    print(f"torchzoo {environment['torchzoo']}, Python {environment['python']}, {environment['platform']}")
    print(f"torch {environment['torch']}, CUDA {environment['cuda']}, cuDNN {environment['cudnn']}")
    memory_gib = environment["host_memory_bytes"] / 2**30
    print(
        f"{environment['cpu']}, {environment['cpu_usable']} of {environment['cpu_count']} cores, {memory_gib:.0f} GiB"
    )
    for gpu in environment["gpus"]:
        print(f"{gpu['name']}, {gpu['memory_bytes'] / 2**30:.0f} GiB, driver {gpu['driver']}")
    print("devices: " + ", ".join(f"{kind} x {count}" for kind, count in facts.devices.items()))
    print("\nbackends")
    for name, info in backends.BACKENDS.items():
        absent = info.package is not None and importlib.util.find_spec(info.package) is None
        other_device = info.devices and not set(info.devices) & set(facts.devices)
        state = info.install if absent else info.why_limited if other_device else "ready"
        print(f"  {name:12} {state}")
    print(f"  also, registered with Dynamo: {', '.join(sorted(set(facts.dynamo_backends) - set(backends.BACKENDS)))}")
    specs, errors = find_models().specs()
    ready = [spec for spec in specs if all(is_installed(requirement) for requirement in spec.requirements)]
    print(f"\nmodels: {len(ready)} of {len(specs) + len(errors)} ready")
    for spec in specs:
        if spec not in ready:
            lacking = [requirement for requirement in spec.requirements if not is_installed(requirement)]
            print(f"  {spec.name:24} {', '.join(lacking)} not installed: python install.py {spec.name}")
    for error in errors:
        print(f"  {error}")
    return OK
