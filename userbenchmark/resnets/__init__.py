"""timm's ResNets in training, with and without loading images: eager, TorchScript, inductor.

The question of a seminar report (Göttingen, 2024): what does torch.compile gain where timm's train.py
(https://github.com/huggingface/pytorch-image-models) trains ResNet-18 and ResNet-34? Its times include reading and
decoding the images. Here each network is measured twice: with a batch that is on the device, and with timm's loader.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import stdev

from torchzoo import stats
from torchzoo.analysis.cases import CaseResult
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.means import mean
from torchzoo.case import EAGER, Axes, Backend, Mode
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import units
from torchzoo.report.beside import Row
from torchzoo.report.document import Block, Heading, table
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, measured, not_measured, speedup_of
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

NETWORKS = ("resnet18", "resnet34")
BACKENDS = (EAGER, Backend("torchscript", "script"), Backend("inductor"))  # timm's train.py scripts the network
TABLE = "Table 3, time of an iteration"
LOADED = "_images"

READING = """## How to read it, and where it can mislead

The time of an iteration in the first table is the mean over all timed steps, with the device synchronised after each.
Its interval is Student's t over the steps, as if they were independent. Eager's time is that of a process of its own, a
backend's that of the steps in turns with eager.

*Images on the device*: the step is the computation alone. The medians and the paired speedup are those of blocks of
steps in turns with eager.

*Images loaded*: the step first takes a batch from timm's loader, which has five processes. The encoded images are in
memory, so a disk is no part of it. Where the loader is slower than the computation, about one step in five waits for
it, and the others find their batches ready. A median would leave the waits out. So this table has means, and the ratio
of the two means in place of a median of pairs. The interval of the ratio holds at 90%, since each mean's holds at 95%.

Eager and the backend share the loader. If it is the limit, each would take the same time alone. In turns the means
still differ by the difference of the computations: the loader goes on while the slower one computes, and the other one
waits less. (A simulation of five workers, with the order of turns by chance, found this: for computations of 30 and 20
ms, 162 and 151 ms in turns, and 160 ms for either alone.) So the ratio of the means does not tell how long an epoch
would take.
"""


def plan(choice: Choice) -> RunRequest:
    """Both networks with and without loading, one case at a time. Folders of the loading ones are written first."""
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
            eager_alone=True,
        ),
        # A mean with waits of every fifth step needs many steps. The limit has room for them at 0.18 s each.
        settings=Settings(time_limit_s=60.0, min_samples=160),
        jobs=1,
    )


def _write_folder(root: Path, network: str, spec: ModelSpec) -> None:
    """Write a model folder: `metadata.yaml`, `__init__.py` and a copy of loading.py."""
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
    """Rows of each network and backend for the published time: with images on the device, and loaded."""
    rows = []
    for result, figures in measured(run):
        network = result.case.model.removeprefix("timm_").removesuffix(LOADED)
        if network not in NETWORKS or result.case.mode is not Mode.TRAIN:
            continue
        steps_s = _steps_s(figures, CANDIDATE_VARIANT if result.has_candidate else EAGER_VARIANT)
        backend = result.case.backend
        published = f"{network}, {backend.name}" if backend in BACKENDS else ""
        rows.append(
            Row(
                table=TABLE,
                figure=f"{network}, {backend}, images {_images(result)}",
                beside=published,
                measured=mean(steps_s, of="samples", least=min(steps_s)),
                deviation=stdev(steps_s) if len(steps_s) > 1 else None,
                note="; ".join(filter(None, (_amount(result, len(steps_s)), result.reason))),
            )
        )
    return sorted(rows, key=lambda row: row.figure)


def _amount(result: CaseResult, steps: int) -> str:
    """The amount of data: `160 iterations at batch 128`."""
    return f"{steps} iteration{'' if steps == 1 else 's'} at batch {result.case.batch_size}"


def _steps_s(figures: CaseFigures, variant: str) -> list[float]:
    return [one for block in figures.measured.blocks if block.variant == variant for one in block.samples_s]


def _is_loaded(result: CaseResult) -> bool:
    return result.case.model.endswith(LOADED)


def _images(result: CaseResult) -> str:
    return "loaded" if _is_loaded(result) else "on the device"


def report(run: Run) -> list[Block | str]:
    """The report on each case with a backend: medians and paired speedups, or means if images are loaded."""
    found = [(result, figures) for result, figures in measured(run) if result.has_candidate]
    resident = [_medians(*one) for one in found if not _is_loaded(one[0])]
    loaded = [_means(*one) for one in found if _is_loaded(one[0])]
    lines: list[Block | str] = [] if found else ["No case of this run has a backend beside eager.", ""]
    if resident:
        headings = ("network", "backend", "eager", "backend's step", "speedup over eager", "graph breaks")
        lines += [Heading("In turns with eager, images on the device"), table(headings, resident)]
    if loaded:
        headings = ("network", "backend", "eager, mean", "backend's step, mean", "ratio of the means", "graph breaks")
        lines += [Heading("In turns with eager, images loaded"), table(headings, loaded)]
    return [*lines, READING, *not_measured(run)]


def _medians(result: CaseResult, figures: CaseFigures) -> list[str]:
    return [
        result.case.model,
        str(result.case.backend),
        units.latency(figures.eager.latency_s),
        units.latency(figures.shown.latency_s),
        speedup_of(result, figures),
        _graph_breaks(figures),
    ]


def _means(result: CaseResult, figures: CaseFigures) -> list[str]:
    steps_s = [_steps_s(figures, variant) for variant in (EAGER_VARIANT, CANDIDATE_VARIANT)]
    eager, backend = (mean(some, of="samples", least=min(some)) for some in steps_s)
    ratio = units.speedup(stats.quotient(eager, backend)) + ("" if result.passed else f" ({result.status})")
    means = map(units.latency, (eager, backend))
    return [result.case.model, str(result.case.backend), *means, ratio, _graph_breaks(figures)]


def _graph_breaks(figures: CaseFigures) -> str:
    compilation = figures.shown.raw.compilation
    return "" if compilation is None else str(compilation.break_count)
