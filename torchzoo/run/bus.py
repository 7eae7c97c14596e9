"""The processes that measure the bus bandwidth between devices: one for each, like the ranks of a case."""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection

import msgspec

from torchzoo.errors import attempt, one_line
from torchzoo.files import to_json
from torchzoo.record import Failed, FailureKind, Outcome
from torchzoo.run.lines import write_line
from torchzoo.run.protocol import CanNotTell, Told
from torchzoo.run.ranks import Watch, fork_ranks
from torchzoo.settings import Stage


def tell_bus_peaks(argument: bytes, connection: Connection) -> None:
    """Send the bus bandwidth between devices in GB/s, by collective; or one line that says why not."""
    devices = msgspec.json.decode(argument, type=tuple[str, ...])

    def tell(told: Told | CanNotTell) -> None:
        write_line(connection.fileno(), to_json(told) + b"\n")

    def send(why: Outcome) -> None:
        tell(_why_not(devices, why.message if isinstance(why, Failed) else str(why)))

    ranks = fork_ranks(devices, [None] * len(devices), partial(_follow, devices), _failure, close=[connection])
    watch = Watch(ranks, died=lambda rank, code: _failure(RuntimeError(f"rank {rank} ended with {code}")), send=send)
    found = attempt(lambda: _lead(devices, [rank.line for rank in ranks]))
    if isinstance(found, Exception):
        traceback.print_exception(found)
    watch.end(lambda: tell(_why_not(devices, str(found)) if isinstance(found, Exception) else Told(result=found)))


def _lead(devices: Sequence[str], lines: Sequence[Connection]) -> dict[str, float]:
    from torchzoo.measure.case_ranks import Line, Ranks
    from torchzoo.measure.passes.measured_peaks import bus_rates_gb_per_s
    from torchzoo.measure.process_group import Participant, use_device

    own = Participant(use_device(devices[0], _threads(devices)), 0, len(devices))
    ranks = Ranks(own, [Line(line) for line in lines])
    ranks.meet()
    found = ranks.everywhere(bus_rates_gb_per_s)
    return {name: min(rates[name] for rates in found) for name in found[0]}


def _follow(devices: Sequence[str], number: int, device: str, line: Connection) -> None:
    from torchzoo.measure.case_ranks import Line, follow
    from torchzoo.measure.process_group import Participant, use_device

    follow(Participant(use_device(device, _threads(devices)), number, len(devices)), Line(line))


def _threads(devices: Sequence[str]) -> int | None:
    return max(1, (os.cpu_count() or 1) // len(devices)) if devices[0] == "cpu" else None


def _failure(error: BaseException) -> Failed:
    return Failed(kind=FailureKind.ERROR, stage=Stage.MEASURE, message=str(error))


def _why_not(devices: Sequence[str], why: str) -> CanNotTell:
    return CanNotTell(message=f"can't measure collectives between {', '.join(devices)}: {one_line(why)}")
