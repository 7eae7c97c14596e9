"""Why networks with an unbacked batch take longer: what inductor does not know of it, said to it in turn.

    python benchmarks/unbacked.py [MODEL ...] [-d cuda|cpu] [--bs N] [--code DIR]

`userbenchmark dynamic_shapes` finds that a network compiled with `mark_unbacked` takes longer than one compiled for the
same size alone. Inductor does not know how large such a size can be, so it computes indices with 64 bits. And where it
has to guess a size, to choose blocks, it takes 8,192. Here the network is compiled as it is, with indices of 32 bits,
with the true batch as the guess, and with both. Printed are, of each: the time of a step over that of the network
compiled for this batch alone, in turns A B B A; the same of the device's own work; how many Triton kernels there are,
and how many of those have 64-bit sizes. Then come the kernels that take longest. On a CPU there are no Triton kernels.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.utils import fresh_cache, run_and_get_code

from torchzoo import stats
from torchzoo.analysis.kernels import busy_s, longest_kernels
from torchzoo.case import Mode
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.size_sweep import sweep_sizes
from torchzoo.measure.sized import Sized
from torchzoo.model import Model
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import markdown, units
from torchzoo.report.sections.breakdown import short
from torchzoo.settings import Settings
from torchzoo.trials import SizeResult
from torchzoo.zoo.catalog import find_models, load_model_class

MODELS = ("timm_vision_transformer", "hf_Bert", "resnet18")
KERNELS = 6


def ways(batch_size: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """The policy of `size_sweep`, and what is said to inductor."""
    narrow, hint = {"assume_32bit_indexing": True}, {"unbacked_symint_fallback": batch_size}
    return {
        "mark_dynamic": ("mark_dynamic", {}),
        "unbacked": ("mark_unbacked", {}),
        "unbacked, indices of 32 bits": ("mark_unbacked", narrow),
        f"unbacked, guessed as {batch_size}": ("mark_unbacked", hint),
        "unbacked, both": ("mark_unbacked", narrow | hint),
    }


def swept(name: str, device: str, batch_size: int, policy: str, options: dict[str, Any]) -> tuple[SizeResult, str]:
    """The network compiled for all batches beside the one for this batch alone, and the code of the first one."""
    model_class = load_model_class(find_models().spec(name))

    def build(size: int) -> Model:
        return model_class(Mode.EVAL, torch.device(device), size)

    model = build(batch_size)
    sized = Sized(model, {batch_size: model.batch, 1: build(1).batch}, is_batch_size=True)
    clock, settings = DeviceClock(model.device), Settings(time_limit_s=2.0)
    with config.patch(options), fresh_cache(), tempfile.TemporaryDirectory() as folder:
        sizes, codes = run_and_get_code(
            lambda: sweep_sizes(sized, policy, clock, settings, lambda _: None, shared=Path(folder))
        )
    return sizes.sizes[0], "\n".join(code for code in codes if re.search(r"\b[us]\d+\b", code))


def row(way: str, found: SizeResult, code: str) -> list[str]:
    """One line of the table."""
    own, alone = (busy_s(found.breakdowns.get(name)) for name in (CANDIDATE_VARIANT, EAGER_VARIANT))
    return [
        way,
        units.speedup(stats.inverse(stats.speedup(found.blocks))) if found.blocks else found.problem,
        units.speedup(stats.quotient(own, alone)) if own and alone else "",
        str(code.count("@triton.jit")),
        str(len(re.findall(r"'xnumel': 'i64'", code))),
    ]


def kernels(found: SizeResult, network: str, variant: str) -> list[list[str]]:
    """Those that take longest."""
    if variant not in found.breakdowns:
        return []
    return [
        [network, units.seconds(one.per_step_s), f"{one.calls_per_step:g}", short(one.name)]
        for one in longest_kernels(found.breakdowns[variant], KERNELS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("--bs", type=int, default=8, help="samples in a batch")
    parser.add_argument("--code", type=Path, metavar="DIR", help="keep there what inductor writes")
    arguments = parser.parse_args()
    print(f"torch {torch.__version__}")
    for name in arguments.models:
        print(f"\n{name}, batch {arguments.bs}", flush=True)
        rows: list[list[str]] = []
        longest: list[list[str]] = []
        for way, (policy, options) in ways(arguments.bs).items():
            known = {key: value for key, value in options.items() if hasattr(config, key)}
            if known != options:
                print(f"{way}: this torch has no {', '.join(options.keys() - known.keys())}")
                continue
            found, code = swept(name, arguments.device, arguments.bs, policy, options)
            rows.append(row(way, found, code))
            if arguments.code:
                arguments.code.mkdir(parents=True, exist_ok=True)
                (arguments.code / f"{name}, {way}.py").write_text(code)
            if way == "unbacked":
                longest = kernels(found, "alone", EAGER_VARIANT) + kernels(found, way, CANDIDATE_VARIANT)
        print("\n".join(markdown.table(("how", "a step", "device's work", "kernels", "with 64 bits"), rows)))
        print("\n".join(markdown.table(("network", "time a step", "calls a step", "kernel"), longest)), flush=True)


if __name__ == "__main__":
    main()
