"""What it costs to spread a suite over many GPUs, and whether a row is ever lost or doubled. No GPU is needed.

    PYTHONPATH=.:tests/run/spread:tests python benchmarks/spread.py [--gpus 1000] [--cases 10000] [--deaths 0.01]

The nodes and the clock are fake; the controller, the crew and the leases are the real ones, and every message goes
through its JSON form. Of the lanes, a share dies in each hour, at random times: a lane's death takes its node with it,
and half of the nodes come back ten minutes later. Each run is checked: every case has exactly one row.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter

import msgspec
from fake_nodes import FakeNode, FakeNodes, cases, controller

from examples import measured
from torchzoo.case import Case
from torchzoo.record import Block, Failed
from torchzoo.run.spread import protocol
from torchzoo.run.spread.nodes import Event, Said

GPUS_PER_NODE = 8
CASE_S = 45.0  # the mean time of a case on its lane; a suite on an H200 takes 20 to 60 s for one


class Wired(FakeNodes):  # type: ignore[misc]  # mypy does not read tests
    """Fake nodes whose messages take the way of real ones, through JSON. Counts the controller's CPU time alone."""

    messages = 0
    nodes_cpu_s = 0.0
    measured = measured(blocks=tuple(Block("eager", tuple(0.02 + n * 1e-6 for n in range(20))) for _ in range(50)))

    def say(self, name: str, answer: protocol.Answer) -> None:
        if isinstance(answer, protocol.Finished):  # as large as a real one
            record = msgspec.structs.replace(answer.record, outcome=self.measured)
            answer = protocol.Finished(record=record, log="")
        super().say(name, answer)

    def tell(self, name: str, request: protocol.Request) -> None:
        line = protocol.line_of(request)
        began_s = time.process_time()
        super().tell(name, protocol.request_decoder().decode(line))
        self.nodes_cpu_s += time.process_time() - began_s

    def wait(self, timeout_s: float) -> list[tuple[str, Event]]:
        began_s = time.process_time()
        events = super().wait(timeout_s)
        lines = [protocol.line_of(event.answer) if isinstance(event, Said) else b"" for _, event in events]
        self.nodes_cpu_s += time.process_time() - began_s
        self.messages += len(events)
        return [
            (name, Said(answer=protocol.answer_of(line)) if line else event)
            for (name, event), line in zip(events, lines, strict=True)
        ]


def simulate(gpus: int, count: int, deaths_an_hour: float, seed: int) -> dict[str, float]:
    chance = random.Random(seed)
    spent_s: dict[Case, float] = {}

    def case_s(case: Case) -> float:
        return spent_s.setdefault(case, chance.lognormvariate(0, 0.8) * CASE_S / 1.377)  # a long tail; its mean is 1

    nodes = Wired(
        {f"n{n}": FakeNode(f"host{n}", lanes=GPUS_PER_NODE) for n in range(gpus // GPUS_PER_NODE)}, case_s=case_s
    )

    def fail(name: str) -> None:
        """Let a node die, and come back, or not, and die again: a Poisson process of its lanes."""

        def end() -> None:
            nodes.die(name)
            if chance.random() < 0.5:
                again = f"{name}'"
                nodes.nodes[again] = FakeNode(nodes.nodes[name].host, lanes=GPUS_PER_NODE)
                nodes.at(600, lambda: nodes.join(again))
                nodes.at(600, lambda: fail(again))

        nodes.at(chance.expovariate(deaths_an_hour * GPUS_PER_NODE / 3600), end)

    for name in list(nodes.nodes):
        fail(name)
    plan = cases(count)
    began_s = time.process_time()
    made = controller(nodes, plan, [])
    records = list(made.run())
    cpu_s = time.process_time() - began_s - nodes.nodes_cpu_s
    rows = Counter(record.case for record in records)
    alone_s = sum(spent_s.values()) / gpus
    return {
        "hours": nodes.now_s / 3600,
        "efficiency": alone_s / nodes.now_s,
        "nodes_died": sum(node.is_dead for node in nodes.nodes.values()),
        "lost": sum(one.case not in rows for one in plan),
        "doubled": sum(number - 1 for number in rows.values()),
        "failed": sum(isinstance(record.outcome, Failed) for record in records),
        "cpu_ms_per_case": 1000 * cpu_s / count,
        "messages_per_case": nodes.messages / count,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--deaths", type=float, default=0.01, help="share of the lanes that die in an hour")
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    found = [simulate(arguments.gpus, arguments.cases, arguments.deaths, seed) for seed in range(arguments.seeds)]
    print(f"{arguments.gpus} GPUs, {arguments.cases} cases, {arguments.deaths:.0%} of lanes die an hour")
    for name in found[0]:
        values = [one[name] for one in found]
        print(f"  {name:18} {statistics.mean(values):10.4g}   ({', '.join(f'{value:.4g}' for value in values)})")
    return int(any(one["lost"] or one["doubled"] for one in found))


if __name__ == "__main__":
    sys.exit(main())
