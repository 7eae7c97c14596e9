"""Read the folders of many runs as summaries: the speed of the run, the outcome and a few figures of each case.

A summary is kept in a hidden folder beside the runs, and made again when the files of its run change. Where that folder
can't be written, each question reads the runs themselves.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from torchzoo.analysis.cases import CaseResult, Status, case_results
from torchzoo.analysis.run_figures import Metric, RunFigure, run_figures
from torchzoo.analysis.series import IndexedRun, Series, SeriesPoint, SpeedSeries
from torchzoo.analysis.time_use import RunConditions, RunSpeed, run_speed
from torchzoo.case import AXES, Case
from torchzoo.errors import TorchzooError, attempt, one_line, written
from torchzoo.machine.differences import gpu_names, hardware_text, software_facts
from torchzoo.store import RECORD_FILES, Run, read_run, write_whole

#: The folder of the summaries, in the first folder that is searched for runs.
CACHE = ".history"
#: Raised when summaries change. Others are made again.
SCHEMA = 2
#: The files of folders that hold an A/B or a bisection.
EXPERIMENTS = frozenset({"ab.json", "bisect.json"})

#: The models, the values of axes (as texts) and the machines that are wanted; None or no entry: all.
Wanted = Mapping[str, Sequence[str] | None]


class HistoryError(TorchzooError):
    """A question over many runs has no answer. The message is one line that says what to do."""


class CaseSummary(msgspec.Struct, frozen=True, array_like=True):
    """A case of a run on one kind of machine. Figures: of a case that passed."""

    case: Case
    machine: str
    status: Status
    reason: str
    figures: tuple[RunFigure, ...]


class RunSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A run, or the reason why its folder can't be read."""

    schema: int = 0
    stamp: str  # `files_stamp` from before the folder was read
    problem: str = ""  # why it can't be read, or what of it can't
    run: IndexedRun | None = None
    speed: RunSpeed | None = None  # of a whole run
    by_model: dict[str, msgspec.Raw] = {}  # `CaseSummary` in MessagePack, read only where a model is asked for

    def cases(self, models: Sequence[str] | None = None) -> Iterator[CaseSummary]:
        """Yield the cases of some models, or of all."""
        for model in self.by_model if models is None else models:
            if model in self.by_model:
                yield from _cases.decode(self.by_model[model])


_cases = msgspec.msgpack.Decoder(tuple[CaseSummary, ...])
_summaries = msgspec.msgpack.Decoder(RunSummary)


class History(msgspec.Struct, frozen=True, kw_only=True):
    """The runs below some folders."""

    summaries: dict[str, RunSummary]  # by path, those that could be read, in the order of time
    problems: dict[str, str] = {}  # by folder, why it or a part of it can't be read

    @property
    def runs(self) -> list[IndexedRun]:
        return [one.run for one in self.summaries.values() if one.run is not None]

    @property
    def models(self) -> list[str]:
        return sorted({model for one in self.summaries.values() for model in one.by_model})

    def series(self, wanted: Wanted | None = None, metrics: Sequence[Metric] = tuple(Metric)) -> list[Series]:
        """Return the series of the wanted cases, in the order of the cases and then of the metrics.

        A point stands for each run in which the case has a result on that machine. A case that never passed has a
        series of the first wanted metric, without figures.
        """
        wanted = wanted or {}
        points: dict[tuple[Case, str], list[tuple[IndexedRun, CaseSummary]]] = {}
        for summary in self.summaries.values():
            for one in summary.cases(wanted.get("model")):
                if summary.run is not None and _matches(one, wanted):
                    points.setdefault((one.case, one.machine), []).append((summary.run, one))
        found: list[Series] = []
        for (case, machine), some in sorted(points.items(), key=lambda item: (*_order(item[0][0]), item[0][1])):
            found += _series_of(case, machine, some, metrics)
        return found

    def speeds(self) -> list[SpeedSeries]:
        """Return the speeds of all whole runs, those of the latest run last."""
        points: dict[tuple[str, RunConditions], list[tuple[IndexedRun, RunSpeed]]] = {}
        for one in self.summaries.values():
            if one.run is not None and one.speed is not None:
                points.setdefault((one.run.hardware, one.speed.conditions), []).append((one.run, one.speed))
        found = [
            SpeedSeries(machine=machine, conditions=conditions, points=tuple(some))
            for (machine, conditions), some in points.items()
        ]
        return sorted(found, key=lambda series: series.points[-1][0].created_at)


def _series_of(
    case: Case, machine: str, some: Sequence[tuple[IndexedRun, CaseSummary]], metrics: Sequence[Metric]
) -> Iterator[Series]:
    figures = [{(figure.metric, figure.basis): figure for figure in one.figures} for _, one in some]
    kinds = {kind for of_run in figures for kind in of_run if kind[0] in metrics} or {(metrics[0], "")}
    for metric, basis in sorted(kinds, key=lambda kind: ([*Metric].index(kind[0]), kind[1])):
        points = tuple(
            SeriesPoint(run=run, status=one.status, reason=one.reason, figure=of_run.get((metric, basis)))
            for (run, one), of_run in zip(some, figures, strict=True)
        )
        yield Series(case=case, machine=machine, metric=metric, basis=basis, points=points)


def _matches(one: CaseSummary, wanted: Wanted) -> bool:
    texts = {axis.name: axis.text(one.case) for axis in AXES} | {"machine": one.machine}
    return all((some := wanted.get(name)) is None or text in some for name, text in texts.items())


def _order(case: Case) -> tuple[str | int, ...]:
    return (case.model, *(axis.of(case) or 0 if axis.kind is int else axis.text(case) for axis in AXES))


# --- reading ---


def read_history(folders: Sequence[Path]) -> History:
    """Read the runs below some folders. Summaries of runs that did not change are taken from the first folder.

    A folder that can't be read becomes a line in `problems`, and does not stop the others.
    """
    problems: dict[str, str] = {}
    roots = [folder.resolve() for folder in folders]
    paths = {written(str(path)): path for root in roots for path in run_folders(root, problems)}
    cache = roots[0] / CACHE
    kept = set(cache.glob("*.msgpack"))
    found = {name: _summary_in(summary_file(cache, name), path) for name, path in paths.items()}
    problems |= {name: one.problem for name, one in found.items() if one.problem}
    for file in kept - {summary_file(cache, name) for name in paths}:  # their runs are gone
        with contextlib.suppress(OSError):
            file.unlink()
    in_order = sorted((one.run.created_at, name) for name, one in found.items() if one.run is not None)
    return History(summaries={name: found[name] for _, name in in_order}, problems=problems)


def summary_file(cache: Path, name: str) -> Path:
    """Return the file for the summary of the run whose path is `name`."""
    return cache / f"{hashlib.sha1(name.encode(), usedforsecurity=False).hexdigest()}.msgpack"


def _summary_in(file: Path, path: Path) -> RunSummary:
    """Return the summary of the run at `path`, from its file if that is of today's schema and files."""
    stamp = files_stamp(path)  # before reading: later additions are read by the next question
    kept = attempt(lambda: _summaries.decode(file.read_bytes()))
    if isinstance(kept, RunSummary) and (kept.schema, kept.stamp) == (SCHEMA, stamp):
        return kept
    summary = attempt(lambda: _summary(read_run(path), stamp))
    if isinstance(summary, Exception):
        summary = RunSummary(schema=SCHEMA, stamp=stamp, problem=one_line(summary))
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        write_whole(file, msgspec.msgpack.encode(summary))
    return summary


def _summary(run: Run, stamp: str) -> RunSummary:
    manifest = run.manifest
    by_model: dict[str, list[CaseSummary]] = {}
    for result in case_results(run):
        machine, reason, figures = written(_machine_of(result)), written(result.reason), tuple(_figures(result))
        by_model.setdefault(written(result.case.model), []).append(
            CaseSummary(result.case, machine, result.status, reason, figures)
        )
    hardware = hardware_text(manifest, gpu_names(manifest) if manifest.environment.gpus else None)
    return RunSummary(
        schema=SCHEMA,
        stamp=stamp,
        problem=written(run.damage),
        run=IndexedRun(
            path=written(str(run.path)),
            created_at=datetime.fromisoformat(manifest.created_at).astimezone(UTC).isoformat(timespec="microseconds"),
            hardware=written(hardware),
            software={written(name): written(fact) for name, fact in software_facts(manifest).items()},
        ),
        speed=run_speed(run),
        by_model={model: encoded(some) for model, some in by_model.items()},
    )


def encoded(cases: Sequence[CaseSummary]) -> msgspec.Raw:
    """Return cases as `RunSummary.by_model` keeps them."""
    return msgspec.Raw(msgspec.msgpack.encode(cases))


def _figures(result: CaseResult) -> list[RunFigure]:
    """Return the figures of a case that passed, without times over eager's that the device bounds: they add nothing."""
    figures = run_figures(result.case, result.measured) if result.passed else []
    return [one for one in figures if not (one.metric is Metric.OVER_EAGER and one.is_device_bound)]


def _machine_of(result: CaseResult) -> str:
    """Return the kind of machine of one case: the device on which it ran, or the machine's GPUs if it never ran."""
    gpus = result.measured[0].device_name if result.measured else gpu_names(result.manifest)
    return hardware_text(result.manifest, None if result.case.device == "cpu" else gpus)


# --- folders ---


def run_folders(root: Path, problems: dict[str, str]) -> Iterator[Path]:
    """Yield the folders of runs at or below `root`, in the order of their names.

    Hidden folders are left out, and so are A/Bs and bisections below `root`: their runs measure other software. Folders
    that can't be listed become lines in `problems`.
    """
    if not root.is_dir():
        raise HistoryError(f"no folder {root}: name the folder that holds your runs")

    def note(error: OSError) -> None:
        problems[written(str(error.filename))] = error.strerror or str(error)

    for folder, below, files in os.walk(root, onerror=note):
        if "run.json" in files:
            below.clear()
            yield Path(folder)
        elif folder != str(root) and not EXPERIMENTS.isdisjoint(files):
            below.clear()
        below[:] = sorted(name for name in below if not name.startswith("."))


def files_stamp(path: Path) -> str:
    """Return the sizes and times of the files of a run, which change when the run does."""
    parts = []
    for name in (*RECORD_FILES, "run.json"):
        try:
            about = (path / name).stat()
            parts.append(f"{about.st_size}:{about.st_mtime_ns}")
        except OSError:
            parts.append("none")
    return " ".join(parts)
