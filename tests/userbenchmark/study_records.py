"""Records of studies, for tests of their documents."""

from __future__ import annotations

from typing import Any

import msgspec

from examples import measured, variant_result
from examples import record as example
from torchzoo.case import EAGER, Backend, Domain, Mode
from torchzoo.record import (
    Block,
    Compilation,
    Failed,
    FailureKind,
    Measured,
    Record,
)
from torchzoo.settings import Stage
from torchzoo.store import Run
from torchzoo.studies import study

CRASHED = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no such lowering")


def alone(*steps_s: float, **changes: Any) -> Measured:
    return measured(**({"blocks": tuple(Block("eager", (one,)) for one in steps_s)} | changes))


def trained(model: str, outcome: Any, backend: Backend = EAGER, **axes: Any) -> Record:
    return example(outcome, **({"model": model, "mode": Mode.TRAIN, "backend": backend, "device": "cuda"} | axes))


def with_domains(run: Run, **domains: Domain) -> Run:
    return msgspec.structs.replace(run, manifest=msgspec.structs.replace(run.manifest, domains=domains))


def late() -> dict[str, Any]:
    """The variants of a case whose candidate was compiled again while it was measured."""
    return {"eager": variant_result(), "candidate": variant_result(compilation=Compilation(graphs=2, late_graphs=1))}


def study_table() -> str:
    """The name of the first table that paper_devices publishes."""
    return next(iter(study.load("paper_devices").published.tables))


def of_plan(name: str, outcome: Any = None, **axes: Any) -> Record:
    """A record of the first case of a study's plan that has these axes, on a CPU."""
    cases = study.own_cases(study.load(name))
    case = next(case for case in cases if all(getattr(case, axis) == value for axis, value in axes.items()))
    return msgspec.structs.replace(example(outcome), case=msgspec.structs.replace(case, device="cpu"))
