"""How much a step computes and reads, how fast, and what bounds it, as lines of one case's table."""

from __future__ import annotations

from torchzoo.analysis.peaks import Peaks, PeaksFileError
from torchzoo.analysis.roofline import Achieved, achieved, known_peaks, read_rate
from torchzoo.case import Case
from torchzoo.record import Measured
from torchzoo.report import units


def lines(case: Case, measured: Measured) -> list[tuple[str, list[str]]]:
    """A label and a cell for each variant; no lines if neither operations nor bytes were counted."""
    api = _api_lines(measured)
    if measured.flops is None and measured.bytes_read_per_step is None:
        return api
    try:
        peaks = known_peaks(case, measured)
    except PeaksFileError as error:
        return [("share of peak (MFU)", [str(error), *[""] * (len(measured.variants) - 1)]), *api]
    return [*_read_lines(measured, peaks), *_operation_lines(measured, peaks), *api]


def _api_lines(measured: Measured) -> list[tuple[str, list[str]]]:
    """How many functions and operators the eager step uses; the records have their names."""
    if measured.api is None:
        return []
    found = f"{len(measured.api.functions)}, {len(measured.api.operators)}"
    return [("functions, operators of PyTorch", [found, *["-"] * (len(measured.variants) - 1)])]


def _read_lines(measured: Measured, peaks: Peaks) -> list[tuple[str, list[str]]]:
    rates = [rate for name in measured.variants if (rate := read_rate(measured, name, peaks)) is not None]
    if not rates:
        return []
    size = units.size(measured.bytes_read_per_step)
    peak = "not known" if peaks.memory is None else f"{units.size(int(peaks.memory.per_s))}/s ({peaks.memory.source})"
    return [
        ("weights and caches read", [size if i == 0 else "the same" for i in range(len(rates))]),
        ("read at least at", [f"{units.size(int(rate.bytes_per_s.value))}/s" for rate in rates]),
        ("peak of the memory", [peak if i == 0 else "the same" for i in range(len(rates))]),
        ("share of that peak", ["-" if rate.share is None else f"{rate.share.value:.1%}" for rate in rates]),
    ]


def _operation_lines(measured: Measured, peaks: Peaks) -> list[tuple[str, list[str]]]:
    if measured.flops is None:
        return []
    found = [reached for name in measured.variants if (reached := achieved(measured, name, peaks)) is not None]
    if not measured.flops.total:
        return [("operations of a step", ["none that count", *[""] * (len(found) - 1)])]
    total = units.operations(measured.flops.total)
    return [
        ("operations of a step", [total if i == 0 else "the same" for i in range(len(found))]),
        ("achieved", [units.operations_per_s(one.flop_per_s) for one in found]),
        ("its peak", [_peak(one) for one in found]),
        ("share of peak (MFU)", ["-" if one.mfu is None else f"{one.mfu.value:.1%}" for one in found]),
        ("bound by", [f"{one.bound} ({one.why})" for one in found]),
    ]


def _peak(reached: Achieved) -> str:
    """`67.0 TFLOP/s (fp32 12%, tf32 88%; datasheet)`."""
    if reached.peak is None:
        return "not known; see torchzoo doctor --peaks"
    paths = sorted(reached.peak.paths.items())
    mixture = ", ".join(path if share > 0.995 else f"{path} {share:.0%}" for path, share in paths if share > 0.005)
    return f"{units.operations(reached.peak.flop_per_s)}/s ({mixture}; {reached.peak.source})"
