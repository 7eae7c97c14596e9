"""Specs, cases and records that tests start from."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.case import Backend, Case, Domain, Mode
from torchzoo.machine.facts import MachineInfo
from torchzoo.record import (
    Alone,
    BackToBack,
    Block,
    Compilation,
    Environment,
    GraphBreak,
    Manifest,
    Measured,
    Memory,
    Record,
    StopReason,
    VariantResult,
)
from torchzoo.report import terminal
from torchzoo.settings import Settings
from torchzoo.store import Run
from torchzoo.zoo.spec import ModelSpec

GB = 10**9

#: The checkout.
ROOT = Path(__file__).resolve().parent.parent

SPEC = ModelSpec(
    name="tiny",
    folder="/nowhere/tiny",
    domain=Domain.OTHER,
    task="testing",
    paper="https://example.org",
    source="torchzoo's tests",
    requirements=(),
    parameters=6,
    batch_size={Mode.TRAIN: 8, Mode.EVAL: 4},
    smoke_batch_size=2,
)
CASE = Case(model="tiny", mode=Mode.EVAL, device="cpu", batch_size=4)
ENVIRONMENT = Environment(
    torchzoo="0.1.0",
    python="3.11.7",
    platform="Linux",
    cpu="a CPU",
    cpu_usable=2,
    host_memory_bytes=2**35,
    torch="2.15.0",
    packages={},
    gpus=(),
    variables={},
)
BREAK = GraphBreak(reason="print", place="a.py:1 in f")
FACTS = MachineInfo(devices={"cpu": 1, "cuda": 2}, dynamo_backends=("inductor", "tvm"), environment=ENVIRONMENT)


def variant_result(**changes: Any) -> VariantResult:
    result = VariantResult(
        first_step_s=0.5,
        first_step_cpu_s=0.4,
        warmup_s=(0.1, 0.1, 0.1),
        memory=Memory(host_peak_rss_bytes=300 * 2**20, host_uss_bytes=200 * 2**20),
        back_to_back=(BackToBack(3, 0.3),) * 6,
        result_is_finite=True,
    )
    return msgspec.structs.replace(result, **changes)


def by_itself(**changes: Any) -> Alone:
    """A candidate in a process without eager."""
    return msgspec.structs.replace(Alone(first_step_s=20.5, first_step_cpu_s=40.0, memory=Memory()), **changes)


def measured(**changes: Any) -> Measured:
    result = Measured(
        blocks=tuple(Block("eager", (0.1, 0.101)) for _ in range(10)),
        stop_reason=StopReason.CONVERGED,
        variants={"eager": variant_result()},
        samples_per_step=4,
        sample_unit="samples",
        parameters=6,
        operator_dtypes={"float32": 3},
        precision_flags={},
        threads=2,
        device_name="a CPU",
    )
    return msgspec.structs.replace(result, **changes)


def in_turns(eager_s: float, candidate_s: float, **changes: Any) -> Measured:
    """Eager and a candidate that always take the same times."""
    quad = [Block("eager", (eager_s,)), *[Block("candidate", (candidate_s,))] * 2, Block("eager", (eager_s,))]
    variants = {"eager": variant_result(), "candidate": variant_result()}
    return measured(**({"blocks": tuple(quad * 8), "variants": variants} | changes))


def compared() -> Measured:
    return in_turns(0.2, 0.1)


def compiled(**changes: Any) -> Measured:
    """Inductor beside eager on a GPU, with counts of what was compiled."""
    compilation = Compilation(graphs=2, graph_breaks={"print": 3, "item": 1}, breaks=(BREAK,) * 4, cudagraph_skips=1)
    eager = variant_result(memory=Memory(device_peak_allocated_bytes=2 * GB, host_peak_rss_bytes=5 * GB))
    candidate = variant_result(
        first_step_s=12.1,
        memory=Memory(device_peak_allocated_bytes=1 * GB, host_peak_rss_bytes=6 * GB),
        compilation=compilation,
    )
    made: dict[str, Any] = {"variants": {"eager": eager, "candidate": candidate}, **changes}
    return msgspec.structs.replace(compared(), **made)


def record(outcome: Any = None, **changes: Any) -> Record:
    return Record(
        case=msgspec.structs.replace(CASE, **changes),
        outcome=outcome or measured(),
        started_at="2026-11-20T10:00:00.000+00:00",
        finished_at="2026-11-20T10:00:09.000+00:00",
    )


def environment(**changes: Any) -> Environment:
    return msgspec.structs.replace(ENVIRONMENT, **changes)


def manifest(**changes: Any) -> Manifest:
    made = Manifest(
        torchzoo_version="0.1.0",
        command=("torchzoo", "run", "tiny"),
        created_at="2026-11-20T10:00:00+00:00",
        environment=ENVIRONMENT,
        settings=Settings(),
        cases=(CASE,),
    )
    return msgspec.structs.replace(made, **changes)


INDUCTOR = Backend("inductor")


def run_of(records: Iterable[Record], *, path: str = "run", **changes: Any) -> Run:
    """A run as read back. Its plan is the records' cases unless `changes` (of the manifest) says otherwise."""
    kept = tuple(records)
    return Run(
        path=Path(path), manifest=manifest(**{"cases": tuple(one.case for one in kept), **changes}), records=kept
    )


def results_of(records: Iterable[Record]) -> list[CaseResult]:
    """What became of the cases of these records."""
    return case_results(run_of(records))


def rendered(renderable: object, width: int = 200) -> str:
    """Return the text that the terminal shows of a document or of a rich renderable."""
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(terminal.render(renderable) if isinstance(renderable, list) else renderable)
    return console.file.getvalue()  # type: ignore[attr-defined]
