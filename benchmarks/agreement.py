"""The same steps under several clocks: a bare loop, this harness alone and in a suite, TorchBench and dynamobench.

    python benchmarks/agreement.py -d cuda -o /tmp/agreement --torchbench ~/benchmark
    python benchmarks/agreement.py resnet50 -d cuda -t eval --precision amp -o /tmp/amp --torchbench ~/benchmark

Models, batch sizes, precision and seeds are the same for all clocks; the weights are random in all. Each clock times
eager, and inductor where it can:

- `bare`: a fresh process that steps, synchronises, and reads the clock; the median of its steps.
- `alone`: `run.py MODEL -t MODE --exclusive`, one command for each case.
- `suite`: one `run.py` of all cases; or, with `--suite-run`, a run that is there already.
- `torchbench`: `run.py` of a checkout of github.com/pytorch/benchmark, its "CPU Wall Time per batch" (eager only).
- `dynamobench`: `userbenchmark/dynamo/dynamobench/torchbench.py` of that checkout, without CUDA graphs; and
  `dynamobench graphs`, as it is by default: with CUDA graphs. It is set beside `alone` with `inductor:reduce-overhead`.
- `dynamobench graphs, fp32 weights`: evaluation under `amp` only. TorchBench builds most models for evaluation on a
  GPU in fp16, and dynamobench's `--amp` leaves them so. This clock builds them in fp32, so that autocast has the casts
  of the weights to do, as in ours.

Printed are milliseconds, and each clock's ratio to the bare loop. What is in the folder already is not run again.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from torchzoo import stats
from torchzoo.case import Case, Mode, Precision
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT, Measured, Record
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("resnet50", "vgg16", "densenet121", "timm_vision_transformer")
WARMUP_STEPS, STEPS = 20, 100
GRAPHS = "inductor:reduce-overhead"

#: By our precision, that of TorchBench's run.py and the option of dynamobench, which allows TF32 on GPUs in fp32 too.
PEER_PRECISIONS = {
    "tf32": ("tf32", "--float32"),
    "fp32": ("fp32", "--float32"),
    "amp": ("amp", "--amp"),
    "fp16": ("fp16", "--float16"),
}

#: Seconds of a step by what ran it: eager, inductor, or inductor with CUDA graphs.
Times = dict[str, float]


@dataclass(frozen=True, kw_only=True)
class Step:
    model: str
    mode: Mode
    batch_size: int
    device: str
    precision: str

    def __str__(self) -> str:
        return f"{self.model} {self.mode} bs{self.batch_size}"


# --- clocks ---


def bare(step: Step, folder: Path) -> Times:
    """The bare loop, in a process of its own."""
    told = json.dumps([step.model, step.mode, step.batch_size, step.device, step.precision])
    printed = _output([sys.executable, __file__, "bare", told], folder / "bare.log")
    times: Times = json.loads(printed.splitlines()[-1]) if printed else {}
    return times


def bare_loop(model_name: str, mode: str, batch_size: int, device: str, precision: str) -> Times:
    """Seconds of a step in eager and compiled, each the median of single steps that are synchronised."""
    import time

    import torch

    from torchzoo.measure.precision import apply_precision
    from torchzoo.zoo.catalog import load_model_class

    model = load_model_class(find_models().spec(model_name))(Mode(mode), torch.device(device), batch_size)
    apply_precision(model, Precision(precision))
    step = model.train_step if mode == Mode.TRAIN else model.eval_step
    synchronize: Callable[[], None] = torch.accelerator.synchronize if device != "cpu" else lambda: None

    def step_s() -> float:
        taken_s = []
        for _ in range(WARMUP_STEPS + STEPS):
            synchronize()
            began = time.perf_counter()
            step()
            synchronize()
            taken_s.append(time.perf_counter() - began)
        return median(taken_s[WARMUP_STEPS:])

    times = {"eager": step_s()}
    for network in model.networks().values():
        network.compile()
    return {**times, "inductor": step_s()}


def alone(step: Step, folder: Path) -> Times:
    """This harness, one case a command."""
    found: Times = {}
    for backend in ("inductor", GRAPHS):
        place = folder / backend.replace(":", "-")
        if not (place / "run.json").exists():
            _output([*_our_command([step], backend), "--exclusive", "-o", str(place)], place.with_suffix(".log"))
        found.update(_times_of(step, read_run(place).records))
    return found


def in_suite(records: tuple[Record, ...], step: Step, _: Path) -> Times:
    return _times_of(step, records)


def torchbench(checkout: Path, step: Step, folder: Path) -> Times:
    """TorchBench's run.py: eager."""
    command = [step.model, "-d", step.device, "-t", step.mode, "--bs", str(step.batch_size)]
    command += ["--precision", PEER_PRECISIONS[step.precision][0]]
    printed = _peer(checkout, "run.py", command, folder / "torchbench.log")
    found = re.search(r"CPU Wall Time per batch:\s+([\d.]+) milliseconds", printed)
    return {"eager": float(found[1]) / 1e3} if found else {}


def dynamobench(checkout: Path, step: Step, folder: Path, *, graphs: bool = False, fp32_weights: bool = False) -> Times:
    """PyTorch's dynamo benchmarks: eager and inductor in turns."""
    if fp32_weights and step.mode is Mode.TRAIN:  # as they are there
        return {}
    table = folder / f"dynamobench{'-graphs' if graphs else ''}{'-fp32-weights' if fp32_weights else ''}.csv"
    command = ["--performance", "--inductor", "--only", step.model, "-d", step.device, "--output", str(table)]
    command += ["--training" if step.mode is Mode.TRAIN else "--inference", "--batch-size", str(step.batch_size)]
    command += [PEER_PRECISIONS[step.precision][1], *([] if graphs else ["--disable-cudagraphs"])]
    script = "userbenchmark/dynamo/dynamobench/torchbench.py"
    _peer(checkout, script, command, table.with_suffix(".log"), fp32_weights=fp32_weights)
    if not table.exists():
        return {}
    *_, row = csv.DictReader(table.open())
    candidate_s = float(row["abs_latency"]) / 1e3
    if not candidate_s:  # it failed
        return {}
    return {"eager": candidate_s * float(row["speedup"]), GRAPHS if graphs else "inductor": candidate_s}


# --- running ---


def _our_command(steps: list[Step], backend: str) -> list[str]:
    names = list(dict.fromkeys(step.model for step in steps))
    modes = ",".join(dict.fromkeys(step.mode for step in steps))
    options = ["-d", steps[0].device, "-t", modes, "--precision", steps[0].precision, "--backend", backend, "-q"]
    return [sys.executable, str(ROOT / "run.py"), *names, *options, "--bs", "default"]


def _times_of(step: Step, records: tuple[Record, ...]) -> Times:
    """The medians of the records of that step."""
    found: Times = {}
    for record in records:
        case, outcome = record.case, record.outcome
        if isinstance(outcome, Measured) and _is_of(case, step):
            found.setdefault("eager", stats.latency_s(outcome.blocks, EAGER_VARIANT).value)
            if CANDIDATE_VARIANT in outcome.variants:
                found[str(case.backend)] = stats.latency_s(outcome.blocks, CANDIDATE_VARIANT).value
    return found


def _is_of(case: Case, step: Step) -> bool:
    is_same = (case.model, case.mode, case.batch_size) == (step.model, step.mode, step.batch_size)
    return is_same and case.precision == step.precision


def _peer(checkout: Path, script: str, arguments: list[str], log: Path, *, fp32_weights: bool = False) -> str:
    ours = [sys.executable, str(Path(__file__).resolve()), "offline-fp32" if fp32_weights else "offline"]
    return _output([*ours, script, *arguments], log, cwd=checkout)


def _output(command: list[str], log: Path, cwd: Path = ROOT) -> str:
    """What the command prints, kept in `log`, from which it is read if it is there. A failure is shown, and goes on."""
    if not log.exists():
        done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
        if done.returncode:
            print(f"{log.name}: status {done.returncode}: {done.stderr[-300:]}", file=sys.stderr)
        log.write_text(done.stdout)
    return log.read_text()


def run_offline(script: str, arguments: list[str], *, fp32_weights: bool = False) -> None:
    """Run a peer's script with random weights, where it would download trained ones; if asked, models begin in fp32."""
    import timm
    from torch import nn
    from torchvision.models import WeightsEnum

    create, load = timm.create_model, nn.Module.load_state_dict

    def load_if_given(self: nn.Module, state: Any, *rest: Any, **named: Any) -> Any:
        return load(self, state, *rest, **named) if state else None

    timm.create_model = lambda *given, **named: create(*given, **{**named, "pretrained": False})
    WeightsEnum.get_state_dict = lambda *_, **__: {}
    nn.Module.load_state_dict = load_if_given  # type: ignore[assignment, method-assign]
    sys.argv = [script, *arguments]
    sys.path[:0] = [str(Path.cwd()), str(Path(script).resolve().parent)]
    if fp32_weights:
        extra_args = importlib.import_module("torchbenchmark.util.extra_args")  # of the checkout
        extra_args.get_precision_default = lambda _: "fp32"  # type: ignore[attr-defined]
    runpy.run_path(script, run_name="__main__")


# --- the table ---


def print_table(found: dict[Step, dict[str, Times]]) -> None:
    for runner in ("eager", "inductor", GRAPHS):
        clocks = [name for name in next(iter(found.values())) if any(runner in by[name] for by in found.values())]
        if not clocks:
            continue
        ratios: dict[str, list[float]] = {name: [] for name in clocks}
        print(f"\n{runner}, ms (ratio to {clocks[0]})\n\n| step | {' | '.join(clocks)} |\n|---|{'---|' * len(clocks)}")
        for step, by in found.items():
            reference_s = by[clocks[0]].get(runner)
            cells = []
            for name in clocks:
                if (step_s := by[name].get(runner)) is None or reference_s is None:
                    cells.append("-" if step_s is None else f"{step_s * 1e3:.2f}")
                    continue
                ratios[name].append(step_s / reference_s)
                cells.append(f"{step_s * 1e3:.2f} ({step_s / reference_s:.2f})")
            print(f"| {step} | {' | '.join(cells)} |")
        print(f"| median ratio | {' | '.join(f'{median(r):.2f}' if r else '-' for r in ratios.values())} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL", help=f"(default: {' '.join(MODELS)})")
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("-t", "--mode", default="train,eval")
    parser.add_argument("--precision", default="tf32", choices=sorted(PEER_PRECISIONS), help="(default: tf32)")
    parser.add_argument("--torchbench", type=Path, metavar="DIR", help="a checkout of pytorch/benchmark")
    parser.add_argument("--suite-run", type=Path, metavar="RUN", help="a run that has these cases among others")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    catalog = find_models()
    steps = [
        Step(
            model=spec.name,
            mode=mode,
            batch_size=spec.batch_size[mode],
            device=arguments.device,
            precision=arguments.precision,
        )
        for spec in map(catalog.spec, catalog.select(arguments.models))
        for mode in map(Mode, arguments.mode.split(","))
    ]
    suite = arguments.suite_run or arguments.output / "suite"
    if not suite.exists():
        _output([*_our_command(steps, "inductor"), "-o", str(suite)], arguments.output / "suite.log")
    clocks: dict[str, Callable[[Step, Path], Times]] = {
        "bare": bare,
        "alone": alone,
        "suite": partial(in_suite, read_run(suite).records),
    }
    if arguments.torchbench is not None:
        clocks["torchbench"] = partial(torchbench, arguments.torchbench)
        clocks["dynamobench"] = partial(dynamobench, arguments.torchbench, graphs=False)
        clocks["dynamobench graphs"] = partial(dynamobench, arguments.torchbench, graphs=True)
        if arguments.precision == "amp" and Mode.EVAL in arguments.mode.split(","):
            clocks["dynamobench graphs, fp32 weights"] = partial(
                dynamobench, arguments.torchbench, graphs=True, fp32_weights=True
            )
    found: dict[Step, dict[str, Times]] = {}
    for step in steps:
        folder = arguments.output / str(step).replace(" ", "-")
        folder.mkdir(parents=True, exist_ok=True)
        found[step] = {name: clock(step, folder) for name, clock in clocks.items()}
    print_table(found)


if __name__ == "__main__":
    if sys.argv[1:2] == ["bare"]:
        print(json.dumps(bare_loop(*json.loads(sys.argv[2]))))
    elif sys.argv[1:2] in (["offline"], ["offline-fp32"]):
        run_offline(sys.argv[2], sys.argv[3:], fp32_weights=sys.argv[1] == "offline-fp32")
    else:
        main()
