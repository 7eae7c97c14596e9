"""TorchBench's options: seven mean the same as one of ours, and the others are refused by naming the page for them.

They are not in `--help`, which has ours.
"""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.case import Backend, MemoryFormat, Precision
from torchzoo.commands.arguments import backends_of
from torchzoo.commands.options import OPTIONS
from torchzoo.settings import CacheMode, Pass

#: The page that says what replaces each of the others.
PAGE = "docs/torchbench.md"


def _backend_of_dynamo(name: str) -> tuple[Backend, ...]:
    if name == "eager":
        raise argparse.ArgumentTypeError("eager is without Dynamo here: use --backend aot_eager, which has its graphs")
    return backends_of(name)


#: Options that are understood: the destination of ours, and how argparse gets the value.
UNDERSTOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "--test": ("mode", {"type": OPTIONS["mode"].read}),
    "--torchdynamo": ("backend", {"type": _backend_of_dynamo}),
    "--inductor": ("backend", {"action": "store_const", "const": backends_of("inductor")}),
    "--amp": ("precision", {"action": "store_const", "const": (Precision.AMP,)}),
    "--channels-last": ("memory_format", {"action": "store_const", "const": (MemoryFormat.CHANNELS_LAST,)}),
    "--accuracy": ("passes", {"action": "append_const", "const": Pass.CHECK_ONLY}),
    "--cold-start": ("cache", {"action": "store_const", "const": CacheMode.COLD}),
}

#: The others, of its run.py, its models, its backends and its userbenchmarks.
REFUSED = """
-m --profile --profile-folder --no-profile-detailed --disable-profile-options --profile-export-chrome-trace
--profile-devices --profile-eg --profile-eg-folder --cudastreams --export-metrics --stress --metrics
--metrics-gpu-backend --num-batch --distributed --distributed_wrap_fn --rank --world_size --use_cosine_similarity
--quant-engine --quantization --eval_fp16 --no-eval_fp16 --inductor-compile-mode --nopython --dynamic-shapes
--dynamic-batch-only --dynamo_disable_optimizer_step --pt2_debug_log --torchinductor_compile_threads
--torchinductor_post_grad_batch_fusion --freeze_prepack_weights --no-ofi --fuser --truncate_long_and_double
--workspace_size --min_block_size --ir --model --models -k --filter --iter --niter --nwarmup --warmup --rounds --repeat
--ngpus --output_dir --dryrun --config -c -b --launcher --launcher-args --pt2-triton-cudagraphs
--no-pt2-triton-cudagraphs --pt2-triton-unique_kernel_names --no-pt2-triton-unique_kernel_names --pt2-fallback_random
--no-pt2-fallback_random --pt2-max_autotune_gemm --no-pt2-max_autotune_gemm --pt2-split_cat_fx_passes
--no-pt2-split_cat_fx_passes --pt2-group_fusion --no-pt2-group_fusion --pt2-batch_fusion --no-pt2-batch_fusion
--pt2-debug --no-pt2-debug
"""


def add_torchbench_options(parser: argparse.ArgumentParser) -> None:
    """Let a parser understand or refuse TorchBench's options, where it has no such option of its own."""
    own = set(parser._option_string_actions)
    obeyed = {action.dest for action in parser._actions}
    hidden: dict[str, Any] = {"help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    for option in (*UNDERSTOOD, *REFUSED.split()):
        if option in own:
            continue
        destination, how = UNDERSTOOD.get(option, ("", {}))
        if destination in obeyed:
            parser.add_argument(option, dest=destination, **how, **hidden)
        else:
            parser.add_argument(option, dest=argparse.SUPPRESS, action=_Refused, nargs="?", **hidden)


class _Refused(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        parser.error(f"{option} is an option of TorchBench: {PAGE} says what replaces it")
