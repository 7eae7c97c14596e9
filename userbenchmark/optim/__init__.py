"""What an optimizer's step costs over real models' parameters: for-loop, foreach, fused, capturable.

Adam and SGD with momentum, in the implementations that `torch.optim` offers, and the reset of gradients, which the
TorchBench paper (Hao et al., 2023, arXiv:2304.14226) found to be slow. `zero_grad` launched a kernel for each parameter
tensor, and a foreach kernel replaced it (https://github.com/pytorch/pytorch/pull/82777). A case's step is the
optimizer's work alone: the parameters have the shapes of a model of the zoo, and the gradients are given.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from torchzoo import stats
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.means import geomean
from torchzoo.case import EAGER, Axes, Mode
from torchzoo.record import Measured
from torchzoo.report import units
from torchzoo.report.document import Block, Heading, Table, table
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.store import Run, StoreError
from torchzoo.studies.userbenchmark import Choice, measured, not_measured
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.spec import ModelSpec

BASELINE = "for-loop"
PAIRS_FILE = "pairs.json"
DEFAULT_MODELS = (
    "resnet50",
    "densenet121",
    "timm_efficientnet",
    "yolov3",
    "hf_Bert",
    "hf_GPT2",
    "hf_T5",
    "dlrm",
    "demucs",
    "soft_actor_critic",
)

READING = """## How to read it, and where it can mislead

A step is the optimizer's work and nothing else, and the device is synchronised before and after it. In training, the
host may launch this work while the device still runs the backward pass. So time that is saved here is not always saved
there. Each implementation ran in a process of its own. The interval of a ratio is the quotient of two 95% intervals, so
it holds with a probability of at least 90%, and it does not include how much processes differ. The interval of a mean
is Student's t over models. The gradients are dense and the same in every step, and the learning rates are small: the
values do not change the work. In the group *zero_grad* the step also makes new gradients (a copy of given ones, as a
backward pass would), accumulates them and runs a foreach SGD. This part is the same for all three and brings the ratios
closer to 1. *Set to None* saves the zeroing and the addition.

## Beside the paper

The pull request that followed from the paper's finding (pytorch/pytorch#82777) reports a speedup of about 3 for
`zero_grad` alone on an A100. For whole training steps it reports 1.02 or more in 9 of 44 models, and 1.04 at most
(timm_efficientnet). A step here does more than `zero_grad` and less than a training step. So on a GPU its ratio should
be between those two.
"""


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """An implementation of a group's work. `base` is the class in step.py; `body` has its subclass's attributes."""

    group: str
    name: str
    base: str
    body: dict[str, str]  # attribute: Python source
    accelerator_only: str = ""  # reason why it can't run on the CPU


def _optimizer(group: str, name: str, optimizer: str, why: str = "", **options: Any) -> Implementation:
    body = {"optimizer_class": f"torch.optim.{optimizer}", "options": repr(options)}
    return Implementation(group=group, name=name, base="OptimizerStep", body=body, accelerator_only=why)


IMPLEMENTATIONS = (
    _optimizer("adam", BASELINE, "Adam", lr=1e-3, foreach=False, fused=False),
    _optimizer("adam", "foreach", "Adam", lr=1e-3, foreach=True),
    _optimizer("adam", "fused", "Adam", lr=1e-3, fused=True),
    _optimizer(
        "adam",
        "capturable",
        "Adam",
        "capturable keeps Adam's step counts on an accelerator for CUDA graphs; PyTorch refuses it on the CPU",
        lr=1e-3,
        foreach=True,
        capturable=True,
    ),
    _optimizer("sgd", BASELINE, "SGD", lr=1e-3, momentum=0.9, foreach=False, fused=False),
    _optimizer("sgd", "foreach", "SGD", lr=1e-3, momentum=0.9, foreach=True),
    _optimizer("sgd", "fused", "SGD", lr=1e-3, momentum=0.9, fused=True),
    *(
        Implementation(group="zero_grad", name=name, base="ZeroGradStep", body={"how": repr(how)})
        for name, how in ((BASELINE, "for_loop"), ("foreach", "foreach"), ("set to None", "set_to_none"))
    ),
)


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """The implementation and the parameters that a generated model folder measures."""

    group: str
    implementation: str
    source: str  # zoo model of the parameters


def plan(choice: Choice) -> RunRequest:
    """A model folder for each implementation and parameter set, written beside the run's records, and trained."""
    catalog = find_models(map(Path, choice.models_dirs))
    names = catalog.select(choice.patterns if choice.names_models else DEFAULT_MODELS, choice.suites)
    root = choice.folder / "models"
    pairs: dict[str, Pair] = {}
    for name in names:
        spec = catalog.spec(name)
        for one in IMPLEMENTATIONS:
            folder = f"{one.group}-{one.name.replace(' ', '-')}@{name}"
            pairs[folder] = Pair(group=one.group, implementation=one.name, source=name)
            write_folder(root / folder, one, spec)
    (root / PAIRS_FILE).write_bytes(msgspec.json.format(msgspec.json.encode(pairs), indent=1))
    return RunRequest(
        patterns=tuple(pairs),
        models_dirs=(str(root),),
        axes=Axes(modes=(Mode.TRAIN,), devices=(), backends=(EAGER,)),
        settings=Settings(time_limit_s=2.0),
    )


def write_folder(folder: Path, one: Implementation, spec: ModelSpec) -> None:
    """Write a model folder: `metadata.yaml`, `__init__.py` and a copy of step.py."""
    import yaml

    gib = 6 * 4 * spec.parameters / 2**30  # weights, gradients, Adam's two moments, foreach's temporaries
    skips: list[dict[str, Any]] = [{"mode": "eval", "reason": "an optimizer's step is training"}]
    if Mode.TRAIN not in spec.batch_size:
        why = next(rule.reason for rule in spec.skips if rule.holds_for_all(Mode.TRAIN))
        skips.append({"mode": "train", "reason": f"{spec.name} is not trained: {why}"})
    if one.accelerator_only:
        skips.append({"device": ["cpu"], "reason": one.accelerator_only})
    metadata = {
        "domain": spec.domain.value,
        "task": "optimizer_step",
        "paper": spec.paper,
        "source": f"torchzoo userbenchmark optim, over the parameters of {spec.name}",
        "requirements": list(spec.requirements),
        "parameters": spec.parameters,
        "batch_size": {"train": 1} if Mode.TRAIN in spec.batch_size else {},
        "smoke_batch_size": 1,
        "native_dtype": spec.native_dtype.value,
        "device_memory_gib": {"train": round(gib, 2)},
        "skips": skips,
    }
    lines = [
        f'"""{one.group}, {one.name}, over the parameters of {spec.name} (torchzoo userbenchmark optim, 2026)."""',
        "",
        "import torch",
        "",
        f"from .step import {one.base}",
        "",
        "",
        f"class Model({one.base}):",
        f"    source = {spec.folder!r}",
        *([f"    member = {spec.name.partition(':')[2]!r}"] if spec.collection else []),
        *(f"    {attribute} = {value}" for attribute, value in one.body.items()),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "metadata.yaml").write_text(yaml.safe_dump(metadata, sort_keys=False), encoding="utf-8")
    (folder / "__init__.py").write_text("\n".join(lines) + "\n", encoding="utf-8")
    shutil.copyfile(Path(__file__).with_name("step.py"), folder / "step.py")


def read_pairs(run: Run) -> dict[str, Pair]:
    """Read what each model folder of the run measures.

    Raises:
        StoreError: the run was not made by this userbenchmark.
    """
    path = run.path / "models" / PAIRS_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Pair])
    except OSError as error:
        raise StoreError(
            f"{run.path} was not made by `torchzoo userbenchmark optim`: no {path} ({error.strerror})"
        ) from error
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} can't be read: {error}") from error


Step = dict[str, dict[str, CaseFigures]]  # source model: implementation: figures


def report(run: Run) -> list[Block | str]:
    """The report: a table for each group, a line for each set of parameters, ratios to the for-loop, and means."""
    pairs = read_pairs(run)
    groups: dict[tuple[str, str], Step] = {}
    for result, figures in measured(run):
        pair = pairs.get(result.case.model)
        if pair is not None:
            group = groups.setdefault((pair.group, result.case.precision), {})
            group.setdefault(pair.source, {})[pair.implementation] = figures
    lines: list[Block | str] = []
    for (name, precision), steps in groups.items():
        order = [one.name for one in IMPLEMENTATIONS if one.group == name]
        at = "" if precision == "default" else f" at {precision}"
        lines += [Heading(f"{name}{at}: time of a step, and how many times faster than the {BASELINE}")]
        lines.append(_table(steps, order))
    if not groups:
        lines += ["No case of this run was measured yet.", ""]
    return [*lines, READING, *not_measured(run)]


def _table(steps: Step, order: Sequence[str]) -> Table:
    others = [name for name in order if name != BASELINE and any(name in outcomes for outcomes in steps.values())]
    headings = ["parameters of", "elements", "tensors", BASELINE, *others]
    rows = []
    for source, outcomes in sorted(steps.items(), key=lambda item: -_any(item[1]).samples_per_step):
        base = outcomes.get(BASELINE)
        row = [source, f"{_any(outcomes).parameters:,}", f"{_any(outcomes).samples_per_step:,}"]
        row.append(units.latency(base.eager.latency_s) if base else "not measured")
        row += [_cell(base, outcomes.get(name)) for name in others]
        rows.append(row)
    return table(headings, [*rows, ["geometric mean", "", "", "", *(_mean(steps, name) for name in others)]])


def _any(outcomes: dict[str, CaseFigures]) -> Measured:
    return next(iter(outcomes.values())).measured


def _cell(base: CaseFigures | None, other: CaseFigures | None) -> str:
    if other is None:
        return "not measured"
    step_s = other.eager.latency_s
    if base is None:
        return units.seconds(step_s.value)
    return f"{units.seconds(step_s.value)}, {units.speedup(stats.quotient(base.eager.latency_s, step_s))}"


def _mean(steps: Step, name: str) -> str:
    """The geometric mean over the sets of parameters on which both implementations were measured."""
    ratios = [
        [outcomes[BASELINE].eager.latency_s.value / outcomes[name].eager.latency_s.value]
        for outcomes in steps.values()
        if BASELINE in outcomes and name in outcomes
    ]
    models = "1 model" if len(ratios) == 1 else f"{len(ratios)} models"
    return f"{units.speedup(geomean(ratios))}, {models}" if ratios else ""
