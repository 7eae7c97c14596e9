"""DDP by this harness beside DDP by torchrun and a bare loop, in turns: A B B A.

    python benchmarks/parallel.py resnet50 hf_Bert -d cuda --world 2 --turns 2 -o parallel.json

The bare loop knows nothing of torchzoo but the model's folder. torchrun starts it, it wraps the network in
`DistributedDataParallel`, steps, synchronises its device, and reads the clock. A step's time is that of the rank that
needed longest for it. Both sides have the same model, batch, seeds and precision (PyTorch's default). They train in
eager.

Printed are milliseconds, and the harness's time over the bare loop's with its interval (of the turns' ratios).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from torchzoo import stats
from torchzoo.case import Mode
from torchzoo.record import EAGER_VARIANT, Measured
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models

ROOT = Path(__file__).resolve().parent.parent
WARMUP_STEPS = 20
MEASURED_S = 5.0


def bare_rank(model_name: str, device_type: str, batch_size: int) -> None:
    """What torchrun starts: one rank. Rank 0 prints the median step time in seconds."""
    import torch
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    from torchzoo.zoo.catalog import load_model_class

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device_type == "cpu":
        device = torch.device("cpu")
        distributed.init_process_group("gloo")
    else:
        device = torch.device(device_type, rank)
        torch.accelerator.set_device_index(device)
        distributed.init_process_group("nccl", device_id=device)
    model = load_model_class(find_models().spec(model_name))(Mode.TRAIN, device, batch_size, seed=0, shard=rank)
    ids = None if device_type == "cpu" else [rank]
    wrapped = DistributedDataParallel(model.network, device_ids=ids)  # type: ignore[attr-defined]
    model.network = wrapped  # type: ignore[attr-defined]

    def synchronize() -> None:
        if device_type != "cpu":
            torch.accelerator.synchronize(device)

    def times_s(steps: int) -> list[float]:
        found = []
        for _ in range(steps):
            synchronize()
            began = time.perf_counter()
            model.train_step()
            synchronize()
            found.append(time.perf_counter() - began)
        return found

    slowest = torch.tensor(median(times_s(WARMUP_STEPS)), device=device)
    distributed.all_reduce(slowest, distributed.ReduceOp.MAX)
    steps = max(20, int(MEASURED_S / float(slowest)))
    own = torch.tensor(times_s(steps), device=device)
    distributed.all_reduce(own, distributed.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"step_s": median(own.tolist()), "world": world, "steps": steps}))
    distributed.destroy_process_group()


def bare(model: str, device: str, batch_size: int, world: int) -> float:
    """Seconds of a step by torchrun."""
    threads = max(1, (os.cpu_count() or 1) // world) if device == "cpu" else 1
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
    command += [__file__, "--bare-rank", model, "-d", device, "--bs", str(batch_size)]
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": python_path, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        sys.exit(f"torchrun failed with {model}: {done.stderr[:3000]}")
    return float(json.loads(lines[-1])["step_s"])


def ours(model: str, device: str, batch_size: int, world: int) -> float:
    """Seconds of a step by this harness."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "run.py"), model, "-d", device, "-t", "train", "--bs", str(batch_size)]
        command += ["--world", str(world), "--time-limit", str(MEASURED_S), "-q", "-o", f"{folder}/run"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        (record,) = read_run(Path(folder) / "run").records
        if not isinstance(record.outcome, Measured):
            sys.exit(f"{model} was not measured: {record.outcome}; {done.stderr[-500:]}")
        return stats.latency_s(record.outcome.blocks, EAGER_VARIANT).value


def main() -> None:
    """Measure the models in turns, and print a table."""
    parser = argparse.ArgumentParser(description="DDP by this harness beside a bare loop: see the top of this file.")
    parser.add_argument("models", nargs="*", default=["resnet50", "hf_Bert"])
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--bs", type=int, help="the batch of each rank (default: the model's)")
    parser.add_argument("--turns", type=int, default=2, help="pairs of turns: A B, then B A, ...")
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--bare-rank", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare_rank:
        bare_rank(options.bare_rank, options.device, options.bs)
        return
    found = {}
    catalog = find_models()
    for spec in map(catalog.spec, catalog.select(options.models)):
        batch_size = options.bs or spec.batch_size[Mode.TRAIN]
        times: dict[str, list[float]] = {"bare": [], "ours": []}
        for turn in range(options.turns):
            sides = (("bare", bare), ("ours", ours))
            for name, side in sides if turn % 2 == 0 else sides[::-1]:
                times[name].append(side(spec.name, options.device, batch_size, options.world))
        ratio = stats.median_estimate([a / b for a, b in zip(times["ours"], times["bare"], strict=True)])
        found[spec.name] = {"batch_size": batch_size, "world": options.world, **times, "ratio": ratio.value}
        shown = ", ".join(f"{name} {'/'.join(f'{1e3 * one:.2f}' for one in some)} ms" for name, some in times.items())
        interval = f"{ratio.value:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
        print(f"{spec.name} x{options.world} bs{batch_size}: {shown}; {interval}")
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
