"""Turns: the fresh processes that a userbenchmark asks for, the arguments of their functions, and their results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from torchzoo.bounds import Count, PositiveCount, Seconds
from torchzoo.case import Case
from torchzoo.record import Block, Breakdown, Recompilation
from torchzoo.settings import Settings, Stage
from torchzoo.zoo.spec import ModelSpec


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a fresh process."""

    function: str  # `module:function`
    case: Case
    spec: ModelSpec
    settings: Settings
    options: dict[str, Any]
    folder: str  # for files that later processes of the case read
    caches: str  # the folder of compile caches
    scratch: str  # an empty folder, removed when the process has ended
    log: str
    device: str  # the case's, or one of several, such as cuda:1
    cores: tuple[int, ...] = ()  # to which the process is pinned; empty: all cores


class Fresh(msgspec.Struct, kw_only=True):
    """The argument of the function of a fresh process."""

    ask: Ask
    began_ns: int  # of `time.monotonic_ns`, before Python itself started
    tell: Callable[[Stage], None]  # call it when a stage begins: a failure names the last one


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """A process that a userbenchmark asks for. The processes of a case run one after the other, in their order."""

    role: str  # the name of the process's work, as the report shows it
    number: Count = 0  # counts the processes of a role
    function: str  # `module:function` of torchzoo; it is called with a `torchzoo.measure.fresh_turns.Fresh`
    options: dict[str, Any] = {}
    cache: str = ""  # turns of a case with the same name here share a folder of compile caches; empty: a new folder
    needs: str = ""  # a role that must have succeeded before; --resume runs it again, for the files that it leaves
    skip: str = ""  # the reason why it can't run; then nothing is started


#: The turns of a case, given the number of its repeats.
TurnsOf = Callable[[Case, ModelSpec, int], list[Turn]]


class CacheCounts(msgspec.Struct, frozen=True, kw_only=True):
    """PyTorch's counts for one cache. A graph that bypasses the cache can't be kept in it."""

    hits: Count = 0
    misses: Count = 0
    bypasses: Count = 0


class FirstResult(msgspec.Struct, frozen=True, kw_only=True):
    """The time of a fresh process until the result of its first step. The four parts add up to the whole."""

    import_s: Seconds  # the start of Python, torch, the model's library
    build_s: Seconds  # the model and its batch, on the device
    load_s: Seconds = 0.0  # loading what an earlier process has compiled
    step_s: Seconds  # the first step, which compiles what was not found
    later_step_s: Seconds  # a later step, which no sum includes
    graphs: Count = 0  # that Dynamo captured
    autograd_cache: CacheCounts = CacheCounts()  # AOTAutograd's
    inductor_cache: CacheCounts = CacheCounts()  # FxGraphCache
    libraries_built: Count = 0  # shared libraries that loading and the first step compiled from C++
    artifact_bytes: Count | None = None  # of the file or the packages that were loaded, or written
    cache_bytes: Count | None = None  # of the folder of caches, after the first step

    @property
    def total_s(self) -> float:
        """The time from the start of the process to the end of its first step."""
        return self.import_s + self.build_s + self.load_s + self.step_s


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """AOTInductor's packages of the networks of a model."""

    compile_s: Seconds  # wall time, from torch.export on
    package_bytes: Count


class SizeResult(msgspec.Struct, frozen=True, kw_only=True):
    """A size of a sweep: what its first steps compiled, and blocks in turns with code for this size alone."""

    size: PositiveCount
    problem: str = ""  # why there is no time, in a line
    graphs: Count = 0  # compiled at this size, also if it is the first size
    recompilations: tuple[Recompilation, ...] = ()
    compile_s: Seconds = 0.0  # wall time inside Dynamo and its backend
    blocks: tuple[Block, ...] = ()  # in turns: A is compiled for this size alone, B as the variant says
    breakdowns: dict[str, Breakdown] = {}  # of both, by the names of their blocks; profiled after all timing


class SizeSweep(msgspec.Struct, frozen=True, kw_only=True):
    """All sizes, in the order in which one compiled network met them."""

    sizes: tuple[SizeResult, ...]
    marked_dims: Count = 0  # dimensions of the networks' inputs that were marked
