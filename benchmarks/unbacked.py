"""Why networks with an unbacked batch take longer: what inductor does not know of it, said to it in turn.

    python benchmarks/unbacked.py [MODEL ...] [-d cuda|cpu] [--bs N] [--code DIR]

`userbenchmark dynamic_shapes` finds that a network compiled with `mark_unbacked` takes longer than one compiled for the
same size alone. Inductor does not know how large such a size is. So it computes indices with 64 bits. Where it must
guess a size, to choose blocks, it takes 8,192. And where it asks how many bytes two operations share, it counts none
for a tensor with such a size, and does not fuse two operations that share nothing. Here the network is compiled as it
is, and with each of these said to inductor. Printed are, of each: the time of a step over that of the network compiled
for this batch alone, in turns; the same of the device's own work; how many Triton kernels a step launches, and
how many of them have 64-bit sizes. Then come the kernels that take longest. On a CPU there are no Triton kernels.
"""

from __future__ import annotations

import argparse
import functools
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch._dynamo.decorators import mark_unbacked
from torch._inductor import config
from torch._inductor.dependencies import Dep, MemoryDep
from torch._inductor.graph import GraphLowering
from torch._inductor.utils import fresh_cache, get_dtype_size, run_and_get_code

from torchzoo import stats
from torchzoo.analysis.roofline import busy_ratio, longest_kernels, short_name
from torchzoo.case import Mode
from torchzoo.measure.clock import DeviceClock
from torchzoo.measure.fresh_turns import SizeResult
from torchzoo.measure.size_sweep import POLICIES, Sized, sweep_sizes
from torchzoo.model import Model
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import markdown, units
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import find_models, load_model_class

MODELS = ("timm_vision_transformer", "hf_Bert")  # each is one graph; that of resnet18 breaks
KERNELS = 6
HINTED = "mark_unbacked with a hint"
HEADINGS = ("how", "a step", "device's work", "kernels launched", "with 64 bits")


class Way(NamedTuple):
    """A policy of `size_sweep`, and what is said to inductor."""

    policy: str = "mark_unbacked"
    options: Mapping[str, Any] = {}
    shares: bool = False  # what two operations share is counted with the true batch


def ways(batch_size: int) -> dict[str, Way]:
    """All that are compared."""
    narrow = {"assume_32bit_indexing": True}
    return {
        "mark_dynamic": Way("mark_dynamic"),
        "unbacked": Way(),
        "unbacked, indices of 32 bits": Way(options=narrow),
        f"unbacked, hint_override={batch_size}": Way(HINTED),
        "unbacked, shared bytes counted": Way(shares=True),
        "unbacked, shared bytes counted, indices of 32 bits": Way(options=narrow, shares=True),
    }


@contextmanager
def shared_bytes_counted(batch_size: int) -> Iterator[None]:
    """Inside, inductor counts the bytes of tensors with an unbacked size, as if that were the batch."""
    original = GraphLowering.get_dep_size_hint

    def counted(graph: GraphLowering, dep: Dep, *args: Any, **kwargs: Any) -> int:
        if isinstance(dep, MemoryDep) and dep.has_unbacked_symbols():
            numel = dep.get_numel()
            known = int(numel.subs(dict.fromkeys(numel.free_symbols, batch_size)))
            in_bytes = args[0] if args else kwargs.get("count_bytes", True)
            return known * get_dtype_size(graph.get_dtype(dep.name)) if in_bytes else known
        return original(graph, dep, *args, **kwargs)

    with mock.patch.object(GraphLowering, "get_dep_size_hint", counted):
        yield


def swept(name: str, device: str, batch_size: int, way: Way) -> tuple[SizeResult, str]:
    """The network compiled for all batches beside the one for this batch alone; the code of graphs with any batch."""
    model_class = load_model_class(find_models().spec(name))

    def build(size: int) -> Model:
        return model_class(Mode.EVAL, torch.device(device), size)

    model = build(batch_size)
    sized = Sized(model, {batch_size: model.batch, 1: build(1).batch}, is_batch_size=True)
    clock, settings = DeviceClock(model.device), Settings(time_limit_s=2.0)
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(fresh_cache())
        stack.enter_context(config.patch(dict(way.options)))
        if way.shares:
            stack.enter_context(shared_bytes_counted(batch_size))
        sizes, codes = run_and_get_code(
            lambda: sweep_sizes(sized, way.policy, clock, settings, lambda _: None, shared=Path(folder))
        )
    return sizes.sizes[0], "\n".join(code for code in codes if re.search(r"^\s+[us]\d+ = arg", code, re.MULTILINE))


def row(way: str, found: SizeResult, code: str) -> list[str]:
    """One line of the table."""
    launched = re.findall(r"^\s+(triton_\w+)\.run\(", code, re.MULTILINE)
    kernels = re.findall(r"triton_meta=\{'signature': \{([^}]*)\}.*\n.*'kernel_name': '(\w+)'", code)
    wide = {name for signature, name in kernels if "numel': 'i64'" in signature}
    work = busy_ratio(found.breakdowns.get(CANDIDATE_VARIANT), found.breakdowns.get(EAGER_VARIANT))
    return [
        way,
        units.speedup(stats.inverse(stats.speedup(found.blocks))) if found.blocks else found.problem,
        units.speedup(work) if work else "",
        str(len(launched)),
        str(sum(name in wide for name in launched)),
    ]


def longest_of(found: SizeResult, network: str, variant: str) -> list[list[str]]:
    """Those that take longest."""
    if variant not in found.breakdowns:
        return []
    return [
        [network, units.seconds(one.per_step_s), f"{one.calls_per_step:g}", short_name(one.name)]
        for one in longest_kernels(found.breakdowns[variant], KERNELS)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=MODELS)
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("--bs", type=int, default=8, help="samples in a batch")
    parser.add_argument("--code", type=Path, metavar="DIR", help="keep there what inductor writes")
    arguments = parser.parse_args()
    POLICIES[HINTED] = (None, functools.partial(mark_unbacked, hint_override=arguments.bs))
    print(f"torch {torch.__version__}")
    for name in arguments.models:
        print(f"\n{name}, batch {arguments.bs}", *markdown.table(HEADINGS, []), sep="\n", flush=True)
        longest: list[list[str]] = []
        for way, settings in ways(arguments.bs).items():
            found, code = swept(name, arguments.device, arguments.bs, settings)
            print(markdown.table(HEADINGS, [row(way, found, code)])[-1], flush=True)
            if arguments.code:
                arguments.code.mkdir(parents=True, exist_ok=True)
                (arguments.code / f"{name}, {way}.py").write_text(code)
            if way == "unbacked":
                longest = longest_of(found, "alone", EAGER_VARIANT) + longest_of(found, way, CANDIDATE_VARIANT)
        print("", *markdown.table(("network", "time a step", "calls a step", "kernel"), longest), sep="\n", flush=True)


if __name__ == "__main__":
    main()
