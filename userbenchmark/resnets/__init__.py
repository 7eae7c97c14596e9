"""timm's ResNets in training, with and without loading images: eager, TorchScript, inductor.

The question of a seminar report (Göttingen, 2024): what does torch.compile gain where timm's train.py
(https://github.com/huggingface/pytorch-image-models) trains ResNet-18 and ResNet-34? Its times include reading and
decoding the images. Here each network is measured twice: with a batch that is on the device, and with timm's loader.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import stdev

from torchzoo.analysis.bootstrap import mean
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures
from torchzoo.case import EAGER, Backend, Mode
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import units
from torchzoo.report.beside import Row
from torchzoo.run.plan import Axes
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import Run
from torchzoo.userbenchmark import Choice, beside_eager, measured, speedup_of
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

NETWORKS = ("resnet18", "resnet34")
BACKENDS = (EAGER, Backend("torchscript"), Backend("inductor"))
TABLE = "Table 3, time of an iteration"
LOADED = "_images"

READING = """## How to read it, and where it can mislead

The time of an iteration is the mean over all timed steps, with the device synchronised after each. Its interval is a
bootstrap over the steps. *Images on the device*: the step is the computation alone. *Images loaded*: the step first
takes a batch from timm's loader with four processes, so it takes as long as the slower of the two. Eager and the
candidate share the loader and take turns. A loader that runs ahead while another variant is slow fills its queue of a
few batches, which the next block of steps then uses: where the loader is the limit, compare the means, not the
speedups. The encoded images are in memory, so a disk is no part of it.
"""


def plan(choice: Choice) -> RunRequest:
    """Both networks with and without loading, one case at a time. The folders of the loading ones are written here."""
    root, catalog = choice.folder / "models", find_models()
    for network in NETWORKS:
        _write_folder(root, network, catalog.spec(f"timm_{network}"))
    names = tuple(f"timm_{network}{ending}" for network in NETWORKS for ending in ("", LOADED))
    return RunRequest(
        patterns=choice.patterns if choice.names_models else names,
        suites=choice.suites,
        models_dirs=(str(root), *choice.models_dirs),
        axes=Axes(
            modes=(Mode.TRAIN,),
            devices=(),
            backends=BACKENDS,
        ),
        settings=Settings(time_limit_s=60.0, min_samples=30),
        jobs=1,
    )


def _write_folder(root: Path, network: str, spec: ModelSpec) -> None:
    """A model folder like any other: `metadata.yaml`, `__init__.py` and a copy of loading.py."""
    import yaml

    metadata = {
        "domain": spec.domain.value,
        "task": spec.task,
        "paper": spec.paper,
        "source": "torchzoo study resnets, after timm's train.py",
        "requirements": list(spec.requirements),
        "parameters": spec.parameters,
        "batch_size": {"train": spec.batch_size[Mode.TRAIN]},
        "smoke_batch_size": spec.smoke_batch_size,
        "skips": [{"mode": "eval", "reason": "the report has training alone"}],
    }
    lines = [
        f'"""{network} (He et al., 2016, arXiv:1512.03385), trained with timm\'s loader (study resnets, 2026)."""',
        "",
        "from .loading import LoadingClassifier",
        "",
        "",
        "class Model(LoadingClassifier):",
        f'    architecture = "{network}"',
    ]
    folder = root / f"timm_{network}{LOADED}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata, sort_keys=False), encoding="utf-8")
    (folder / "__init__.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name("loading.py"), folder / "loading.py")


def rows(run: Run) -> list[Row]:
    """Each network and backend twice beside the published time: with images on the device, and loaded."""
    rows = []
    for result, figures in measured(run):
        network = result.case.model.removeprefix("timm_").removesuffix(LOADED)
        if network not in NETWORKS or result.case.mode is not Mode.TRAIN:
            continue
        variant = CANDIDATE_VARIANT if result.has_candidate else EAGER_VARIANT
        steps_s = [one for block in figures.measured.blocks if block.variant == variant for one in block.samples_s]
        backend = result.case.backend
        published = f"{network}, {backend.name}" if backend in BACKENDS else ""
        rows.append(
            Row(
                table=TABLE,
                figure=f"{network}, {backend}, images {_images(result)}",
                beside=published,
                measured=mean(steps_s),
                deviation=stdev(steps_s) if len(steps_s) > 1 else None,
                note="; ".join(filter(None, (f"{len(steps_s)} iterations", result.reason))),
            )
        )
    return sorted(rows, key=lambda row: row.figure)


def _images(result: CaseResult) -> str:
    return "loaded" if result.case.model.endswith(LOADED) else "on the device"


def report(run: Run) -> list[str]:
    """A line for each case with a backend: the medians in turns, and the paired speedup."""
    headings = ("network", "images", "backend", "eager", "backend's step", "speedup over eager", "graph breaks")
    return beside_eager(run, "In turns with eager", headings, _line, READING)


def _line(result: CaseResult, figures: CaseFigures) -> list[str]:
    compilation = figures.shown.raw.compilation
    return [
        result.case.model,
        _images(result),
        str(result.case.backend),
        units.latency(figures.eager.latency_s),
        units.latency(figures.shown.latency_s),
        speedup_of(result, figures),
        "" if compilation is None else str(compilation.break_count),
    ]
