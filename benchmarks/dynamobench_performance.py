"""Dynamobench in performance mode beside `torchzoo run`: the same models, batches and backend, in one table.

    python benchmarks/dynamobench_performance.py --pytorch ~/pytorch -d cuda -o runs/dynamobench

It measures twenty models (or those that are named) in both modes, first by dynamobench, then by `torchzoo run`, and
writes `table.md` into the folder. What the folder has already is not measured again: after `--minutes` start the same
command once more. `--only-table` writes the table of what is there.

Both compile by inductor without CUDA graphs, with TF32 in matrix products and convolutions (on the CPU: fp32), at the
default batch of our folders. In evaluation both time the forward pass of the network. In training dynamobench's step is
another one: the mean of the outputs is its loss, and its optimizer is Adam or SGD (on the CPU there is none).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from dynamobench import MODES, ROOT, Row, run_case
from torchzoo import stats
from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.case import Mode
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.store import read_run
from torchzoo.zoo.catalog import find_models

TWENTY = (
    "alexnet",
    "attention_is_all_you_need_pytorch",
    "BERT_pytorch",
    "dcgan",
    "densenet121",
    "functorch_dp_cifar10",
    "hf_Albert",
    "hf_Bert",
    "hf_DistilBert",
    "hf_GPT2",
    "LearningToPaint",
    "mobilenet_v2",
    "nvidia_deeprecommender",
    "phlippe_resnet",
    "pytorch_unet",
    "resnet18",
    "resnet50",
    "squeezenet1_1",
    "timm_vision_transformer",
    "vgg16",
)
OURS = {"inference": Mode.EVAL, "training": Mode.TRAIN}
ROWS, RUN, TABLE = "dynamobench.jsonl", "torchzoo", "table.md"


def rows_of(folder: Path) -> dict[tuple[str, str], Row]:
    """Dynamobench's figures that the folder has, by mode and model."""
    path = folder / ROWS
    rows = map(json.loads, path.read_text(encoding="utf-8").splitlines() if path.exists() else [])
    return {(row["mode"], row["name"]): row for row in rows}


def run_theirs(arguments: argparse.Namespace, names: list[str], deadline: float) -> None:
    catalog, done = find_models(), rows_of(arguments.output)
    options = ["--performance", "--inductor", "--disable-cudagraphs", "-d", arguments.device]
    for mode in arguments.mode or MODES:
        for name in names:
            batch_size = catalog.spec(name).batch_size.get(OURS[mode])
            if batch_size is None or (mode, name) in done or time.monotonic() > deadline:
                continue
            batch = ["--batch-size", str(arguments.batch_size or batch_size)]
            row = run_case(name, mode, [*options, *batch], pytorch=arguments.pytorch, timeout_s=arguments.timeout)
            with (arguments.output / ROWS).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            cells = row["cells"]
            print(
                f"{mode:9} {name:35} {row['status']:10} {cells.get('speedup', '')} {row['wall_s']:6.1f} s", flush=True
            )


def run_ours(arguments: argparse.Namespace, names: list[str]) -> None:
    """By `torchzoo run`, or what is missing of it."""
    kept = arguments.output / RUN
    command = [sys.executable, "-m", "torchzoo", "run"]
    if kept.exists():
        command += ["--resume", str(kept)]
    else:
        modes = ",".join(OURS[mode] for mode in arguments.mode or MODES)
        precision = "default" if arguments.device == "cpu" else "tf32"
        command += [*names, "-t", modes, "-d", arguments.device, "--backend", "inductor", "--precision", precision]
        command += ["--bs", str(arguments.batch_size or "default"), "-o", str(kept)]
    subprocess.run(command, check=False, cwd=ROOT)


def table(folder: Path) -> str:
    """A line for each model and mode: their figures and ours."""
    ours = {}
    if (folder / RUN).exists():
        results = [result for result in case_results(read_run(folder / RUN)) if result.measured]
        ours = {(result.case.mode, result.case.model): result for result in results}
    head = ["| model | mode | batch | dynamobench: eager ms | inductor ms | speedup |"]
    head[0] += " torchzoo: eager ms | inductor ms | speedup [interval] | torchzoo's over dynamobench's |"
    lines = [*head, "| --- | --- | --- " + "| --- " * 7 + "|"]
    for (mode, name), row in sorted(rows_of(folder).items(), key=lambda item: (item[0][0], item[0][1].lower())):
        cells = row["cells"]
        speedup = float(cells.get("speedup") or 0)
        latency_ms = float(cells.get("abs_latency") or 0)
        theirs = [f"{speedup * latency_ms:.3f}", f"{latency_ms:.3f}", f"{speedup:.3f}"]
        if not speedup:
            theirs = ["", "", row["status"]]
        batch = cells.get("batch_size", "")
        lines.append(
            "| " + " | ".join([name, mode, batch, *theirs, *our_cells(ours.get((OURS[mode], name)), speedup)]) + " |"
        )
    return "\n".join(lines) + "\n"


def our_cells(result: CaseResult | None, their_speedup: float) -> list[str]:
    if result is None:
        return ["", "", "not measured", ""]
    blocks = result.measured[0].blocks
    eager, candidate = (1e3 * stats.latency_s(blocks, one).value for one in (EAGER_VARIANT, CANDIDATE_VARIANT))
    ours = stats.speedup(blocks)
    ratio = f"{ours.value / their_speedup:.3f}" if their_speedup else ""
    return [f"{eager:.3f}", f"{candidate:.3f}", f"{ours.value:.3f} [{ours.low:.3f}, {ours.high:.3f}]", ratio]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="instead of the twenty")
    parser.add_argument("--pytorch", type=Path, help="a checkout that has dynamobench")
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("--mode", choices=MODES, action="append", help="one mode (default: both)")
    parser.add_argument("--batch-size", type=int, help="instead of the default of each folder")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for a case of dynamobench")
    parser.add_argument("--minutes", type=float, default=1e6, help="start no case of dynamobench after so many minutes")
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output = arguments.output.resolve()
    arguments.output.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + arguments.minutes * 60
    if not arguments.only_table:
        names = arguments.models or list(TWENTY)
        run_theirs(arguments, names, deadline)
        if time.monotonic() <= deadline:
            run_ours(arguments, names)
    (arguments.output / TABLE).write_text(table(arguments.output), encoding="utf-8")
    print((arguments.output / TABLE).read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
