"""TorchBench's options: those that people's scripts give to its `run.py` and `run_benchmark.py`.

Some mean the same as an option of ours, and are understood. Each of the others is answered in one line that names the
option to use. They are not in `--help`, which has ours.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

from torchzoo.settings import CacheMode, Pass


class Meaning(NamedTuple):
    """What an option of TorchBench means here: the destination of ours, and the value unless it takes one."""

    destination: str
    value: Any = None


#: Options that are understood. Those without a value take one.
UNDERSTOOD: dict[str, Meaning] = {
    "--test": Meaning("mode"),
    "--torchdynamo": Meaning("backend"),
    "--inductor": Meaning("backend", "inductor"),
    "--amp": Meaning("precision", "amp"),
    "--channels-last": Meaning("memory_format", "channels_last"),
    "--accuracy": Meaning("passes", (Pass.CHECK_ONLY,)),
    "--cold-start": Meaning("cache", CacheMode.COLD.value),
}

#: Values that mean something else there, by the destination of ours: what to say.
VALUES: dict[str, dict[str, str]] = {
    "mode": {
        "jit": "--mode is train or eval; use --backend torchscript",
        "eager": "--mode is train or eval; use --backend eager",
    },
    "precision": {
        "bypass": "use --precision default",
        "fx_int8": "use --precision int8wo, or a quantized model: `torchzoo list '*quantized*'`",
    },
    "backend": {
        "cudagraph": "use --backend cudagraphs",
        "torch_trt": "use --backend tensorrt",
        "fx2trt": "use --backend tensorrt",
        "fx2ait": "AITemplate is no longer developed; use --backend tensorrt",
    },
}

_NO_SHAPES = "shapes are static, as in the original code; leave it out"
_INDUCTOR = "set inductor's own variable, such as TORCHINDUCTOR_MAX_AUTOTUNE=1, before the command"
_TRACES = "use --breakdown, and --trace DIR for Chrome traces"
_STOPPING = "timing stops when the interval is narrow; use --time-limit S for the most seconds"
_MODELS = "name the models without an option: torchzoo run resnet18 hf_Bert"
_STEP = "a step is one batch; leave it out"

#: Options that are answered: with what to use. A star stands for options that take a value.
ANSWERED: dict[str, str] = {
    # run.py
    "--profile": _TRACES,
    "--profile-folder*": _TRACES,
    "--no-profile-detailed": _TRACES,
    "--disable-profile-options*": _TRACES,
    "--profile-export-chrome-trace": _TRACES,
    "--profile-devices*": _TRACES,
    "--profile-eg": _TRACES,
    "--profile-eg-folder*": _TRACES,
    "--cudastreams": "steps run one after another; use --bs 1,2,4 to see how a device fills",
    "--export-metrics": "use -o DIR to keep the run, and `torchzoo report DIR --format csv`",
    "--stress*": "use --time-limit S for the most seconds of timing; --energy and --leak-check run many steps",
    "--metrics*": "times and memory are always measured; use --flops, --energy or --breakdown for more",
    "--metrics-gpu-backend*": "memory is that of PyTorch's allocator and of NVML, both; leave it out",
    "--num-batch*": _STEP,
    # what its models understand
    "--distributed*": "use --world N --parallel ddp or fsdp2",
    "--distributed_wrap_fn*": "use --world N --parallel ddp or fsdp2",
    "--rank*": "torchzoo starts the ranks; use --world N",
    "--world_size*": "use --world N",
    "--use_cosine_similarity": "use --check, which compares with an fp64 reference",
    "--quant-engine*": "quantized models are models of their own, see `torchzoo list '*quantized*'`",
    "--quantization*": "use --precision int8wo, int4wo or fp8",
    "--eval_fp16": "use --precision fp16",
    "--no-eval_fp16": "use --precision fp32",
    # its backends
    "--inductor-compile-mode*": "use --backend inductor:max-autotune",
    "--nopython": "graph breaks are counted, not refused; use --compile-stats to see them",
    "--dynamic-shapes": _NO_SHAPES,
    "--dynamic-batch-only": _NO_SHAPES,
    "--dynamo_disable_optimizer_step*": "a backend gets the networks alone unless you say --compile-scope step",
    "--pt2_debug_log": "set TORCH_LOGS=dynamo,inductor,aot before the command",
    "--torchinductor_compile_threads*": "set TORCHINDUCTOR_COMPILE_THREADS=N before the command",
    "--torchinductor_post_grad_batch_fusion": _INDUCTOR,
    "--freeze_prepack_weights": "set TORCHINDUCTOR_FREEZING=1 before the command",
    "--no-ofi": "use --backend torchscript:trace or torchscript:script",
    "--fuser*": "use --backend torchscript:trace or torchscript:script",
    "--truncate_long_and_double": "use --backend tensorrt without it",
    "--workspace_size*": "use --backend tensorrt without it",
    "--min_block_size*": "use --backend tensorrt without it",
    "--ir*": "use --backend tensorrt without it",
    # its userbenchmarks
    "--model*": _MODELS,
    "--models*": _MODELS,
    "-k*": "use globs: torchzoo run 'hf_*'",
    "--filter*": "use globs: torchzoo run 'hf_*'",
    "--iter*": _STOPPING,
    "--niter*": _STOPPING,
    "--nwarmup*": "steps warm up until they are steady; leave it out",
    "--warmup*": "steps warm up until they are steady; leave it out",
    "--rounds*": "use --repeats N",
    "--repeat*": "use --repeats N",
    "--ngpus*": "use --world N",
    "--output_dir*": "use -o DIR",
    "--dryrun": "use `torchzoo list` to see the models",
    "--config*": "use --suite with a YAML file of models",
    "-c*": "use --suite with a YAML file of models",
    "-b*": "use --bs N",
    "--launcher*": "use --threads N",
    "--launcher-args*": "use --threads N",
}

#: Beginnings of options of which TorchBench has many.
_MANY = tuple(
    f"--{no}pt2-{name}"
    for no in ("", "no-")
    for name in (
        "triton-cudagraphs",
        "triton-unique_kernel_names",
        "fallback_random",
        "max_autotune_gemm",
        "split_cat_fx_passes",
        "group_fusion",
        "batch_fusion",
        "debug",
    )
)


def add_torchbench_options(parser: argparse.ArgumentParser, obeyed: Iterable[str]) -> None:
    """Let a parser understand or answer TorchBench's options, where it has no such option of its own.

    Args:
        parser: with all options of its own.
        obeyed: the destinations that the command reads.
    """
    own = set(parser._option_string_actions)
    for option, meaning in UNDERSTOOD.items():
        if option in own:
            continue
        if meaning.destination in set(obeyed):
            _understand(parser, option, meaning)
        else:
            _answer(parser, option, takes_value=meaning.value is None, answer=f"`torchzoo run` has {option}")
    parser.add_argument("-m", action=_OldMode, help=argparse.SUPPRESS, dest="backend", default=argparse.SUPPRESS)
    for option, answer in (ANSWERED | dict.fromkeys(_MANY, _INDUCTOR)).items():
        if (name := option.removesuffix("*")) not in own:
            _answer(parser, name, takes_value=option.endswith("*"), answer=answer)


def check_values(arguments: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Answer values that TorchBench has and that mean nothing here; ends the process with status 2."""
    for destination, answers in VALUES.items():
        for word in str(getattr(arguments, destination, None) or "").split(","):
            if word in answers:
                _refuse(parser, f"--{destination} {word}", answers[word])


def _understand(parser: argparse.ArgumentParser, option: str, meaning: Meaning) -> None:
    common: Mapping[str, Any] = {"dest": meaning.destination, "help": argparse.SUPPRESS, "default": argparse.SUPPRESS}
    if meaning.value is None:
        parser.add_argument(option, action=_Dynamo if option == "--torchdynamo" else "store", **common)
    elif isinstance(meaning.value, tuple):
        parser.add_argument(option, action="append_const", const=meaning.value[0], **common)
    else:
        parser.add_argument(option, action="store_const", const=meaning.value, **common)


def _answer(parser: argparse.ArgumentParser, option: str, *, takes_value: bool, answer: str) -> None:
    parser.add_argument(
        option,
        action=_Answer,
        nargs="?" if takes_value else 0,
        const=answer,
        dest=argparse.SUPPRESS,
        default=argparse.SUPPRESS,
        help=argparse.SUPPRESS,
    )


def _refuse(parser: argparse.ArgumentParser, what: str, answer: str) -> NoReturn:
    parser.error(f"{what} is not here: {answer}")


class _Answer(argparse.Action):
    """An option that is not here; `const` has the answer."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        _refuse(parser, option or "", self.const)


class _Dynamo(argparse.Action):
    """`--torchdynamo BACKEND`. `eager` there means Dynamo's graphs without a compiler, and here no Dynamo."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if values == "eager":
            _refuse(parser, f"{option} eager", "eager is without Dynamo; use --backend aot_eager, which has its graphs")
        setattr(namespace, self.dest, values)


class _OldMode(argparse.Action):
    """`-m eager` and `-m jit`, which TorchBench had; in some of its userbenchmarks `-m` names models."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None
    ) -> None:
        if values == "jit":
            _refuse(parser, "-m jit", "use --backend torchscript")
        if values != "eager":
            _refuse(parser, f"-m {values}", _MODELS)
        setattr(namespace, self.dest, "eager")
