"""The best rates that a kind of device reaches, as they are kept in files."""

from __future__ import annotations

import msgspec

from torchzoo.bounds import PositiveAmount


class MeasuredPeaks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The best rates that were measured: on one device, or between several of one kind."""

    tflop_per_s: dict[str, PositiveAmount] = {}  # by arithmetic: "fp32", "tf32", "bf16", ...
    gb_per_s: PositiveAmount | None = None  # bytes read and bytes written together; None: between several devices
    bus_gb_per_s: dict[str, PositiveAmount] = {}  # between several devices, by collective: "all_reduce", ...
    torch: str
    date: str
