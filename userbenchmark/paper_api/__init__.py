"""How much of PyTorch's API a set of models uses: the paper's 84 models, and all of torchzoo's, against MLPerf's.

The TorchBench paper (Hao et al., 2023, arXiv:2304.14226, section 1) says that its suite covers 2.3 times more of
PyTorch's API surface than MLPerf's PyTorch models. Here all models run one eager step in each of their modes, and what
the steps use is collected: public functions of `torch`, and operators of the dispatcher. The batches are the smallest
ones, because the surface does not depend on their size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from torchzoo.case import EAGER, Axes, Mode
from torchzoo.record import ApiSurface
from torchzoo.report import markdown
from torchzoo.report.beside import Row, exactly
from torchzoo.report.document import Block, Fold, Heading, Marked, Text, table
from torchzoo.run.plan import SMOKE
from torchzoo.run.request import RunRequest
from torchzoo.settings import Pass, Settings
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import ALL, Choice, by_domain, measured, not_measured
from torchzoo.zoo.suites import read_suite

SHOWS_TIMES = False  # what a step calls does not depend on how long it takes
LARGER, SMALLER = "torchbench", "mlperf"
ZOO = "torchzoo"  # all models of the run
KINDS = ("functions", "operators")
TABLE = "API coverage over MLPerf's models"

READING = """## How to read it, and where it can mislead

A function or operator counts once, however often it is called and with whatever arguments. This is coverage of names,
not of code paths, dtypes or shapes. The operators are those that the dispatcher saw on this device. Another device has
others (cuDNN's attention and RNNs, oneDNN's on the CPU), and a newer version of a library may call others for the same
model. MLPerf's set here is its PyTorch models of the closed division as torchzoo has them, and both sets run torchzoo's
steps. The paper counted on the original code and with its own definition of the surface. So its ratio can be compared
with those here, but it can't be reproduced exactly.
"""


def plan(choice: Choice) -> RunRequest:
    """One step of every model in every mode, at the smoke batch size. Timing takes hardly any time."""
    return RunRequest(
        patterns=choice.patterns if choice.names_models else ("all",),
        suites=choice.suites,
        models_dirs=choice.models_dirs,
        axes=Axes(modes=tuple(Mode), devices=(), backends=(EAGER,), batch_sizes=(SMOKE,)),
        settings=Settings(
            time_limit_s=0.01,
            min_time_s=0.0,
            min_samples=1,
            block_s=0.001,
            warmup_min_steps=1,
            warmup_max_steps=1,
            memory_steps=1,
            passes=(Pass.API,),
        ),
    )


class Surface:
    """The used names by kind: functions and operators."""

    def __init__(self, surfaces: Iterable[ApiSurface] = ()) -> None:
        self.names: dict[str, set[str]] = {kind: set() for kind in KINDS}
        for surface in surfaces:
            self.names["functions"].update(surface.functions)
            self.names["operators"].update(surface.operators)


def surfaces(run: Run, *modes: Mode) -> dict[str, list[ApiSurface]]:
    """The surfaces of the run by model, in all its modes or in the given ones."""
    found: dict[str, list[ApiSurface]] = defaultdict(list)
    for result, figures in measured(run):
        if figures.measured.api is not None and (not modes or result.case.mode in modes):
            found[result.case.model].append(figures.measured.api)
    return found


def _surface(of_model: dict[str, list[ApiSurface]], models: Iterable[str]) -> Surface:
    """The union of some models' surfaces."""
    return Surface(one for model in models for one in of_model.get(model, []))


def _sets(of_model: dict[str, list[ApiSurface]]) -> dict[str, Sequence[str]]:
    """The models of both suites, and of the whole run if it has more."""
    sets: dict[str, Sequence[str]] = {suite: read_suite(suite).models for suite in (LARGER, SMALLER)}
    has_more = not of_model.keys() <= {*sets[LARGER], *sets[SMALLER]}
    return sets | ({ZOO: tuple(of_model)} if has_more else {})


def rows(run: Run) -> list[Row]:
    """The numbers of names that the paper's models, and all of torchzoo's, use, over that of MLPerf's models.

    Ratios of counts have no intervals.
    """
    of_model = surfaces(run)
    sets = _sets(of_model)
    used = {name: _surface(of_model, models) for name, models in sets.items()}
    ran = {
        name: f"{sum(model in of_model for model in models)} of {len(models)} of {name}"
        for name, models in sets.items()
        if name != ZOO
    }
    ran[ZOO] = f"{len(of_model)} of {ZOO}"
    rows = []
    for name in (one for one in sets if one != SMALLER):
        for kind in KINDS:
            more, fewer = (len(used[one].names[kind]) for one in (name, SMALLER))
            rows.append(
                Row(
                    table=TABLE,
                    figure=kind if name == LARGER else f"{kind}, all of {name}",
                    beside="API surface",
                    measured=exactly(more / fewer) if more and fewer else None,
                    missing="one of the two sets has no model with a surface in this run",
                    note=f"models: {ran[name]}, {ran[SMALLER]}",
                )
            )
    return rows


def report(run: Run) -> list[Block | str]:
    """The report: both sets side by side, the names that each adds, the domains, and operators of one or two models."""
    of_model = surfaces(run)
    found = [(model, surface) for model, some in of_model.items() for surface in some]
    if not found:
        return ["No case of this run has an API surface: run it with `--api`.", "", *not_measured(run)]
    return [
        *_side_by_side(of_model),
        *_sensitivity(run, of_model),
        *_domains(run, found),
        *_rare(of_model),
        READING,
        *not_measured(run),
    ]


def _side_by_side(of_model: dict[str, list[ApiSurface]]) -> list[Block]:
    """The counts of each set, and the names in one set and not in the other."""
    sets = _sets(of_model)
    used = {name: _surface(of_model, models) for name, models in sets.items()}
    blocks: list[Block] = [Heading(f"{' and '.join(one for one in sets if one != SMALLER)} against {SMALLER}")]
    rows, without = [], []
    for name, models in sets.items():
        missing = [model for model in models if model not in of_model]
        rows.append([name, f"{len(models) - len(missing)} of {len(models)}", *_counts(used[name])])
        if missing:
            without.append(Text(f"Without a surface in this run, of {name}: {', '.join(missing)}."))
    blocks += [table(("set", "models that ran", *KINDS), rows), *without]
    pairs = [(LARGER, SMALLER), (SMALLER, LARGER)] + ([(ZOO, LARGER)] if ZOO in sets else [])
    for name, other in pairs:
        for kind in KINDS:
            added = sorted(used[name].names[kind] - used[other].names[kind])
            blocks.append(_folded(f"{len(added)} {kind} in {name} and not in {other}", added))
    return blocks


def _sensitivity(run: Run, of_model: dict[str, list[ApiSurface]]) -> list[Block]:
    """The ratio of the suites in one mode alone, and without each model of the smaller one; empty without a ratio."""
    larger, smaller = (read_suite(suite).models for suite in (LARGER, SMALLER))
    ways = [("as above", of_model, smaller)]
    ways += [(f"only {mode}", surfaces(run, mode), smaller) for mode in (Mode.TRAIN, Mode.EVAL)]
    for model in smaller:
        if model in of_model:
            others = tuple(other for other in smaller if other != model)
            ways.append((f"{SMALLER} without {model}", of_model, others))
    rows = []
    for name, found, fewer_models in ways:
        more, fewer = _surface(found, larger), _surface(found, fewer_models)
        counts = [(len(more.names[kind]), len(fewer.names[kind])) for kind in KINDS]
        if any(other for _, other in counts):
            rows.append([name, *(f"{one / other:.2f}" if other else "" for one, other in counts)])
    if not rows:
        return []
    about = f"How many times more {LARGER} uses than {SMALLER}, if the count is made in another way:"
    return [
        Heading(f"What the ratio depends on: the modes, and {SMALLER}'s models"),
        Text(about),
        table(("counted", *KINDS), rows),
    ]


def _counts(surface: Surface) -> list[str]:
    return [str(len(surface.names[kind])) for kind in KINDS]


def _folded(title: str, names: list[str]) -> Block:
    return Fold((Text(Marked(", ".join(map(markdown.code, names)))),), title) if names else Text(f"{title}.")


def _domains(run: Run, found: list[tuple[str, ApiSurface]]) -> list[Block]:
    """The counts by domain, and the number of names that no other domain uses."""
    grouped = {domain: Surface(ones) for domain, ones in by_domain(run, found).items()}
    models = {domain: len(set(names)) for domain, names in by_domain(run, [(name, name) for name, _ in found]).items()}
    rows = []
    for domain, surface in grouped.items():
        row = [domain, str(models[domain])]
        for kind in KINDS:
            others = (other.names[kind] for name, other in grouped.items() if name not in (domain, ALL))
            alone = "" if domain == ALL else str(len(surface.names[kind].difference(*others)))
            row += [str(len(surface.names[kind])), alone]
        rows.append(row)
    headings = ["domain", "models", *(heading for kind in KINDS for heading in (kind, "in no other domain"))]
    return [Heading("Domains"), table(headings, rows)]


def _rare(of_model: dict[str, list[ApiSurface]]) -> list[Block]:
    """The operators that only one or two models use. A smaller set would lose these first."""
    used_by: dict[str, list[str]] = defaultdict(list)
    for model, surfaces in of_model.items():
        for operator in Surface(surfaces).names["operators"]:
            used_by[operator].append(model)
    rare = sorted((operator, models) for operator, models in used_by.items() if len(models) <= 2)
    rows = [(operator, ", ".join(sorted(models))) for operator, models in rare]
    heading = Heading(f"Operators that only one or two models use: {len(rare)} of {len(used_by)}")
    return [heading, *([table(("operator", "models"), rows)] if rows else [])]
