"""Declare the figures of a case, and give runs as a table: a row for each case, columns with units.

Tables, CSV, JSON, HTML and notebooks read `FIGURES`. pandas is imported only to make the frame.
"""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Sequence
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.analysis import leaks
from torchzoo.analysis.bound import case_bound
from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import AXES, Axis
from torchzoo.record import Check, Checked, Failed, Measured, Skipped, VariantResult
from torchzoo.stats import Estimate
from torchzoo.store import read_run

if TYPE_CHECKING:
    import pandas as pd

LATENCY = "seconds of a step, the device synchronised before and after; median"
HOST_WORK = "H: the host's work until a step returns, without waits for the device; seconds of the reference host"
MEASURED, CHECKED, SKIPPED, FAILED = "measured", "checked", "skipped", "failed"


class Unit(enum.StrEnum):
    """The unit of a figure, which decides its type in pandas and its format in tables."""

    TEXT = "text"
    FLAG = "flag"
    COUNT = "count"
    BYTES = "bytes"
    SECONDS = "s"
    RATIO = "ratio"
    SHARE = "share"
    PER_SECOND = "1/s"
    JOULES = "J"
    BYTES_PER_STEP = "bytes/step"

    @property
    def dtype(self) -> str:
        """The type of the column in pandas."""
        whole = {Unit.TEXT: "string", Unit.FLAG: "boolean", Unit.COUNT: "Int64", Unit.BYTES: "Int64"}
        return whole.get(self, "Float64")


#: The figures of a case by their names.
Row = dict[str, Any]

#: The way to a value: a function, or a path of attributes, which gives None if an attribute on the path is None.
Of = Callable[..., Any] | str


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A value that is known of a case. To add a figure, add its entry to `FIGURES`.

    The value comes from the `CaseFigures` of a measured case (`measured`), or from the `CaseResult` of any case (`of`).
    """

    name: str  # name of the column, with the unit
    unit: Unit
    text: str
    of: Of = ""
    measured: Of = ""

    def value(self, result: CaseResult) -> Any:
        """The figure of a case, unrounded; None if the case does not have it."""
        found = follow(result, self.of) if self.of else self.number(result.figures)
        return (str(found) or None) if self.unit is Unit.TEXT and found is not None else found

    def found(self, figures: CaseFigures | None) -> Any:
        """The figure of a measured case, as an `Estimate` if it has an interval."""
        return follow(figures, self.measured)

    def number(self, figures: CaseFigures | None) -> Any:
        """The figure of a measured case, without its interval."""
        found = self.found(figures)
        return found.value if isinstance(found, Estimate) else found


def follow(start: Any, of: Of) -> Any:
    """Return the value that `of` finds from `start`, or None if a value on the path is None."""
    if not isinstance(of, str):
        return None if start is None else of(start)
    for name in of.split("."):
        start = None if start is None else getattr(start, name)
    return start


def _of_axis(axis: Axis) -> Figure:
    if axis.kind is int:
        return Figure(name=axis.name, unit=Unit.COUNT, text=axis.column, of=f"case.{axis.name}")
    return Figure(name=axis.name, unit=Unit.TEXT, text=axis.column, of=lambda one: axis.text(one.case))


def _any(name: str, unit: Unit, text: str, of: Of = "") -> Figure:
    return Figure(name=name, unit=unit, text=text, of=of or name)


def _measured(name: str, unit: Unit, text: str, of: Of = "") -> Figure:
    return Figure(name=name, unit=unit, text=text, measured=of or name)


def _of_both(name: str, unit: Unit, text: str, of: Of = "") -> tuple[Figure, Figure]:
    """A figure of the `VariantFigures` of eager, and the same figure of the candidate."""
    return (
        _measured(f"eager_{name}", unit, f"eager: {text}", lambda figures: follow(figures.eager, of or name)),
        _measured(name, unit, f"candidate (else eager): {text}", lambda figures: follow(figures.shown, of or name)),
    )


def _raw(name: str, unit: Unit, text: str, of: Of = "") -> tuple[Figure, Figure]:
    """A figure of the recorded `VariantResult` of eager, and the same figure of the candidate."""
    return _of_both(name, unit, text, lambda variant: follow(variant.raw, of or name))


def _compiled(name: str, unit: Unit, text: str, of: Of = "") -> Figure:
    return _measured(name, unit, text, lambda figures: follow(figures.candidate, f"raw.compilation.{of or name}"))


def _with_interval(figure: Figure) -> tuple[Figure, ...]:
    name, unit = figure.name, figure.unit

    def end(field: str) -> Callable[[CaseFigures], float | None]:
        return lambda figures: (
            getattr(found, field) if (found := figure.found(figures)) and found.has_interval else None
        )

    confidence = f"probability that the interval of {name} holds the true value"
    count = f"samples (blocks or quads) behind {name}"
    return (
        figure,
        _measured(f"{name}_low", unit, f"lower end of the interval of {name}", end("low")),
        _measured(f"{name}_high", unit, f"upper end of the interval of {name}", end("high")),
        _measured(f"{name}_confidence", Unit.SHARE, confidence, end("confidence")),
        _measured(f"{name}_count", Unit.COUNT, count, lambda figures: follow(figure.found(figures), "count")),
    )


def _failure(name: str, text: str, of: str) -> Figure:
    return _any(name, Unit.TEXT, text, lambda one: follow(one.outcome if isinstance(one.outcome, Failed) else None, of))


def _outcome(name: str, unit: Unit, text: str) -> Figure:
    """A figure that is a field of a `Measured` or `Checked` outcome."""

    def of(result: CaseResult) -> Any:
        found = result.figures.measured if result.figures is not None else result.outcome
        return getattr(found, name) if isinstance(found, Measured | Checked) else None

    return _any(name, unit, text, of)


def _check(result: CaseResult) -> Check | None:
    """The check of the case, of a process with wrong results if there is one."""
    if isinstance(result.outcome, Checked):
        return result.outcome.check
    if result.figures is None:
        return None
    return next(iter(result.wrong_checks), result.figures.measured.check)


def _graphs(result: CaseResult) -> Any:
    if isinstance(result.outcome, Checked):
        return result.outcome.graphs
    return follow(follow(result.figures, "candidate"), "raw.compilation.graphs")


def outcome_name(result: CaseResult) -> str:
    """`measured`, `checked`, `skipped` or `failed`."""
    return {Measured: MEASURED, Checked: CHECKED, Skipped: SKIPPED, Failed: FAILED}[type(result.outcome)]


def leak_check(variant: VariantResult) -> leaks.LeakCheck | None:
    """The verdict on the variant's growth; None if it was not asked for or has too few steps."""
    try:
        return leaks.check(variant.growth) if variant.growth else None
    except ValueError:
        return None


def _growth(what: leaks.Measure) -> Callable[[VariantResult], float | None]:
    def of(variant: VariantResult) -> float | None:
        leak = leak_check(variant)
        return leak.slopes[what].value if leak and what in leak.slopes else None

    return of


_PEAK = "peak allocated on the device, or on the CPU resident"
_THROUGHPUT = "samples per second, many steps with one synchronisation"

#: All columns. The candidate is the backend that is compared with eager; of a case of eager alone, eager itself.
FIGURES: tuple[Figure, ...] = (
    _any("run", Unit.TEXT, "folder of the run"),
    _any("model", Unit.TEXT, "name of the model's folder", "case.model"),
    _any("domain", Unit.TEXT, "the model's domain", "domain"),
    *map(_of_axis, AXES[:2]),  # mode and device
    _outcome("device_name", Unit.TEXT, "the device by its maker's name"),
    *map(_of_axis, AXES[2:]),
    _any(
        "repeats", Unit.COUNT, "processes that were to measure the case and have a record", lambda one: len(one.records)
    ),
    _any(
        "outcome", Unit.TEXT, "measured, checked, skipped or failed; of repeats, failed where one failed", outcome_name
    ),
    _any("reason", Unit.TEXT, "why it was skipped, failed, or is incorrect", "reason"),
    _failure("failure_kind", "oom_device, oom_host, timeout, crashed, not_finite, interrupted or error", "kind"),
    _failure("failure_stage", "stage in which it failed", "stage"),
    _failure("failure_message", "the error in one line", "message"),
    *chain.from_iterable(map(_with_interval, _of_both("latency_s", Unit.SECONDS, LATENCY))),
    *_with_interval(
        _measured(
            "speedup",
            Unit.RATIO,
            "eager time over candidate time, paired; above 1 the candidate is faster",
        )
    ),
    _measured(
        "eager_throughput_per_s", Unit.PER_SECOND, f"eager: {_THROUGHPUT}", lambda one: one.samples_per_s(one.eager)
    ),
    _measured(
        "throughput_per_s",
        Unit.PER_SECOND,
        f"candidate (else eager): {_THROUGHPUT}",
        lambda one: one.samples_per_s(one.shown),
    ),
    _measured("sample_unit", Unit.TEXT, "what throughput counts", "measured.sample_unit"),
    *_raw("first_step_s", Unit.SECONDS, "wall time of the first step, compilation included"),
    *_raw("first_step_cpu_s", Unit.SECONDS, "CPU time of the first step, compilers' processes included"),
    _compiled(
        "compile_s", Unit.SECONDS, "wall time inside Dynamo and its backend; aoti: from torch.export to the package"
    ),
    _compiled("package_bytes", Unit.BYTES, "aoti: size of the package, weights included"),
    _compiled("load_s", Unit.SECONDS, "aoti: wall time of loading the package"),
    _compiled("cache", Unit.TEXT, "what the compilers' caches held: cold, warm or shared"),
    _any("graphs", Unit.COUNT, "graphs that Dynamo compiled", _graphs),
    _compiled("graph_breaks", Unit.COUNT, "graph breaks", "break_count"),
    _compiled("operators_captured", Unit.COUNT, "calls in the graphs that Dynamo captured"),
    _compiled("functions_left", Unit.COUNT, "functions that Dynamo refused or could not compile, and left to eager"),
    _measured(
        "eager_operator_share",
        Unit.SHARE,
        "share of the operators of what is compiled that ran in eager",
        "shown.raw.coverage.eager_share",
    ),
    _compiled("recompilations", Unit.COUNT, "functions that were compiled once more", "recompilation_count"),
    _compiled("cudagraph_skips", Unit.COUNT, "times that CUDA graphs were skipped"),
    *_raw(
        "device_peak_allocated_bytes",
        Unit.BYTES,
        "peak of the device allocator, allocated",
        "memory.device_peak_allocated_bytes",
    ),
    *_raw(
        "device_peak_reserved_bytes",
        Unit.BYTES,
        "peak of the device allocator, reserved",
        "memory.device_peak_reserved_bytes",
    ),
    *_raw("device_process_bytes", Unit.BYTES, "device memory of the process, by NVML", "memory.device_process_bytes"),
    *_raw(
        "host_peak_rss_bytes",
        Unit.BYTES,
        "host memory, peak resident, libraries included",
        "memory.host_peak_rss_bytes",
    ),
    *_raw("host_uss_bytes", Unit.BYTES, "host memory unique to the process", "memory.host_uss_bytes"),
    _measured("eager_peak_bytes", Unit.BYTES, f"eager: {_PEAK}", lambda figures: figures.peak_bytes(figures.eager)),
    _measured(
        "peak_bytes", Unit.BYTES, f"candidate (else eager): {_PEAK}", lambda figures: figures.peak_bytes(figures.shown)
    ),
    _measured(
        "bound",
        Unit.TEXT,
        "what bounds the step: the device, the host or both",
        lambda figures: case_bound([figures.measured]),
    ),
    *_raw("device_s", Unit.SECONDS, "D: seconds in which the device works in one step", "device_active_s"),
    *chain.from_iterable(map(_with_interval, _of_both("host_s", Unit.SECONDS, HOST_WORK))),
    _measured(
        "host_speed",
        Unit.RATIO,
        "time of the host's reference work, over that of the reference host",
        "shown.host_speed",
    ),
    *_of_both(
        "reference_latency_s",
        Unit.SECONDS,
        "time of a step on the reference host, by the model of D and H",
        lambda variant: variant.latency_on(1.0),
    ),
    _measured(
        "reference_speedup", Unit.RATIO, "speedup on the reference host, by the model", lambda one: one.speedup_on(1.0)
    ),
    *_raw("kernels", Unit.COUNT, "kernels of one step", "device_kernels"),
    *_raw("operators", Unit.COUNT, "calls of PyTorch's dispatcher in one step", "counts.operators"),
    *_raw("python_calls", Unit.COUNT, "calls of Python functions in one step", "counts.python_calls"),
    *_raw(
        "launches",
        Unit.COUNT,
        "kernels, graphs and copies that the host hands to the device in one step",
        "counts.launches",
    ),
    *_raw("copies", Unit.COUNT, "copies and memory sets on the device in one step", "counts.copies"),
    *_raw("allocations", Unit.COUNT, "blocks asked of the device's allocator in one step", "counts.allocations"),
    _measured("time_ratio", Unit.RATIO, "T: candidate time over eager time, 1 / speedup", "time_ratio"),
    _measured("host_memory_ratio", Unit.RATIO, "CM: candidate over eager, peak resident host memory"),
    _measured("device_memory_ratio", Unit.RATIO, "GM: candidate over eager, peak allocated device memory"),
    _measured("host_time_ratio", Unit.RATIO, "H: candidate over eager, the host's work for one step"),
    _measured("device_time_ratio", Unit.RATIO, "D: candidate over eager, time in which the device works in one step"),
    *_of_both("active_share", Unit.SHARE, "share of the profiled steps in which the device computes", "shares.active"),
    *_of_both(
        "movement_share",
        Unit.SHARE,
        "share of the profiled steps in which the device only moves data",
        "shares.movement",
    ),
    *_of_both("idle_share", Unit.SHARE, "share of the profiled steps in which the device does nothing", "shares.idle"),
    *_of_both(
        "communication_share",
        Unit.SHARE,
        "share of the profiled steps in which only collectives run",
        "shares.communication",
    ),
    _measured(
        "flops", Unit.COUNT, "operations of one eager step; a multiply-add counts as two", "measured.flops.total"
    ),
    _measured(
        "bytes_read_per_step",
        Unit.BYTES,
        "weights and caches, each once; of steps that generate a token",
        "measured.bytes_read_per_step",
    ),
    *_of_both("energy_j", Unit.JOULES, "joules per step, by NVML's counter", "step_energy_j"),
    _any(
        "check_status",
        Unit.TEXT,
        "results against eager's: correct, incorrect, nondeterministic, reference_failed",
        lambda one: follow(_check(one), "status"),
    ),
    _any("check_reason", Unit.TEXT, "why, in a line", lambda one: follow(_check(one), "reason")),
    *_raw(
        "leak",
        Unit.TEXT,
        "verdict of the leak check: level, leak or inconclusive",
        lambda raw: follow(leak_check(raw), "verdict"),
    ),
    *_raw(
        "device_growth_bytes",
        Unit.BYTES_PER_STEP,
        "device memory gained per step over many steps (leak check)",
        _growth(leaks.Measure.DEVICE),
    ),
    *_raw(
        "host_growth_bytes",
        Unit.BYTES_PER_STEP,
        "host memory gained per step over many steps (leak check)",
        _growth(leaks.Measure.HOST),
    ),
    _outcome("parameters", Unit.COUNT, "of the model"),
    _measured(
        "result_is_finite",
        Unit.FLAG,
        "no NaN or infinity in the result of either variant",
        lambda one: all(two.result_is_finite for two in one.measured.variants.values()),
    ),
    _measured("host_syncs", Unit.TEXT, "why the step waits for the device by nature", "measured.host_syncs"),
    _outcome("threads", Unit.COUNT, "CPU threads of PyTorch"),
    _measured(
        "stop_reason",
        Unit.TEXT,
        "why timing stopped: converged, stably_noisy, time_limit or budget",
        "measured.stop_reason",
    ),
    _any("started_at", Unit.TEXT, "UTC, ISO 8601; of the record shown", "shown.started_at"),
    _any("finished_at", Unit.TEXT, "UTC, ISO 8601", "shown.finished_at"),
    _any("command", Unit.TEXT, "what measures the case again, for a POSIX shell", "command"),
)

_BY_NAME = {one.name: one for one in FIGURES}


def load(runs: str | PathLike[str] | Sequence[str | PathLike[str]]) -> pd.DataFrame:
    """Load runs kept with `-o` as a pandas frame: a row per case, the columns of `FIGURES`, `<NA>` for missing values.

    Several runs, also of different machines, are concatenated; the column `run` tells them apart. A warning names the
    lines of a run that can't be read, which are left out.

    Raises:
        StoreError: a path holds no run, or a run of a newer schema.
    """
    paths = [runs] if isinstance(runs, str | PathLike) else list(runs)
    read = [read_run(Path(path)) for path in paths]
    for run in read:
        if run.damage:
            warnings.warn(run.damage, stacklevel=2)
    return to_frame([result for run in read for result in case_results(run)])


def to_frame(results: Sequence[CaseResult]) -> pd.DataFrame:
    """The results as a pandas frame, in their order. `frame.attrs["columns"]` describes each column."""
    import pandas as pd

    dtypes = {one.name: one.unit.dtype for one in FIGURES}
    frame = pd.DataFrame([values(result) for result in results], columns=list(dtypes), dtype=object)
    frame = frame.astype(dtypes)
    frame.attrs["columns"] = {one.name: one.text for one in FIGURES}
    return frame


def values(result: CaseResult) -> Row:
    """The row of a case: all its figures, unrounded, None for a figure that it does not have."""
    return {one.name: one.value(result) for one in FIGURES}


def figure(name: str) -> Figure:
    """The entry of `FIGURES` with this name."""
    return _BY_NAME[name]
