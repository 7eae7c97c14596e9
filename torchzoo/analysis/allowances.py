"""The part of a difference of times that something else than the code may explain: the host, or others on the device.

A part is a share of the logarithm of the ratio. A test asks whether the difference is larger.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

HOST_LOOP_NOISE = 0.02  # a smaller difference of `host_loop_s` between processes is noise of a quiet machine


def host_allowance(
    value: float, base_loops_s: Sequence[float], candidate_loops_s: Sequence[float]
) -> tuple[float, str]:
    """The part of a difference that the host's own speed explains, and a remark about it.

    The host's speed is the time of its loop of plain Python. It explains only a difference in the same direction.

    Args:
        value: the difference, a logarithm of candidate over base.
        base_loops_s: the loop's times, of the base's processes.
        candidate_loops_s: of the candidate's.
    """
    if not base_loops_s or not candidate_loops_s:
        return math.inf, "the host's own speed was not recorded"
    host = math.log(median(candidate_loops_s) / median(base_loops_s))
    if abs(host) <= HOST_LOOP_NOISE or host * value <= 0:
        return 0.0, ""
    return abs(host), f"the host's own loop took {math.exp(host):.2f} times as long: so much is not counted"


def sharing_allowance(*, base: bool, candidate: bool) -> tuple[float, str]:
    """The part of a difference that others' work on the device may explain, and a remark about it.

    Args:
        base: whether others used the device, or had it open, in all of the base's processes.
        candidate: the same of the candidate's.
    """
    if base == candidate:
        return 0.0, ""
    which = "base" if base else "candidate"
    return math.inf, f"other processes used the device, or had it open, while the {which} was measured"
