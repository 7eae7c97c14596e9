"""Time the first result of a fresh process with cold caches, warm caches, or a package.

Each public function here runs in a process of its own (`torchzoo.run.fresh`). Slow imports are inside functions, so
that they are timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from torchzoo.backends import NotRunnable
from torchzoo.measure.fresh_turns import CacheCounts, FirstResult, Fresh, Packages
from torchzoo.settings import Stage

if TYPE_CHECKING:
    from torchzoo.measure.clock import DeviceClock
    from torchzoo.model import Model

#: The file of `torch.compiler.save_cache_artifacts`, in the folder of the case.
ARTIFACTS = "artifacts.bin"
#: The folder of AOTInductor's packages in the folder of the case, with a folder for each network, named by its number.
PACKAGES = "packages"

Step = Callable[[], Any]
#: Prepare the first step; return the step, and the size of what was loaded.
Loader = Callable[["Model", Fresh], tuple[Step, int | None]]


def eager(fresh: Fresh) -> FirstResult:
    """Time eager, which compiles nothing. After the first result, one step shows that the precision is reached."""
    from torchzoo.measure.precision import check_precision, inspect_step

    found, model = _first_result(fresh, _in_eager)
    check_precision(
        model, fresh.ask.case.precision, fresh.ask.spec.native_dtype, inspect_step(model, model.measured_step)
    )
    return found


def compiled(fresh: Fresh) -> FirstResult:
    """Time a first step that compiles, with what the folder of caches holds."""
    return _first_result(fresh, _compiled)[0]


def compiled_with_artifacts(fresh: Fresh) -> FirstResult:
    """Time a first step that compiles after the caches were filled from the file that `fill_caches` wrote."""
    return _first_result(fresh, _with_artifacts)[0]


def packaged(fresh: Fresh) -> FirstResult:
    """Time AOTInductor's packages. The model is built too: its step calls them, and its batch is their input."""
    return _first_result(fresh, _with_packages)[0]


def fill_caches(fresh: Fresh) -> FirstResult:
    """Compile into the folder of caches, then write all that was cached into one file.

    Raises:
        NotRunnable: nothing was compiled that could be cached.
    """
    import torch

    found, _ = _first_result(fresh, _compiled)
    saved = torch.compiler.save_cache_artifacts()
    if saved is None:
        raise NotRunnable("nothing was compiled that PyTorch can cache")
    (Path(fresh.ask.folder) / ARTIFACTS).write_bytes(saved[0])
    return msgspec.structs.replace(found, artifact_bytes=len(saved[0]))


def package(fresh: Fresh) -> Packages:
    """Make AOTInductor's packages of the networks that the step calls.

    Raises:
        NotRunnable: the step calls no network, or one of them with inputs of several sizes or with other numbers.
    """
    import torch

    from torchzoo.backends.aoti import make_package
    from torchzoo.measure.precision import inspect_step

    built = _built(fresh)
    fresh.tell(Stage.COMPILE)
    calls = inspect_step(built.model, built.model.measured_step).take_calls()
    if not calls:
        raise NotRunnable("the step calls none of its networks, so that there is nothing to compile")
    began_s = time.perf_counter()
    networks = built.model.networks()
    for name, call in calls.items():
        call.require_alike(name, "aoti")
        path = _package_path(fresh, list(networks).index(name))
        path.parent.mkdir(parents=True)
        with torch.no_grad():
            make_package(networks[name], call, path)
    return Packages(compile_s=time.perf_counter() - began_s, package_bytes=_bytes_in(Path(fresh.ask.folder) / PACKAGES))


# --- the clock ---


@dataclass(frozen=True, kw_only=True)
class _Built:
    """A model that is ready to step, and the times of its import and its build."""

    model: Model
    clock: DeviceClock
    imported_ns: int
    built_ns: int


def _built(fresh: Fresh) -> _Built:
    ask = fresh.ask
    fresh.tell(Stage.IMPORT)
    from torchzoo.measure.clock import DeviceClock
    from torchzoo.measure.precision import apply_memory_format, apply_precision
    from torchzoo.measure.process_group import use_device
    from torchzoo.zoo.catalog import load_model_class

    model_class = load_model_class(ask.spec)
    imported_ns = time.monotonic_ns()
    fresh.tell(Stage.BUILD)
    device = use_device(ask.device, ask.settings.threads)
    clock = DeviceClock(device)
    assert ask.case.batch_size is not None
    model = model_class(ask.case.mode, device, ask.case.batch_size, seed=ask.case.seed)
    apply_precision(model, ask.case.precision)
    apply_memory_format(model, ask.case.memory_format)
    clock.synchronize()
    return _Built(model=model, clock=clock, imported_ns=imported_ns, built_ns=time.monotonic_ns())


def _first_result(fresh: Fresh, load: Loader) -> tuple[FirstResult, Model]:
    """Import, build, load and take the first step. Then count, take two more steps, and time the second of these."""
    built, caches = _built(fresh), Path(fresh.ask.caches)
    model, clock = built.model, built.clock
    libraries = _libraries(caches)  # before the next part, so that no part includes this look
    fresh.tell(Stage.PREPARE)
    loading_ns = time.monotonic_ns()
    first_step, artifact_bytes = load(model, fresh)
    clock.synchronize()
    loaded_ns = time.monotonic_ns()
    fresh.tell(Stage.COMPILE)
    first_step()
    clock.synchronize()
    stepped_ns = time.monotonic_ns()

    from torchzoo.measure.latency import timed_step_s  # here, so that no timed part includes this import

    graphs, autograd_cache, inductor_cache = _counts()
    found = FirstResult(
        import_s=(built.imported_ns - fresh.began_ns) / 1e9,
        build_s=(built.built_ns - built.imported_ns) / 1e9,
        load_s=(loaded_ns - loading_ns) / 1e9,
        step_s=(stepped_ns - loaded_ns) / 1e9,
        later_step_s=[timed_step_s(model.measured_step, clock) for _ in range(2)][-1],
        graphs=graphs,
        autograd_cache=autograd_cache,
        inductor_cache=inductor_cache,
        libraries_built=len(_libraries(caches) - libraries),
        artifact_bytes=artifact_bytes,
        cache_bytes=_bytes_in(caches),
    )
    return found, model


def _bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _libraries(folder: Path) -> set[Path]:
    return set(folder.rglob("*.so"))


def _counts() -> tuple[int, CacheCounts, CacheCounts]:
    """Return the number of graphs, and their hits and misses in the caches of AOTAutograd and inductor."""
    import sys

    utils: Any = sys.modules.get("torch._dynamo.utils")
    if utils is None:  # nothing was compiled, and counting should import nothing
        return 0, CacheCounts(), CacheCounts()
    return (
        utils.counters["stats"]["unique_graphs"],
        _cache_counts(utils.counters["aot_autograd"], "autograd_cache"),
        _cache_counts(utils.counters["inductor"], "fxgraph_cache"),
    )


def _cache_counts(counters: Mapping[str, int], name: str) -> CacheCounts:
    return CacheCounts(
        hits=counters.get(f"{name}_hit", 0),
        misses=counters.get(f"{name}_miss", 0),
        bypasses=counters.get(f"{name}_bypass", 0),
    )


# --- what is loaded before the first step, and how this step begins ---


def _in_eager(model: Model, fresh: Fresh) -> tuple[Step, None]:
    del fresh
    return model.measured_step, None


def _compiled(model: Model, fresh: Fresh) -> tuple[Step, None]:
    def first_step() -> Any:
        from torchzoo.backends.dynamo import compile_network

        for network in model.networks().values():
            network._compiled_call_impl = compile_network(network, None, fresh.ask.case.backend)
        return model.measured_step()

    return first_step, None


def _with_artifacts(model: Model, fresh: Fresh) -> tuple[Step, int]:
    import torch

    content = (Path(fresh.ask.folder) / ARTIFACTS).read_bytes()
    torch.compiler.load_cache_artifacts(content)
    return _compiled(model, fresh)[0], len(content)


def _with_packages(model: Model, fresh: Fresh) -> tuple[Step, int]:
    from torchzoo.backends.aoti import load_package

    size = 0
    for number, network in enumerate(model.networks().values()):
        path = _package_path(fresh, number)
        if path.exists():
            size += path.stat().st_size
            network._compiled_call_impl = load_package(path)
    return model.measured_step, size


def _package_path(fresh: Fresh, number: int) -> Path:
    return Path(fresh.ask.folder) / PACKAGES / f"{number}" / "network.pt2"
