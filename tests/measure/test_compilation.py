"""What is known of a compilation: graphs, breaks with place and reason, recompilations, guards, CUDA-graph skips."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
import torch._dynamo
from torch import nn

import examples
from torchzoo.analysis.figures import case_figures
from torchzoo.backends.call import Call
from torchzoo.backends.dynamo import compile_network
from torchzoo.case import Backend
from torchzoo.measure.compilation import CompilationWatch, count_compiled, watch_compilation
from torchzoo.measure.precision import LabelNotReached
from torchzoo.record import Compilation, GraphBreak, Recompilation
from torchzoo.report import compile_stats as report
from torchzoo.report.remarks import remarks
from torchzoo.settings import CacheMode

HERE = f"{'/'.join(Path(__file__).parts[-3:])}"


@pytest.fixture(name="watch")
def _watch() -> Iterator[CompilationWatch]:
    torch._dynamo.reset()
    watch = watch_compilation()
    yield watch
    for name in list(logging.Logger.manager.loggerDict):
        logging.getLogger(name).removeHandler(watch)
    torch._dynamo.reset()


def line_of(words: str) -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), start=1) if words in line)


class Breaking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()  # the deliberate one
        return self.second(x)


def test_a_graph_break_shows_its_reason_and_place(watch: CompilationWatch) -> None:
    network = Breaking()
    torch.compile(network._call_impl, backend="aot_eager")(torch.randn(2, 4)).sum().backward()
    counts = watch.counts(CacheMode.COLD)
    assert counts.graphs == 2
    assert len(counts.breaks) == sum(counts.graph_breaks.values()) >= 1
    place = f"{HERE}:{line_of('# the deliberate one')} in forward"
    assert {broken.place for broken in counts.breaks} == {place}
    assert all("torch._dynamo.graph_break()" in broken.reason for broken in counts.breaks)
    assert all("\n" not in broken.reason and "Hint" not in broken.reason for broken in counts.breaks)
    assert counts.recompilations == ()


def test_a_changed_shape_shows_the_guard_that_failed(watch: CompilationWatch) -> None:
    def scaled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = torch.compile(scaled, backend="aot_eager")
    compiled(torch.ones(3))
    assert watch.counts(CacheMode.COLD).recompilations == ()
    compiled(torch.ones(5))
    assert watch.counts(CacheMode.COLD, warm_graphs=1).late_graphs == 1
    (again,) = watch.counts(CacheMode.COLD).recompilations
    assert again.place == f"{HERE}:{line_of('def scaled')} in scaled"
    assert again.reason.startswith("tensor 'x' size mismatch at index 0. expected 3, actual 5")


def test_a_function_that_is_compiled_too_often_is_refused_and_reported(watch: CompilationWatch) -> None:
    def lengths(x: torch.Tensor, text: str) -> torch.Tensor:
        return x + len(text)

    compiled = torch.compile(lengths, backend="eager")
    with torch._dynamo.config.patch(recompile_limit=2):
        for length in range(5):
            compiled(torch.ones(3), "a" * length)
    counts = watch.counts(CacheMode.COLD)
    assert counts.graphs == 2
    assert [again.reason.startswith("refused, compiled too often: ") for again in counts.recompilations] == [0, 1]
    assert {again.place for again in counts.recompilations} == {f"{HERE}:{line_of('def lengths')} in lengths"}


def test_a_function_that_is_left_to_python_is_reported(watch: CompilationWatch) -> None:
    def looping(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            try:
                torch._dynamo.graph_break()  # where no graph can be resumed
            finally:
                x = x + 1
        return x

    torch.compile(looping, backend="eager")(torch.ones(3))
    counts = watch.counts(CacheMode.COLD)
    assert counts.graphs == 0
    (given_up,) = counts.breaks
    assert given_up.reason.startswith("left to Python whole: ")
    assert given_up.place == f"{HERE}:{line_of('# where no graph can be resumed')} in looping"
    with pytest.raises(LabelNotReached, match="nothing to compile"):
        count_compiled(watch, examples.record(backend=Backend("inductor")).case, CacheMode.COLD)


def test_a_clean_network_has_guards_and_time_but_no_breaks(watch: CompilationWatch) -> None:
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    compiled = compile_network(network, Call((), {}, torch.Tensor), Backend("aot_eager"))
    for _ in range(3):
        compiled(torch.randn(2, 4)).sum().backward()
    counts = watch.counts(CacheMode.COLD)
    assert (counts.graphs, counts.breaks, counts.recompilations, counts.cudagraph_skips) == (1, (), (), 0)
    assert counts.guards is not None
    assert counts.guards > 0
    assert counts.compile_s is not None
    assert counts.compile_s > 0
    assert count_compiled(watch, examples.record(backend=Backend("inductor")).case, CacheMode.COLD) == counts
    assert (
        count_compiled(watch, examples.record(backend=Backend("export")).case, CacheMode.COLD) is None
    )  # it is not behind Dynamo


def test_only_what_came_after_the_watch_began_is_counted(watch: CompilationWatch) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    torch.compile(doubled, backend="eager")(torch.ones(3))
    later = CompilationWatch()
    assert watch.counts(CacheMode.COLD).graphs == 1
    assert later.counts(CacheMode.COLD) == Compilation(cache=CacheMode.COLD, late_graphs=0, operators_captured=0)


def test_more_frames_than_dynamo_keeps_by_itself_are_all_counted(watch: CompilationWatch) -> None:
    functions = [eval(f"lambda x: x * {n}") for n in range(70)]  # each has a code object of its own
    for function in functions:
        torch.compile(function, backend="eager")(torch.ones(3))
    one = CompilationWatch()
    torch.compile(lambda x: x * 70, backend="eager")(torch.ones(3))
    guards, each = watch.counts(CacheMode.COLD).guards, one.counts(CacheMode.COLD).guards
    assert each is not None
    assert guards == 71 * each


def test_the_reason_of_a_skipped_cuda_graph_is_kept(watch: CompilationWatch) -> None:
    from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter

    for _ in range(2):
        log_cudagraph_skip_and_bump_counter("skipping cudagraphs due to mutated inputs (1 instances)")
    counts = watch.counts(CacheMode.COLD)
    assert counts.cudagraph_skips == 2
    assert counts.cudagraph_skip_reasons == ("skipping cudagraphs due to mutated inputs (1 instances)",)


@pytest.mark.gpu
def test_on_a_gpu_a_cpu_tensor_in_the_graph_is_why_no_cuda_graph_is_recorded(watch: CompilationWatch) -> None:
    def mixed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() + 1, y.cos() + 1

    with torch._inductor.config.patch({"graph_partition": False}):
        torch.compile(mixed, mode="reduce-overhead")(torch.ones(8, device="cuda"), torch.ones(8))
    counts = watch.counts(CacheMode.COLD)
    assert counts.cudagraph_skips >= 1
    assert any("cpu device" in reason for reason in counts.cudagraph_skip_reasons)


COUNTS = Compilation(
    graphs=3,
    cache=CacheMode.COLD,
    cache_misses=3,
    cudagraph_skips=2,
    compile_s=1.5,
    guards=40,
    breaks=(GraphBreak(reason="a print", place="a/b.py:7 in forward"),) * 2,
    recompilations=(Recompilation(place="a/b.py:3 in forward", reason="size mismatch"),),
    cudagraph_skip_reasons=("skipping cudagraphs due to mutation",),
)


def compiled_record(counts: Compilation) -> examples.Record:
    variants = {"eager": examples.variant_result(), "candidate": examples.variant_result(compilation=counts)}
    outcome = msgspec.structs.replace(examples.compared(), variants=variants)
    return examples.record(outcome, backend=examples.INDUCTOR)


def test_the_table_has_each_reason_once_with_its_place() -> None:
    lines = examples.rendered(report.document([compiled_record(COUNTS), examples.record()]), width=80).splitlines()
    label = "tiny eval cpu inductor bs4"
    assert lines.count(label) == 2  # in the table, and above its reasons
    figures = lines[lines.index(label) + 1]
    assert figures.split() == ["1.50", "s", "400", "ms", "3", "2", "1", "40", "2", "cold,", "0", "of", "3"]
    headings = ["compiling", "CPU", "time", "graphs", "breaks", "recompiled", "guards", "skips", "cache", "hits"]
    assert lines[lines.index(label) - 1].split() == headings
    assert lines[-3:] == [
        "graph break (2 times): a/b.py:7 in forward: a print",
        "recompiled: a/b.py:3 in forward: size mismatch",
        "no CUDA graph: skipping cudagraphs due to mutation",
    ]
    assert examples.rendered(report.document([examples.record()])) == "compilation: no case was compiled\n"


def test_one_cases_table_is_short_and_says_what_was_not_counted() -> None:
    many = tuple(GraphBreak(reason="a print", place=f"a.py:{n} in f") for n in range(9))
    record = compiled_record(msgspec.structs.replace(COUNTS, breaks=many))
    assert sum(line.startswith("graph break") for line in report.reasons(record.outcome)) == report.FEW + 1
    uncounted = compiled_record(Compilation(graphs=2, breaks=many[:3]))
    assert "candidate: 3 graph breaks" in remarks(uncounted.outcome)
    shown = dict(report.lines(case_figures([uncounted]).variants))
    assert shown.pop("graphs, graph breaks") == ["-", "2, 3"]
    assert {cell for cells in shown.values() for cell in cells} == {"-"}


def test_a_package_shows_its_size_and_how_long_it_took() -> None:
    record = compiled_record(Compilation(cache=CacheMode.COLD, compile_s=9.0, package_bytes=3 * 2**20, load_s=0.25))
    shown = dict(report.lines(case_figures([record]).variants))
    assert shown["compiling"] == ["-", "9.00 s"]
    assert shown["package"] == ["-", "3.00 MiB"]
    assert shown["loading the package"] == ["-", "250 ms"]
    assert shown["graphs, graph breaks"] == shown["recompilations"] == ["-", "-"]
    assert examples.rendered(report.document([record])).endswith("\npackage: 3.00 MiB, loaded in 250 ms\n")
