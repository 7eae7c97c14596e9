"""Count what Dynamo and its compilers do: graphs, breaks, recompilations, guards, skipped CUDA graphs, and time."""

from __future__ import annotations

import contextlib
import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

import torch
from torch._dynamo import utils
from torch._inductor import config as inductor

from torchzoo import backends
from torchzoo.backends import NotRunnable
from torchzoo.backends.aoti import PackagedNetwork
from torchzoo.case import Case
from torchzoo.measure.precision import LabelNotReached
from torchzoo.measure.trace import is_traced
from torchzoo.model import Model
from torchzoo.record import LEFT_WHOLE, REFUSED, Compilation, GraphBreak, Recompilation
from torchzoo.settings import CacheMode

#: Inductor and the cudagraphs backend log here, once for each graph, that it runs without a CUDA graph, and why.
_SKIP_LOGGER = "torch._inductor.cudagraph_utils.__cudagraphs"
_SKIP_WORDS = "skipping cudagraph"

#: Dynamo keeps the metrics of its last 64 frames, unless another limit is set.
_FRAMES_KEPT = 100_000

#: Files of PyTorch whose functions trace a higher-order operator in eager.
_OF_HIGHER_ORDER = re.compile(r"/torch/(_higher_order_ops|nn/attention)/")

#: Longer reasons are cut.
_REASON_CHARACTERS = 300


class CompilationWatch(logging.Handler):
    """Count what is compiled in this process since the watch began; see `watch_compilation`.

    Dynamo is not disturbed while it compiles or runs: `counts` reads figures that Dynamo keeps anyway.
    """

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self._skips: list[str] = []
        self._counters_before = _counters()
        self._seconds_before = self._compile_seconds()
        self._frames_before = len(_frames())
        self._breaks_before = len(_breaks())

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the reason of a CUDA graph that was skipped."""
        message = record.getMessage()
        if message.startswith(_SKIP_WORDS):
            self._skips.append(message)

    def graphs(self) -> int:
        """Return how many graphs were compiled since the watch began."""
        return _counters()["stats", "unique_graphs"] - self._counters_before["stats", "unique_graphs"]

    def own_graphs(self) -> int:
        """Return how many functions were compiled since the watch began, without PyTorch's own.

        In eager, PyTorch calls a higher-order operator (FlexAttention, `torch.cond`) through a function of its own that
        Dynamo traces, which compiles nothing.
        """
        frames = _frames()[self._frames_before :]
        named = [frame for frame in frames if getattr(frame, "co_name", None) is not None]
        return sum(not _OF_HIGHER_ORDER.search(frame.co_filename or "") for frame in named)

    def _compile_seconds(self) -> float | None:
        """Return the wall time inside Dynamo and its backend, with backward graphs, which compile when they first run.

        The recording of CUDA graphs and autotuning at run time are not included.
        """
        spent = getattr(utils, "calculate_time_spent", None)
        return None if spent is None else float(spent().get("total_wall_time", 0.0))

    def counts(self, cache: CacheMode | None, *, warm_graphs: int | None = None) -> Compilation:
        """Return all figures since the watch began. Figures that this PyTorch does not keep are None or empty.

        `warm_graphs` is the number of graphs right after the warm-up, for a count that is made later.
        """
        counters = _counters()
        counters.subtract(self._counters_before)
        frames = _frames()[self._frames_before :]
        seconds = self._compile_seconds()
        compiled = [frame for frame in frames if getattr(frame, "is_forward", True) is not False]
        graphs = counters["stats", "unique_graphs"]
        return Compilation(
            graphs=graphs,
            graph_breaks={reason: n for (kind, reason), n in counters.items() if kind == "graph_break" and n},
            cudagraph_skips=counters["inductor", "cudagraph_skips"],
            cache=cache,
            cache_hits=max(counters["inductor", "fxgraph_cache_hit"], counters["aot_autograd", "autograd_cache_hit"]),
            cache_misses=max(
                counters["inductor", "fxgraph_cache_miss"], counters["aot_autograd", "autograd_cache_miss"]
            ),
            compile_s=None if seconds is None or not compiled else seconds - (self._seconds_before or 0.0),
            guards=_total(getattr(frame, "guard_count", None) for frame in compiled),
            breaks=(*map(_graph_break, _breaks()[self._breaks_before :]), *_given_up(compiled)),
            recompilations=tuple(_recompilations(compiled)),
            cudagraph_skip_reasons=tuple(dict.fromkeys(map(_one_line, self._skips))),
            late_graphs=0 if warm_graphs is None else graphs - warm_graphs,
            traced=is_traced(),
            operators_captured=counters["stats", "calls_captured"],
        )


def set_compile_processes(count: int) -> None:
    """Let inductor compile kernels in so many processes, forked from this process.

    By default inductor starts a new Python for them, which imports torch and inductor again: some six seconds of CPU
    time in every case. Must be called before anything is compiled.
    """
    inductor.compile_threads = count
    inductor.worker_start_method = "fork"


@contextlib.contextmanager
def caches_in(folder: Path | None) -> Iterator[None]:
    """Let compilers use the caches in this folder, which other processes may have filled."""
    if folder is None:
        yield
        return
    names = backends.cache_variables(folder)
    before = {name: os.environ[name] for name in names if name in os.environ}
    os.environ.update(names)
    try:
        yield
    finally:
        for name in names:
            del os.environ[name]
        os.environ.update(before)


def watch_compilation() -> CompilationWatch:
    """Begin to watch. From then on Dynamo drops no metrics of frames."""
    set_limit = getattr(utils, "set_compilation_metrics_limit", None)
    if set_limit is not None:
        set_limit(_FRAMES_KEPT)
    watch = CompilationWatch()
    logging.getLogger(_SKIP_LOGGER).addHandler(watch)
    return watch


def require_eager(model: Model, watch: CompilationWatch) -> None:
    """Require that steps in eager compiled nothing.

    Raises:
        NotRunnable: the model compiles a part of itself, so that no step of it is in eager.
    """
    scripted = [
        f"{network_name}.{name}".rstrip(".")
        for network_name, network in model.networks().items()
        for name, module in network.named_modules()
        if isinstance(module, torch.jit.ScriptModule)
    ]
    if graphs := watch.own_graphs():
        what = f"its step calls torch.compile itself ({graphs} graph{'s' * (graphs > 1)} compiled)"
    elif scripted:
        what = f"{scripted[0]} is compiled by TorchScript"
    else:
        return
    raise NotRunnable(f"{what}, so that nothing of it runs in eager: leave compiling to --backend")


def count_compiled(watch: CompilationWatch, case: Case, cache: CacheMode | None) -> Compilation | None:
    """Return the counts of the watch for the case's backend; None for a backend that is not behind Dynamo.

    Raises:
        LabelNotReached: the backend is behind Dynamo and was not given a single graph.
    """
    if not backends.info(case.backend.name).uses_dynamo:
        return None
    counts = watch.counts(cache)
    if counts.graphs == 0:
        raise LabelNotReached(f"Dynamo gave {case.backend} nothing to compile: the step would run as eager")
    return counts


def packaged(packages: Sequence[PackagedNetwork], cache: CacheMode | None) -> Compilation | None:
    """Return size, compile time and load time of all packages of a variant together; None if it has no packages."""
    if not packages:
        return None
    return Compilation(
        cache=cache,
        compile_s=sum(package.compile_s for package in packages),
        package_bytes=sum(package.package_bytes for package in packages),
        load_s=sum(package.load_s for package in packages),
        traced=is_traced(),
    )


def _counters() -> Counter[tuple[str, str]]:
    return Counter({(group, name): n for group, counts in utils.counters.items() for name, n in counts.items()})


def _frames() -> list[Any]:
    """Return `CompilationMetrics` of each frame that Dynamo compiled, and of backward graphs, which have no name."""
    metrics = getattr(utils, "get_compilation_metrics", None)
    return [] if metrics is None else list(metrics())


def _breaks() -> list[Any]:
    return list(getattr(utils, "graph_break_reasons", ()))


def _graph_break(broken: Any) -> GraphBreak:
    """Return a break from Dynamo's `GraphCompileReason`, whose stack ends at the place where the graph ends."""
    stack = getattr(broken, "user_stack", None)
    place = _place(stack[-1].filename, stack[-1].lineno, stack[-1].name) if stack else "?"
    return GraphBreak(reason=_break_reason(broken.reason), place=place)


def _given_up(frames: Iterable[Any]) -> list[GraphBreak]:
    """Return the functions that Dynamo could not compile and left to Python as a whole."""
    found = []
    for frame in frames:
        name = getattr(frame, "co_name", None)
        if getattr(frame, "fail_type", None) is None or name is None:
            continue
        filename = getattr(frame, "fail_user_frame_filename", None) or frame.co_filename
        line = getattr(frame, "fail_user_frame_lineno", None) or frame.co_firstlineno
        reason = LEFT_WHOLE + _break_reason(frame.fail_reason or frame.fail_type)
        found.append(GraphBreak(reason=reason, place=_place(filename, line, name)))
    return found


def _recompilations(frames: Iterable[Any]) -> Iterator[Recompilation]:
    """Yield each recompilation with the guard that failed, without the number of its compilation and the stack below.

    After too many compilations of a function, Dynamo refuses to compile it again. The metrics then name no function,
    but the number in `compile_id` is unchanged.
    """
    places: dict[str, str] = {}
    for frame in frames:
        number = (getattr(frame, "compile_id", None) or "").rpartition("/")[0]  # of the function, in `3/1`
        name = getattr(frame, "co_name", None)
        if name is not None:
            places[number] = _place(frame.co_filename, frame.co_firstlineno, name)
        text = getattr(frame, "recompile_reason", None)
        if text:
            guard = re.sub(r"^\S+/\d+: ", "", text.strip().splitlines()[0])
            refused = "" if name is not None else REFUSED
            yield Recompilation(place=places.get(number, "?"), reason=_one_line(refused + guard))


def _break_reason(text: str) -> str:
    """Return the break and Dynamo's explanation of it in one line, without hints and addresses."""
    what, *rest = text.strip().splitlines() or ["?"]
    explanations = [line.split("Explanation:", 1)[1].strip() for line in rest if "Explanation:" in line]
    return _one_line(": ".join([what, *explanations[:1]]))


def _one_line(text: str) -> str:
    return " ".join(re.sub(r" at 0x[0-9a-f]+", "", text).split())[:_REASON_CHARACTERS]


def _place(filename: str, line: int, function: str) -> str:
    """Return `torchvision/models/resnet.py:268 in _forward_impl`: the path below site-packages, or its last 3 parts."""
    parts = PurePath(filename).parts
    start = parts.index("site-packages") + 1 if "site-packages" in parts else max(0, len(parts) - 3)
    function = re.sub(r"^torch_dynamo_resume_in_(.*)_at_[0-9]+$", r"\1", function)
    return f"{'/'.join(parts[start:])}:{line} in {function}"


def _total(numbers: Iterable[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None
