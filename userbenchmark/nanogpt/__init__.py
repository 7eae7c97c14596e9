"""nanoGPT with torch.compile: the time of an iteration, and the model FLOPs utilisation (MFU).

The question of a seminar report (Göttingen, 2024) about nanoGPT's two trainings (https://github.com/karpathy/nanoGPT):
GPT-2 124M in its whole iteration (batch 12, 1,024 tokens, 40 micro-batches) and the character model on Shakespeare.
Eager, CUDA graphs and inductor, under autocast at bfloat16.
"""

from __future__ import annotations

from pathlib import Path
from statistics import stdev
from typing import NamedTuple

from torchzoo.analysis.cases import CaseResult, case_results
from torchzoo.analysis.figures import CaseFigures
from torchzoo.analysis.means import mean
from torchzoo.analysis.peaks import datasheet, measured_file, measured_key, read_measured
from torchzoo.case import EAGER, Axes, Backend, Mode, Precision
from torchzoo.record import CANDIDATE_VARIANT, EAGER_VARIANT
from torchzoo.report import units
from torchzoo.report.beside import Row
from torchzoo.report.document import Block
from torchzoo.report.remarks import remarks_of
from torchzoo.run.request import RunRequest
from torchzoo.settings import Settings
from torchzoo.stats import Estimate, scaled
from torchzoo.store import Run
from torchzoo.studies.userbenchmark import Choice, beside_eager, measured, speedup_of

INDUCTOR, CUDAGRAPHS = Backend("inductor"), Backend("cudagraphs")
BACKENDS = (EAGER, CUDAGRAPHS, INDUCTOR)
TIME, UTILISATION = "Table 1, time of an iteration", "Table 2, model FLOPs utilisation"
BF16 = "bf16"

#: Peaks at bf16 in TFLOP/s by kind; None if not known.
Peaks = dict[str, float | None]


class Training(NamedTuple):
    """A training of nanoGPT: its name in the report, and the parameters of the formula of MFU."""

    name: str
    layers: int
    width: int
    length: int

    def operations(self, parameters: int, sequences: int) -> int:
        """The number of operations of an iteration over so many sequences, by nanoGPT's formula."""
        without_positions = parameters - self.length * self.width
        attention = 12 * self.layers * self.width * self.length
        return (6 * without_positions + attention) * self.length * sequences


TRAININGS = {
    "nanogpt_gpt2_iteration": Training("gpt2", layers=12, width=768, length=1024),
    "nanogpt_shakespeare": Training("shakespeare", layers=6, width=384, length=256),
}

READING = """## How to read it, and where it can mislead

The time of an iteration is the mean over all timed steps, with the device synchronised after each. Its interval is
Student's t over the steps of one process; another process can differ by more, as the rows of eager show. *Eager* comes
from a process of its own. *Eager, again* is the eager that took turns with CUDA graphs in another process: it is what
the report's rows "cudagraphs" were. The speedups in the table by backend are paired, so they are surer than quotients
of two means. The datasheet's peak holds at a clock that a device under full load may not keep. The measured peak is
that of large matrix products (`torchzoo doctor --peaks`). The peak is read from `peaks.yaml` in a run's folder, else
from this machine's own file: `TORCHZOO_CACHE=RUN torchzoo doctor --peaks` puts it into the folder, so that the document
can be written elsewhere.
"""


def plan(choice: Choice) -> RunRequest:
    """Training of both models, eager alone and with both backends, one case at a time."""
    return RunRequest(
        patterns=choice.patterns if choice.names_models else tuple(TRAININGS),
        suites=choice.suites,
        models_dirs=(str(Path(__file__).with_name("models").resolve()), *choice.models_dirs),
        axes=Axes(
            modes=(Mode.TRAIN,),
            devices=(),
            backends=BACKENDS,
            precisions=(Precision.AMP_BF16,),
            eager_alone=True,
        ),
        settings=Settings(time_limit_s=60.0, min_samples=20),
        jobs=1,
    )


def rows(run: Run) -> list[Row]:
    """Both tables: eager, CUDA graphs, eager in turns with them, inductor; MFU of the datasheet's and measured peak."""
    rows = []
    for result, figures in measured(run):
        training = TRAININGS.get(result.case.model)
        if training is None or result.case.mode is not Mode.TRAIN:
            continue
        backend, peaks = result.case.backend, _peaks(run, figures)
        variant = CANDIDATE_VARIANT if result.has_candidate else EAGER_VARIANT
        published = f"{training.name}, {backend}"
        beside = published if backend in BACKENDS else ""
        rows += _of_variant(training, figures, variant, peaks, figure=published, beside=beside, problem=result.reason)
        if backend == CUDAGRAPHS:
            again = f"{training.name}, eager, again (what the row cudagraphs was)"
            rows += _of_variant(training, figures, EAGER_VARIANT, peaks, figure=again, beside=published)
        elif backend == INDUCTOR:
            other = f"{training.name}, eager, in turns with inductor"
            rows += _of_variant(training, figures, EAGER_VARIANT, peaks, figure=other, beside=f"{training.name}, eager")
    return [*rows, *_without_figures(run)]


def _without_figures(run: Run) -> list[Row]:
    """Rows of published figures whose case ran here without a figure."""
    rows = []
    for result in case_results(run):
        training, backend = TRAININGS.get(result.case.model), result.case.backend
        if training is not None and result.figures is None and backend in BACKENDS:
            missing = f"{result.status}, see *Not measured*"
            figure = f"{training.name}, {backend}"
            rows += [Row(table=table, figure=figure, measured=None, missing=missing) for table in (TIME, UTILISATION)]
    return rows


def _of_variant(
    training: Training, figures: CaseFigures, variant: str, peaks: Peaks, *, figure: str, beside: str, problem: str = ""
) -> list[Row]:
    steps_s = [one for block in figures.measured.blocks if block.variant == variant for one in block.samples_s]
    time_s = mean(steps_s, of="samples", least=min(steps_s))
    deviation = stdev(steps_s) if len(steps_s) > 1 else None
    rows = [
        Row(
            table=TIME,
            figure=figure,
            beside=beside,
            measured=scaled(time_s, 1e3),
            deviation=None if deviation is None else 1e3 * deviation,
            note="; ".join(filter(None, (f"{len(steps_s)} iterations", problem))),
        )
    ]
    operations = training.operations(figures.measured.parameters, figures.measured.samples_per_step)
    for peak, tflop_per_s in peaks.items():
        name = f"{figure}, of the {peak} peak"
        if tflop_per_s is None:
            lacking = "torchzoo doctor --peaks" if peak == "measured" else "the datasheet of this device"
            rows.append(
                Row(table=UTILISATION, figure=name, beside=beside, measured=None, missing=f"it needs {lacking}")
            )
            continue
        share = Estimate(
            value=operations / time_s.value,
            low=operations / time_s.high,
            high=operations / time_s.low,
            confidence=time_s.confidence,
            count=time_s.count,
            of=time_s.of,
        )
        note = f"{tflop_per_s:,.1f} TFLOP/s"
        factor = 100 / (tflop_per_s * 1e12)
        rows.append(
            Row(
                table=UTILISATION,
                figure=name,
                beside=beside,
                measured=scaled(share, factor),
                deviation=factor * stdev(operations / one for one in steps_s) if len(steps_s) > 1 else None,
                note=note,
            )
        )
    return rows


def _peaks(run: Run, figures: CaseFigures) -> Peaks:
    """The datasheet's peak and the measured one, if known."""
    name, is_cpu = figures.measured.device_name, figures.record.case.device_type == "cpu"
    sheet = datasheet(name)
    key = measured_key(name, figures.measured.threads if is_cpu else None)
    files = (measured_file(), *(part.path / measured_file().name for part in run.parts))
    found = next((peaks for file in reversed(files) if (peaks := read_measured(file).get(key))), None)
    return {
        "datasheet's": None if sheet is None else sheet.best_tflop_per_s(BF16),
        "measured": None if found is None else found.tflop_per_s.get(BF16),
    }


def report(run: Run) -> list[Block]:
    """The report: a line for each model and backend, with the paired speedup and the skips of CUDA graphs."""
    headings = (
        "model", "backend", "median of an iteration", "speedup over eager", "graphs", "CUDA graphs skipped", "remarks",
    )  # fmt: skip
    return beside_eager(run, "By backend", headings, _line, READING)


def _line(result: CaseResult, figures: CaseFigures) -> list[str]:
    compilation = figures.shown.raw.compilation
    return [
        result.case.model,
        str(result.case.backend),
        units.latency(figures.shown.latency_s),
        speedup_of(result, figures),
        *(("", "") if compilation is None else (str(compilation.graphs), str(compilation.cudagraph_skips))),
        "; ".join(remarks_of(result.measured)),
    ]
