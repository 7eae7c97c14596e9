"""What a container may use of its host: the limits of its control group.

`docker run --cpus 8 -m 64g` limits CPU time and memory. Neither the number of cores nor the free memory of the host
tells of it. Only control groups of version 2 are read (https://docs.kernel.org/admin-guide/cgroup-v2.html): in a
container, its own group is at the root.
"""

from __future__ import annotations

import math
from pathlib import Path

import psutil

GROUP = Path("/sys/fs/cgroup")


def cpu_limit(group: Path | None = None) -> float | None:
    """How many cores' time the processes may use together; None if there is no limit."""
    match _words(group, "cpu.max"):
        case [quota, period] if quota.isdigit() and period.isdigit() and int(period):
            return int(quota) / int(period)
    return None


def available_bytes(group: Path | None = None) -> int:
    """Host memory that is free or can be freed at once: the host's, or what the limit leaves, whichever is less."""
    on_host = int(psutil.virtual_memory().available)
    limit, used = _words(group, "memory.max"), _words(group, "memory.current")
    if not (limit and used and limit[0].isdigit() and used[0].isdigit()):
        return on_host
    statistics = _words(group, "memory.stat")
    cached = int(dict(zip(statistics[::2], statistics[1::2], strict=False)).get("inactive_file", 0))
    return max(0, min(on_host, int(limit[0]) - int(used[0]) + cached))


def whole_cores(count: int, group: Path | None = None) -> int:
    """As many of `count` cores as the limit allows to be busy all the time, rounded up."""
    limit = cpu_limit(group)
    return count if limit is None else max(1, min(count, math.ceil(limit)))


def _words(group: Path | None, name: str) -> list[str]:
    """The words of a file of the group; of this process's own if none is given."""
    try:
        return ((group or GROUP) / name).read_text().split()
    except OSError:
        return []
