"""Types of bounded numbers, which msgspec checks when it reads a file.

Whole numbers fit 64 bits, and times lie between a picosecond and 30,000 years, so that no arithmetic on them overflows
or divides by zero.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
PositiveCount = Annotated[int, Meta(ge=1, le=2**63 - 1)]

#: Elapsed seconds. Divisors are never zero: `PositiveSeconds`.
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
PositiveSeconds = Annotated[float, Meta(ge=1e-12, le=1e12)]

#: A limit that a user sets, in seconds: any number that is not negative.
LimitSeconds = Annotated[float, Meta(ge=0)]

#: A rate, a power or an energy, in any unit.
Amount = Annotated[float, Meta(ge=0, le=1e30)]
PositiveAmount = Annotated[float, Meta(ge=1e-30, le=1e30)]
