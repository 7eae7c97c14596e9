"""Runs in folders with all that a report can show: several axes, failures, checks, breakdowns, names with markup."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from examples import BREAK, INDUCTOR, manifest, measured, record, variant_result
from torchzoo.case import Domain, Mode
from torchzoo.record import (
    Block,
    Breakdown,
    Check,
    Checked,
    CheckStatus,
    Compilation,
    Energy,
    EnergyWindow,
    Failed,
    FailureKind,
    Flops,
    Growth,
    Measured,
    Memory,
    Record,
    Skipped,
    StepTime,
)
from torchzoo.settings import Stage
from torchzoo.store import RunStore

SCRIPT = "<script>alert(1)</script>"
MESSAGE = '</script><img src="http://127.0.0.1:9/x" onerror="window.harmed = true"> | `x` [a](javascript:alert(3))'
GIB = 2**30


def against_eager(speedup: float, *, eager_s: float = 0.2, quads: int = 8, **changes: Any) -> Measured:
    """A measured candidate that many times as fast as eager, with everything that passes can find."""
    blocks = []
    for quad in range(quads):
        drift = 1 + 0.001 * (quad % 4)
        eager, candidate = eager_s * drift, eager_s / speedup
        blocks += [Block(name, (eager if name == "eager" else candidate,)) for name in ("eager", "candidate") * 2]
        blocks[-2:] = blocks[-2:][::-1]  # A B B A
    steps = tuple(StepTime(0.01, 0.006 + 0.0001 * n, 0.001) for n in range(3))
    common: dict[str, Any] = {
        "breakdown": Breakdown(steps=steps, kernels=()),
        "energy": Energy(windows=(EnergyWindow(10, 1.0, 30.0),) * 3),
        "growth": Growth(device_bytes=(100,) * 20, host_bytes=(1000,) * 20),
    }

    def memory(factor: float) -> Memory:
        return Memory(
            device_peak_allocated_bytes=int(4 * GIB * factor),
            host_peak_rss_bytes=int(GIB / factor),
            host_uss_bytes=GIB // 2,
        )

    compilation = Compilation(graphs=2, graph_breaks={"print": 1}, breaks=(BREAK,), compile_s=9.0)
    variants = {
        "eager": variant_result(memory=memory(1.0), **common),
        "candidate": variant_result(memory=memory(0.5), compilation=compilation, first_step_s=12.0, **common),
    }
    made = measured(
        blocks=tuple(blocks),
        variants=variants,
        device_name="a GPU",
        flops=Flops(total=10**9, by_operator={"aten::mm": {"float32": 10**9}}),
        check=Check(status=CheckStatus.CORRECT),
    )
    return msgspec.structs.replace(made, **changes)


def incorrect(speedup: float) -> Measured:
    return against_eager(speedup, check=Check(status=CheckStatus.INCORRECT, reason="loss is off by 40%"))


def checked(status: CheckStatus, reason: str = "") -> Checked:
    """What `--check-only` leaves of a case."""
    return Checked(
        check=Check(status=status, reason=reason),
        graphs=3,
        parameters=74,
        operator_dtypes={"float32": 9},
        precision_flags={},
        threads=2,
        device_name="a GPU",
        stage_seconds={"check": 4.0},
        stage_cpu_seconds={"check": 3.0},
    )


def failed(message: str = "out") -> Failed:
    return Failed(kind=FailureKind.OOM_DEVICE, stage=Stage.COMPILE, message=message)


def keep(path: Path, records: Sequence[Record], **changes: Any) -> Path:
    """Write a run; its plan is the records' cases unless `changes` says otherwise."""
    with RunStore(path) as run_store:
        run_store.begin(manifest(**({"cases": tuple(each.case for each in records)} | changes)))
        for each in records:
            run_store.append(each)
    return path


def everything(path: Path) -> Path:
    """Fourteen models in both modes, one a clear outlier, eager and inductor, on two devices, with every outcome.

    One case of the plan was not run.
    """
    records = []
    for number in range(14):
        model = SCRIPT if number == 3 else f"model_{number:02d}"
        for mode in Mode:
            speedup = 9.0 if number == 5 else 1.1 + 0.02 * number
            for device, eager_s in (("cpu", 0.4), ("cuda", 0.1 + 0.01 * number)):
                axes: dict[str, Any] = {"model": model, "mode": mode, "device": device}
                records.append(record(measured(device_name="a GPU"), **axes))
                records.append(record(against_eager(speedup, eager_s=eager_s), backend=INDUCTOR, **axes))
    cuda: dict[str, Any] = {"device": "cuda", "backend": INDUCTOR}
    records += [
        record(failed(MESSAGE), model="fails", **cuda),
        record(incorrect(3.0), model="wrong", **cuda),
        record(Skipped(reason=f"no {SCRIPT} way"), model="skips", **cuda),
    ]
    domains = {f"model_{n:02d}": Domain.NLP if n % 2 else Domain.COMPUTER_VISION for n in range(14)}
    planned = (*(each.case for each in records), record(model="not_run").case)
    return keep(path, records, domains=domains, cases=planned)
