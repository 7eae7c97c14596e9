"""What the processes of a case measured, by metric: the values that its findings are made from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, median

from torchzoo import stats
from torchzoo.analysis.bound import Bound, bound_of
from torchzoo.case import EAGER, Case
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured
from torchzoo.settings import CacheMode


def shown_variant(measured: Measured) -> str:
    """The variant whose figures stand for the case: the candidate, or eager if there is none."""
    return CANDIDATE_VARIANT if CANDIDATE_VARIANT in measured.variants else EAGER_VARIANT


def times_s(processes: Iterable[Measured]) -> list[list[float]]:
    """For each process, the mean step time of each block of the shown variant, in seconds."""
    return [stats.block_times_s(measured.blocks, shown_variant(measured)) for measured in processes]


def is_device_bound(measured: Measured) -> bool:
    """Whether the device bounds the step of the shown variant."""
    return bound_of(measured, shown_variant(measured)) is Bound.DEVICE


def times_over_eager(*sides: Sequence[Measured]) -> list[list[list[float]]]:
    """For each side and process, the candidate's time over that of eager in turns with it, of each quad.

    It is the T of the TorchBench paper, and one over the speedup. What slows the host down takes both variants' time.
    Empty where it tells no more than the time: the device bounds all of them, or one has no quad or eager alone.
    """
    processes = [one for side in sides for one in side]
    if all(map(is_device_bound, processes)) or any(CANDIDATE_VARIANT not in one.variants for one in processes):
        return []
    values = [[[1 / ratio for ratio in stats.quad_ratios(one.blocks)] for one in side] for side in sides]
    return values if all(map(all, values)) else []


def host_loops_s(*sides: Sequence[Measured]) -> list[list[float]]:
    """For each side, the host's own speed in each process that recorded it: seconds of its loop of plain Python.

    The speed is the median of the looks beside the timed blocks if all processes of all sides have them; else the mean
    of one look before and one after the blocks.
    """
    if all(one.host is not None and one.host.looks_s for side in sides for one in side):
        return [[median(one.host.looks_s) for one in side if one.host is not None] for side in sides]
    return [[fmean(one.host_loop_s) for one in side if one.host_loop_s] for side in sides]


def compares_compile_time(case: Case, processes: Sequence[Measured]) -> bool:
    """Whether these processes have times of compiling that can be compared."""
    return case.backend != EAGER and compile_cache(processes) is not None and bool(compile_times_s(processes))


def compile_cache(processes: Iterable[Measured]) -> CacheMode | None:
    """What the compilers' caches held, the same in all processes; None where their compile times can't be compared."""
    results = [one.variants[CANDIDATE_VARIANT] for one in processes]
    compiled = [one.compilation for one in results if one.compilation is not None]
    caches = {one.cache for one in compiled}
    if len(caches) != 1 or CacheMode.SHARED in caches:
        return None  # with shared ones, the two runs may have compiled different parts anew
    if any(one.traced for one in compiled):
        return None  # writing the trace took a part of the time
    return caches.pop()


def found_other_code(base: Sequence[Measured], candidate: Sequence[Measured]) -> bool:
    """Whether the processes of one side found more of their compiled code in shared caches than those of the other.

    What compiles holds more of the host's memory afterwards than what only loads.
    """
    compiled = [
        [one.variants[CANDIDATE_VARIANT].compilation for one in side if len(one.variants) > 1]
        for side in (base, candidate)
    ]
    of_sides = [{(one.cache, one.cache_misses) for one in side if one is not None} for side in compiled]
    is_shared = any(cache is CacheMode.SHARED for side in of_sides for cache, _ in side)
    return is_shared and of_sides[0] != of_sides[1]


def compile_times_s(processes: Iterable[Measured]) -> list[float]:
    """CPU seconds of the candidate's first step in each process; nothing where one of them could not be read."""
    found = [one.variants[CANDIDATE_VARIANT].first_step_cpu_s for one in processes]
    return found if all(value > 0 for value in found) else []


def memory_bytes(processes: Iterable[Measured], *, on_device: bool) -> list[int]:
    """The peak of the shown variant in each process that recorded it: on the device, or on the host."""
    memories = [one.variants[shown_variant(one)].memory for one in processes]
    peaks = [one.device_peak_allocated_bytes if on_device else one.host_peak_rss_bytes for one in memories]
    return [peak for peak in peaks if peak]


def peak_is_of_pass(measured: Measured) -> bool:
    """Whether the host's peak is that of the memory pass alone, and not of the whole process."""
    return measured.variants[shown_variant(measured)].memory.host_peak_is_of_pass
