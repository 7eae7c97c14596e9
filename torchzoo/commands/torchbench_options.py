"""TorchBench's options: seven stand for an option of torchzoo, and a message refers for the others to a page.

None of them is in `--help`.
"""

from __future__ import annotations

import argparse
from typing import Any

from torchzoo.case import Backend, MemoryFormat, Precision
from torchzoo.commands.arguments import backends_of
from torchzoo.commands.options import OPTIONS
from torchzoo.settings import CacheMode, Pass

#: The page on what replaces the refused options.
PAGE = "docs/torchbench.md"


def _backend_of_dynamo(name: str) -> tuple[Backend, ...]:
    if name == "eager":
        raise argparse.ArgumentTypeError("eager is without Dynamo here: use --backend aot_eager, which has its graphs")
    return backends_of(name)


#: Understood options: the destination of torchzoo's option, and how argparse gets the value.
UNDERSTOOD: dict[str, tuple[str, dict[str, Any]]] = {
    "--test": ("mode", {"type": OPTIONS["mode"].read}),
    "--torchdynamo": ("backend", {"type": _backend_of_dynamo}),
    "--inductor": ("backend", {"action": "store_const", "const": backends_of("inductor")}),
    "--amp": ("precision", {"action": "store_const", "const": (Precision.AMP,)}),
    "--channels-last": ("memory_format", {"action": "store_const", "const": (MemoryFormat.CHANNELS_LAST,)}),
    "--accuracy": ("passes", {"action": "append_const", "const": Pass.CHECK_ONLY}),
    "--cold-start": ("cache", {"action": "store_const", "const": CacheMode.COLD}),
}

#: Refused options, of TorchBench's run.py, models, backends and userbenchmarks.
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
    """Let a parser understand or refuse TorchBench's options, except those with the name of an option of its own."""
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
