"""Where the time of a check goes, by its runs; and how long its run in fp64 takes with and without cuDNN.

    python benchmarks/check_parts.py resnet50 timm:nfnet_l0 -d cuda -t train --precision tf32 --references

A check runs eager several times, the case's backend once, and a reference in fp64. Printed are the seconds of each kind
of run, with building the model and taking the results to the host, and of what is left; each run is printed as it ends,
too, so that a check that takes very long shows where. With --references, the reference runs twice more: with cuDNN's
search for the fastest algorithm, and without cuDNN. Last comes how far their results are from those of the reference
that judged, the worst over all tensors.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor

from torchzoo.case import Backend, Case, Mode, Precision
from torchzoo.measure.check.check_case import check_case
from torchzoo.measure.check.runs import Runs
from torchzoo.measure.process_group import use_device
from torchzoo.run.plan import parse_backend
from torchzoo.zoo.catalog import find_models, load_model_class

KINDS = ("eager", "eager_inspected", "native", "reference", "perturbed", "perturbed_backward", "candidate")
OTHERWISE = {"cuDNN's search": {"enabled": True, "benchmark": True}, "no cuDNN": {"enabled": False}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("-d", "--device", default="cuda")
    parser.add_argument("-t", "--mode", type=Mode, default=Mode.TRAIN)
    parser.add_argument("--precision", type=Precision, default=Precision.FP32)
    parser.add_argument("--backend", type=parse_backend, default=Backend("inductor"))
    parser.add_argument("--bs", type=int, help="default: the model's own")
    parser.add_argument("--references", action="store_true", help="time the reference with and without cuDNN, too")
    arguments = parser.parse_args()
    for name in arguments.models:
        measure(name, arguments)


def measure(name: str, arguments: argparse.Namespace) -> None:
    """Check one case, and print where the time went."""
    spec = find_models().spec(name)
    case = Case(
        model=name,
        mode=arguments.mode,
        device=arguments.device,
        backend=arguments.backend,
        precision=arguments.precision,
        batch_size=arguments.bs or spec.batch_size[arguments.mode],
    )
    device = use_device(arguments.device, None)
    model_class = load_model_class(spec)
    spent: dict[str, list[float]] = defaultdict(list)
    errors: dict[str, float] = {}
    own = {kind: getattr(Runs, kind) for kind in KINDS}
    for kind, method in own.items():
        setattr(Runs, kind, timed(kind, method, spent))
    if arguments.references:
        Runs.reference = with_others(Runs.reference, own["reference"], spent, errors)  # type: ignore[method-assign]
    began_s = time.perf_counter()
    try:
        found = check_case(case, spec, model_class, device)
    finally:
        for kind, method in own.items():
            setattr(Runs, kind, method)
    whole_s = time.perf_counter() - began_s
    print(f"{case.label()}: {found.status} {found.reason}")
    for kind, times in spent.items():
        print(f"  {kind:20} {sum(times):8.1f} s in {len(times)}")
    print(f"  {'the rest':20} {whole_s - sum(map(sum, spent.values())):8.1f} s")
    for kind, error in errors.items():
        print(f"  {kind}: off by {error:.2g}")


def timed(kind: str, method: Callable[..., Any], spent: dict[str, list[float]]) -> Callable[..., Any]:
    @wraps(method)
    def run(*arguments: Any, **options: Any) -> Any:
        began_s = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            spent[kind].append(time.perf_counter() - began_s)
            print(f"  {kind}: {spent[kind][-1]:.1f} s", flush=True)

    return run


def with_others(
    judging: Callable[..., Any], own: Callable[..., Any], spent: dict[str, list[float]], errors: dict[str, float]
) -> Callable[..., Any]:
    """The reference that judges; the first time, with the others after it."""

    @wraps(judging)
    def run(*arguments: Any, **options: Any) -> Any:
        found = judging(*arguments, **options)
        for kind, flags in OTHERWISE.items() if not errors else ():
            with torch.backends.cudnn.flags(**flags):
                other = timed(f"reference, {kind}", own, spent)(*arguments, **options)
            errors[kind] = max(worst(a.values, b.values) for a, b in zip(other, found, strict=True))
        return found

    return run


def worst(values: dict[Any, dict[str, Any]], expected: dict[Any, dict[str, Any]]) -> float:
    """The largest distance of two tensors over the norm of the expected one."""
    found = 0.0
    for kind, tensors in expected.items():
        for name, tensor in tensors.items():
            if isinstance(tensor, Tensor) and tensor.is_floating_point() and not tensor.is_sparse and tensor.norm() > 0:
                found = max(found, float((values[kind][name] - tensor).norm() / tensor.norm()))
    return found


if __name__ == "__main__":
    main()
