"""Nights of runs in folders, for tests of the history."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from examples import INDUCTOR, environment, measured, record, variant_result
from kept_runs import against_eager, keep
from torchzoo.case import Mode
from torchzoo.record import Block, Memory
from torchzoo.settings import CacheMode, Settings

MIB = 2**20
#: Noise between nights, the same in each test.
NOISE = (0.0, 0.004, -0.003, 0.001, -0.005, 0.002, 0.003, -0.001, -0.004, 0.005)


def eager_s(latency_s: float, *, memory: int = 300 * MIB, **changes: Any) -> Any:
    """A case on the CPU, measured in eager, with a latency and a peak of the host's memory."""
    blocks = tuple(Block("eager", (latency_s * (1 + 0.0005 * (n % 3 - 1)),)) for n in range(12))
    variants = {"eager": variant_result(memory=Memory(host_peak_rss_bytes=memory, host_peak_is_of_pass=True))}
    return measured(blocks=blocks, variants=variants, host_loop_s=(0.001, 0.001), **changes)


def _compiled(latency_s: float) -> Any:
    made = against_eager(2.0, eager_s=latency_s)
    candidate = made.variants["candidate"]
    compilation = msgspec.structs.replace(candidate.compilation, cache=CacheMode.COLD)
    variants = {**made.variants, "candidate": msgspec.structs.replace(candidate, compilation=compilation)}
    return msgspec.structs.replace(made, variants=variants)


def night(
    root: Path,
    number: int,
    records: Any,
    *,
    torch: str = "2.14.0",
    settings: Settings | None = None,
    **changes: Any,
) -> Path:
    """A run of one night, in its folder."""
    facts = environment(**{"torch": torch, "packages": {"timm": "1.0.19"}, **changes})
    created_at = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}T02:00:00+00:00"
    settings = settings or Settings()
    return keep(root / f"night_{number:02d}", records, environment=facts, created_at=created_at, settings=settings)


def timed_night(root: Path, number: int, *, wall_s: float, cpu_s: float = 3.0, **changes: Any) -> Path:
    """A run of two cases on one lane, with a measuring window of 2 s each, that took `wall_s` in all."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    times = {"started_at": began.isoformat(), "finished_at": (began + timedelta(seconds=wall_s)).isoformat()}
    stages = {"stage_seconds": {"compile": 9.0, "measure": 2.0}, "stage_cpu_seconds": {"compile": cpu_s}}
    records = [
        msgspec.structs.replace(record(eager_s(0.01, **stages), model=model), lane="cpu", **times)
        for model in ("one", "other")
    ]
    return night(root, number, records, **changes)


def nights(root: Path, count: int = 20, step_at: int = 14) -> Path:
    """Nights of two models. Torch changes at `step_at`: `slower` becomes 10% slower and larger, `same` stays.

    `same` is also measured with inductor.
    """
    for number in range(count):
        is_new, noise = number >= step_at, 1 + NOISE[number % len(NOISE)]
        factor = 1.1 if is_new else 1.0
        records = [
            record(eager_s(0.02 * noise * factor, memory=int(300 * MIB * factor)), model="slower", mode=Mode.TRAIN),
            record(eager_s(0.01 * noise), model="same"),
            record(_compiled(0.01 * noise), model="same", backend=INDUCTOR),
        ]
        night(root, number, records, torch="2.15.0" if is_new else "2.14.0")
    return root
