"""Records of a case that was measured in several processes, with planted shifts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from examples import measured, record
from torchzoo.record import Block, Failed, FailureKind, Measured, Record
from torchzoo.settings import Stage

FAILED = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message="no")
LOOP_S = (0.001, 0.001)


def process(step_s: float, *, within: float = 0.005, loop_s: tuple[float, ...] = LOOP_S, **changes: Any) -> Measured:
    shares = (1 - within, 1.0, 1 + within)
    blocks = tuple(Block("eager", (step_s * share,)) for share in shares * 4)
    return measured(blocks=blocks, host_loop_s=loop_s, **changes)


def records(steps_s: Iterable[float], **changes: Any) -> list[Record]:
    return [record(process(step_s), repeat=repeat, **changes) for repeat, step_s in enumerate(steps_s)]


STEADY = (0.1000, 0.1005, 0.0995, 0.1002, 0.0998)


def times(factor: float) -> list[float]:
    return [step_s * factor for step_s in STEADY]


def on_host(speed: float, work: float = 1.0, **changes: Any) -> list[Record]:
    """Steps of which the host issues all, on a host so many times as slow: five processes."""
    found = []
    for number in range(5):
        of_process = speed * (1 + number / 50)  # the host's speed differs between processes
        blocks = tuple(
            Block(
                variant="eager",
                samples_s=(0.010 * work * of_process,),
                issued_s=0.0098 * work * of_process,
                cpu_s=0.0098 * work * of_process * (1 + turn / 1000),
                reference_s=0.001 * of_process,
            )
            for turn in range(12)
        )
        outcome = msgspec.structs.replace(process(0.01, loop_s=(0.001 * speed, 0.001 * speed)), blocks=blocks)
        found.append(record(outcome, repeat=number, **changes))
    return found
