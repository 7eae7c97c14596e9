"""How much a step computes, how fast, and what bounds it, as lines of one case's table."""

from __future__ import annotations

from torchzoo.analysis.peaks import PeaksFileError
from torchzoo.analysis.roofline import Achieved, achieved, known_peaks
from torchzoo.case import Case
from torchzoo.record import Measured
from torchzoo.report import units


def lines(case: Case, measured: Measured) -> list[tuple[str, list[str]]]:
    """A label and a cell for each variant; no lines if operations were not counted."""
    if measured.flops is None:
        return []
    try:
        peaks = known_peaks(case, measured)
    except PeaksFileError as error:
        return [("share of peak (MFU)", [str(error), *[""] * (len(measured.variants) - 1)])]
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
