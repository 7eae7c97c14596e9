"""Declare the figures of a case, and give runs as a table: a row for each case, columns with units.

Tables, CSV, JSON, HTML and notebooks read `FIGURES`. pandas is imported only to make the frame.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.analysis import leaks
from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import AXES, Axis
from torchzoo.record import Check, Checked, Failed, Measured, Skipped, VariantResult
from torchzoo.store import read_run

if TYPE_CHECKING:
    import pandas as pd

TEXT, WHOLE, NUMBER, FLAG = "string", "Int64", "Float64", "boolean"
LATENCY = "seconds of a step, the device synchronised before and after; median"
MEASURED, CHECKED, SKIPPED, FAILED = "measured", "checked", "skipped", "failed"


#: How a figure follows from something: a function of it, or a path of attributes, which ends early where one is None.
Of = Callable[..., Any] | str


class Figure(msgspec.Struct, frozen=True):
    """Something that is known of a case: the name of its column, its pandas type, what it is, and how it follows.

    To add one, add its entry to `FIGURES`.
    """

    name: str  # with the unit
    dtype: str
    text: str
    of: Of  # of a `CaseResult`

    def value(self, result: CaseResult) -> Any:
        """The figure of a case, unrounded; None where there is nothing to say."""
        found = follow(result, self.of)
        return (str(found) or None) if self.dtype == TEXT and found is not None else found


def follow(start: Any, of: Of) -> Any:
    """Return what `of` finds from `start`, or None where a value on the way is None."""
    if not isinstance(of, str):
        return None if start is None else of(start)
    for name in of.split("."):
        start = None if start is None else getattr(start, name)
    return start


def _of_axis(axis: Axis) -> Figure:
    if axis.kind is int:
        return Figure(axis.name, WHOLE, axis.column, f"case.{axis.name}")
    return Figure(axis.name, TEXT, axis.column, lambda one: axis.text(one.case))


def _measured(name: str, dtype: str, text: str, of: Of = "") -> Figure:
    """A figure of the `CaseFigures` of cases that were measured."""
    return Figure(name, dtype, text, lambda one: follow(one.figures, of or name))


def _of_both(name: str, dtype: str, text: str, of: Of = "") -> tuple[Figure, Figure]:
    """A figure of the `VariantFigures` of eager, and of the candidate."""
    return (
        _measured(f"eager_{name}", dtype, f"eager: {text}", lambda figures: follow(figures.eager, of or name)),
        _measured(name, dtype, f"candidate (else eager): {text}", lambda figures: follow(figures.shown, of or name)),
    )


def _raw(name: str, dtype: str, text: str, of: Of = "") -> tuple[Figure, Figure]:
    """The same, of what was recorded of a variant."""
    return _of_both(name, dtype, text, lambda variant: follow(variant.raw, of or name))


def _compiled(name: str, dtype: str, text: str, of: Of = "") -> Figure:
    """A figure of the `Compilation` of a candidate."""
    return _measured(name, dtype, text, lambda figures: follow(figures.candidate, f"raw.compilation.{of or name}"))


def _with_interval(name: str, text: str, of: str) -> tuple[Figure, ...]:
    """A figure that is an `Estimate`: five columns."""

    def end(field: str) -> Callable[[CaseFigures], float | None]:
        return lambda figures: getattr(found, field) if (found := follow(figures, of)) and found.has_interval else None

    return (
        _measured(name, NUMBER, text, f"{of}.value"),
        _measured(f"{name}_low", NUMBER, f"lower end of the interval of {name}", end("low")),
        _measured(f"{name}_high", NUMBER, f"upper end of the interval of {name}", end("high")),
        _measured(
            f"{name}_confidence",
            NUMBER,
            f"probability that the interval of {name} holds the true value",
            end("confidence"),
        ),
        _measured(f"{name}_count", WHOLE, f"samples (blocks or quads) behind {name}", f"{of}.count"),
    )


def _failure(name: str, text: str, of: str) -> Figure:
    return Figure(name, TEXT, text, lambda one: follow(one.outcome if isinstance(one.outcome, Failed) else None, of))


def _outcome(name: str, dtype: str, text: str) -> Figure:
    """A field of what was measured, or checked without timing."""

    def of(result: CaseResult) -> Any:
        found = result.figures.measured if result.figures is not None else result.outcome
        return getattr(found, name) if isinstance(found, Measured | Checked) else None

    return Figure(name, dtype, text, of)


def _check(result: CaseResult) -> Check | None:
    """The check of the case. One process with wrong results is enough."""
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


def _throughput(variant: str) -> Callable[[CaseFigures], float]:
    return lambda figures: figures.samples_per_s(getattr(figures, variant))


def _is_finite(figures: CaseFigures) -> bool:
    return all(variant.result_is_finite for variant in figures.measured.variants.values())


def leak_check(variant: VariantResult) -> leaks.LeakCheck | None:
    """The verdict on the variant's growth; None where it was not asked for or is too short to tell."""
    try:
        return leaks.check(variant.growth) if variant.growth else None
    except ValueError:
        return None


def _growth(what: leaks.Measure) -> Callable[[VariantResult], float | None]:
    def of(variant: VariantResult) -> float | None:
        leak = leak_check(variant)
        return leak.slopes[what].value if leak and what in leak.slopes else None

    return of


_THROUGHPUT = "samples per second, many steps with one synchronisation"

#: What each column holds. The candidate is the backend beside eager; of a case that is eager alone, eager itself.
FIGURES: tuple[Figure, ...] = (
    Figure("run", TEXT, "folder of the run", "run"),
    Figure("model", TEXT, "name of the model's folder", "case.model"),
    Figure("domain", TEXT, "the model's domain", "domain"),
    *map(_of_axis, AXES[:2]),  # mode and device
    _outcome("device_name", TEXT, "the device by its maker's name"),
    *map(_of_axis, AXES[2:]),
    Figure("repeats", WHOLE, "processes that were to measure the case and have a record", lambda one: len(one.records)),
    Figure("outcome", TEXT, "measured, checked, skipped or failed; of repeats, failed where one failed", outcome_name),
    Figure("reason", TEXT, "why it was skipped, failed, or is incorrect", "reason"),
    _failure("failure_kind", "oom_device, oom_host, timeout, crashed, not_finite, interrupted or error", "kind"),
    _failure("failure_stage", "stage in which it failed", "stage"),
    _failure("failure_message", "the error in one line", "message"),
    *_with_interval("eager_latency_s", f"eager: {LATENCY}", "eager.latency_s"),
    *_with_interval("latency_s", f"candidate (else eager): {LATENCY}", "shown.latency_s"),
    *_with_interval("speedup", "eager time over candidate time, paired; above 1 the candidate is faster", "speedup"),
    _measured("eager_throughput_per_s", NUMBER, f"eager: {_THROUGHPUT}", _throughput("eager")),
    _measured("throughput_per_s", NUMBER, f"candidate (else eager): {_THROUGHPUT}", _throughput("shown")),
    _measured("sample_unit", TEXT, "what throughput counts", "measured.sample_unit"),
    *_raw("first_step_s", NUMBER, "wall time of the first step, compilation included"),
    *_raw("first_step_cpu_s", NUMBER, "CPU time of the first step, compilers' processes included"),
    _compiled("compile_s", NUMBER, "wall time inside Dynamo and its backend; aoti: from torch.export to the package"),
    _compiled("package_bytes", WHOLE, "aoti: size of the package, weights included"),
    _compiled("load_s", NUMBER, "aoti: wall time of loading the package"),
    _compiled("cache", TEXT, "what the compilers' caches held: cold, warm or shared"),
    Figure("graphs", WHOLE, "graphs that Dynamo compiled", _graphs),
    _compiled("graph_breaks", WHOLE, "graph breaks", "break_count"),
    _compiled("operators_captured", WHOLE, "calls in the graphs that Dynamo captured"),
    _compiled("functions_left", WHOLE, "functions that Dynamo refused or could not compile, and left to eager"),
    _measured(
        "eager_operator_share",
        NUMBER,
        "share of the operators of what is compiled that ran in eager",
        "shown.raw.coverage.eager_share",
    ),
    _compiled("recompilations", WHOLE, "functions that were compiled once more", "recompilation_count"),
    _compiled("cudagraph_skips", WHOLE, "times that CUDA graphs were skipped"),
    *_raw(
        "device_peak_allocated_bytes",
        WHOLE,
        "peak of the device allocator, allocated",
        "memory.device_peak_allocated_bytes",
    ),
    *_raw(
        "device_peak_reserved_bytes",
        WHOLE,
        "peak of the device allocator, reserved",
        "memory.device_peak_reserved_bytes",
    ),
    *_raw("device_process_bytes", WHOLE, "device memory of the process, by NVML", "memory.device_process_bytes"),
    *_raw("host_peak_rss_bytes", WHOLE, "host memory, peak resident, libraries included", "memory.host_peak_rss_bytes"),
    *_raw("host_uss_bytes", WHOLE, "host memory unique to the process", "memory.host_uss_bytes"),
    _measured("time_ratio", NUMBER, "T: candidate time over eager time, 1 / speedup", "time_ratio.value"),
    _measured("host_memory_ratio", NUMBER, "CM: candidate over eager, peak resident host memory"),
    _measured("device_memory_ratio", NUMBER, "GM: candidate over eager, peak allocated device memory"),
    _measured("device_time_ratio", NUMBER, "D: candidate over eager, time in which the device works in one step"),
    *_of_both(
        "active_share", NUMBER, "share of the profiled steps in which the device computes", "shares.active.value"
    ),
    *_of_both(
        "movement_share",
        NUMBER,
        "share of the profiled steps in which the device only moves data",
        "shares.movement.value",
    ),
    *_of_both(
        "idle_share", NUMBER, "share of the profiled steps in which the device does nothing", "shares.idle.value"
    ),
    *_of_both(
        "communication_share",
        NUMBER,
        "share of the profiled steps in which only collectives run",
        "shares.communication.value",
    ),
    _measured("flops", WHOLE, "operations of one eager step; a multiply-add counts as two", "measured.flops.total"),
    _measured(
        "bytes_read_per_step",
        WHOLE,
        "weights and caches, each once; of steps that generate a token",
        "measured.bytes_read_per_step",
    ),
    *_of_both("energy_j", NUMBER, "joules per step, by NVML's counter", "step_energy_j.value"),
    Figure(
        "check_status",
        TEXT,
        "results against eager's: correct, incorrect, nondeterministic, reference_failed",
        lambda one: follow(_check(one), "status"),
    ),
    Figure("check_reason", TEXT, "why, in a line", lambda one: follow(_check(one), "reason")),
    *_raw(
        "leak",
        TEXT,
        "verdict of the leak check: level, leak or inconclusive",
        lambda raw: follow(leak_check(raw), "verdict"),
    ),
    *_raw(
        "device_growth_bytes",
        NUMBER,
        "device memory gained per step over many steps (leak check)",
        _growth(leaks.Measure.DEVICE),
    ),
    *_raw(
        "host_growth_bytes",
        NUMBER,
        "host memory gained per step over many steps (leak check)",
        _growth(leaks.Measure.HOST),
    ),
    _outcome("parameters", WHOLE, "of the model"),
    _measured("result_is_finite", FLAG, "no NaN or infinity in the result of either variant", _is_finite),
    _measured("host_syncs", TEXT, "why the step waits for the device by nature", "measured.host_syncs"),
    _outcome("threads", WHOLE, "CPU threads of PyTorch"),
    _measured("stop_reason", TEXT, "why timing stopped: converged, stably_noisy or time_limit", "measured.stop_reason"),
    Figure("started_at", TEXT, "UTC, ISO 8601; of the record shown", "shown.started_at"),
    Figure("finished_at", TEXT, "UTC, ISO 8601", "shown.finished_at"),
    Figure("command", TEXT, "what measures the case again, for a POSIX shell", "command"),
)


def load(runs: str | PathLike[str] | Sequence[str | PathLike[str]]) -> pd.DataFrame:
    """Runs kept with `-o` as one pandas frame: a row per case, the columns of `FIGURES`, missing values as `<NA>`.

    Several runs stand below one another, also of different machines: the column `run` tells them apart. A warning says
    which lines of a run can't be read, and are left out.

    Raises:
        StoreError: no run there, or one of a newer schema.
    """
    paths = [runs] if isinstance(runs, str | PathLike) else list(runs)
    read = [read_run(Path(path)) for path in paths]
    for run in read:
        if run.damage:
            warnings.warn(run.damage, stacklevel=2)
    return to_frame([result for run in read for result in case_results(run)])


def to_frame(results: Sequence[CaseResult]) -> pd.DataFrame:
    """The results as a pandas frame, in their order. `frame.attrs["columns"]` says what each column holds."""
    import pandas as pd

    dtypes = {one.name: one.dtype for one in FIGURES}
    frame = pd.DataFrame([values(result) for result in results], columns=list(dtypes), dtype=object)
    frame = frame.astype(dtypes)
    frame.attrs["columns"] = {one.name: one.text for one in FIGURES}
    return frame


def values(result: CaseResult) -> dict[str, Any]:
    """One row of the frame, every column of it, None where there is nothing to say; unrounded."""
    return {one.name: one.value(result) for one in FIGURES}
