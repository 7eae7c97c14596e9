"""What fresh processes found, and the folder that keeps it: for questions that one process can't answer.

- `trials.json`: the manifest. (It is not called `run.json`: `torchzoo run --resume` must not take it for a run.)
- `trials.jsonl`: a line for each process.
- `logs/`: what the processes printed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.bounds import Count, PositiveCount, Seconds
from torchzoo.case import Case, Domain
from torchzoo.decoding import DecodeError, decode_manifest
from torchzoo.errors import one_line
from torchzoo.files import FileError, read_file, safe_name, to_json
from torchzoo.provenance import why_not_together
from torchzoo.record import Block, Breakdown, Failed, Manifest, Recompilation, Skipped
from torchzoo.store import MANIFEST_BYTES, StoreError, append_line, lock_folder, write_whole

if TYPE_CHECKING:
    from filelock import FileLock

MANIFEST, RECORDS = "trials.json", "trials.jsonl"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One process that a userbenchmark asks for. The processes of a case run one after the other, in their order."""

    variant: str  # what it does, in the words of the report
    number: Count = 0  # the how many-th of its variant
    function: str  # `module:function` of torchzoo; it is called with a `torchzoo.measure.fresh.Fresh`
    options: dict[str, Any] = {}
    cache: str = ""  # turns of a case that name the same one share a folder of compile caches; empty: a new one
    needs: str = ""  # a variant that must have worked before; --resume runs it again, for the files that it leaves
    skip: str = ""  # why it can't run; then nothing is started


class Took(msgspec.Struct, frozen=True, kw_only=True, tag="took"):
    """A process that did what it was asked to. The userbenchmark knows what the result is."""

    result: dict[str, Any]


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one turn. A case that can't run has one record, without a variant."""

    case: Case
    variant: str = ""
    number: Count = 0
    outcome: Took | Skipped | Failed
    finished_at: str


class Trials(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a userbenchmark with fresh processes, as it was read."""

    path: Path
    manifest: Manifest
    records: tuple[TrialRecord, ...]  # the latest of each turn
    damaged_lines: int = 0
    joined: tuple[Trials, ...] = ()  # the folders that this was put together from

    @property
    def parts(self) -> tuple[Trials, ...]:
        """The folders as they were read: those that were joined, or this one."""
        return self.joined or (self,)

    def by_case(self) -> dict[Case, list[TrialRecord]]:
        """The records of each case, in the order of the plan."""
        found: dict[Case, list[TrialRecord]] = {case: [] for case in self.manifest.cases}
        for record in self.records:
            found.setdefault(record.case, []).append(record)
        return {case: records for case, records in found.items() if records}


# --- results of the functions that torchzoo has for fresh processes ---


class CacheCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What PyTorch's counters say of one cache. A graph that bypasses it can't be kept there."""

    hits: Count = 0
    misses: Count = 0
    bypasses: Count = 0


class FirstResult(msgspec.Struct, frozen=True, kw_only=True):
    """How long a fresh process took to the result of its first step. The four parts are the whole."""

    import_s: Seconds  # Python's own start, torch, the model's library
    build_s: Seconds  # the model and its batch, on the device
    load_s: Seconds = 0.0  # of what an earlier process has compiled
    step_s: Seconds  # the first step; it compiles what was not found
    later_step_s: Seconds  # a step after it, which is in no sum
    graphs: Count = 0  # that Dynamo captured
    autograd_cache: CacheCounts = CacheCounts()  # AOTAutograd's
    inductor_cache: CacheCounts = CacheCounts()  # FxGraphCache
    libraries_built: Count = 0  # shared libraries that loading and the first step compiled from C++
    artifact_bytes: Count | None = None  # of the file or the packages that were loaded, or written
    cache_bytes: Count | None = None  # of the folder of caches, after the first step

    @property
    def total_s(self) -> float:
        """From the start of the process to the end of its first step."""
        return self.import_s + self.build_s + self.load_s + self.step_s


class Packages(msgspec.Struct, frozen=True, kw_only=True):
    """What AOTInductor made of the networks of a model."""

    compile_s: Seconds  # wall time, from torch.export on
    package_bytes: Count


class SizeResult(msgspec.Struct, frozen=True, kw_only=True):
    """One size of a sweep: what its first steps compiled, and its steps beside those compiled for this size alone."""

    size: PositiveCount
    problem: str = ""  # why there is no time, in a line
    graphs: Count = 0  # that were compiled at this size, the first size's included
    recompilations: tuple[Recompilation, ...] = ()
    compile_s: Seconds = 0.0  # wall time inside Dynamo and its backend
    blocks: tuple[Block, ...] = ()  # in turns: A is compiled for this size alone, B as the variant says
    breakdowns: dict[str, Breakdown] = {}  # of both, by the names that their blocks have; profiled after all timing


class SizeSweep(msgspec.Struct, frozen=True, kw_only=True):
    """All sizes, in the order in which one compiled network met them."""

    sizes: tuple[SizeResult, ...]
    marked_dims: Count = 0  # dimensions of the networks' inputs that were marked


class TrialStore:
    """Writes one such folder. Use it as a context manager: inside, a lock keeps other runners out.

    Raises:
        StoreError: on entering. The folder can't be written, another runner works on it, it holds trials where it
            should not, or none where it should.
    """

    def __init__(self, path: Path, *, resume: bool = False) -> None:
        self.path = path
        self.resume = resume
        self._lock: FileLock | None = None

    def __enter__(self) -> TrialStore:
        if self.resume and not (self.path / MANIFEST).is_file():
            raise _no_trials(self.path)
        lock = lock_folder(self.path, subfolder="logs")
        taken = [name for name in (MANIFEST, "run.json") if (self.path / name).exists()]
        if not self.resume and taken:
            lock.release()
            raise StoreError(f"{self.path} holds a {taken[0]} already: name another folder with -o, or use --resume")
        self._lock = lock
        return self

    def __exit__(self, *_: object) -> None:
        assert self._lock is not None
        self._lock.release()

    def begin(self, manifest: Manifest) -> None:
        """Write the manifest."""
        write_whole(self.path / MANIFEST, msgspec.json.format(to_json(manifest), indent=1) + b"\n")

    def append(self, record: TrialRecord) -> None:
        """Add a record; it is on disk when this returns."""
        append_line(self.path / RECORDS, to_json(record))

    def log_path(self, case: Case, turn: Turn) -> Path:
        """The file for what the process of a turn prints."""
        return self.path / "logs" / f"{safe_name(f'{case.label()} {turn.variant} {turn.number}')}.log"


def _no_trials(path: Path) -> StoreError:
    return StoreError(f"{path} holds no {MANIFEST}: it was not made by a userbenchmark that starts fresh processes")


def read_trials(path: Path) -> Trials:
    """Read such a folder. Lines that can't be read are counted.

    Raises:
        StoreError: there is none, or it was written by a newer torchzoo.
    """
    if not (path / MANIFEST).is_file():
        raise _no_trials(path)
    try:
        manifest = decode_manifest(read_file(path / MANIFEST, MANIFEST_BYTES))
        lines = read_file(path / RECORDS).splitlines() if (path / RECORDS).exists() else []
    except (FileError, DecodeError) as error:
        raise StoreError(f"can't read {path}: {one_line(error)}") from error
    latest: dict[tuple[Case, str, int], TrialRecord] = {}
    damaged = 0
    for line in filter(None, lines):
        try:
            record = msgspec.json.decode(line, type=TrialRecord)
        except msgspec.MsgspecError:
            damaged += 1
        else:
            latest[record.case, record.variant, record.number] = record
    return Trials(path=path, manifest=manifest, records=tuple(latest.values()), damaged_lines=damaged)


def read_joined_trials(paths: Sequence[Path]) -> Trials:
    """Read folders that were measured on like machines as one. Where several have a case, the one named last counts.

    Raises:
        StoreError: one of them can't be read, or the machines or their software are not alike.
    """
    parts = tuple(read_trials(path) for path in dict.fromkeys(paths))
    first = parts[0]
    for part in parts[1:]:
        if why := why_not_together(first.manifest, part.manifest):
            raise StoreError(f"{first.path} and {part.path} can't stand in one report: {why}. Report each alone")
    found = {case: records for part in parts for case, records in part.by_case().items()}
    cases: dict[Case, None] = {}
    domains: dict[str, Domain] = {}
    for part in parts:
        cases |= dict.fromkeys(part.manifest.cases)
        domains |= part.manifest.domains
    return Trials(
        path=first.path,
        manifest=msgspec.structs.replace(first.manifest, cases=tuple(cases), domains=domains),
        records=tuple(record for records in found.values() for record in records),
        damaged_lines=sum(part.damaged_lines for part in parts),
        joined=parts if len(parts) > 1 else (),
    )
