"""Reports of userbenchmarks: known figures from synthetic records, and foreign text that stays text."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from benchmark_runs import NASTY, OF_RUNS, STUDIES, figures, module, report, run_of, table
from syrupy.assertion import SnapshotAssertion

from examples import INDUCTOR, by_itself, manifest, measured, variant_result
from examples import record as example
from torchzoo.analysis.cases import read_report_data
from torchzoo.case import EAGER, Backend, Domain, Mode
from torchzoo.commands.report import FORMATS
from torchzoo.record import (
    ApiSurface,
    Block,
    Breakdown,
    Check,
    CheckStatus,
    Compilation,
    Failed,
    FailureKind,
    Flops,
    Measured,
    Memory,
    Record,
    StepTime,
)
from torchzoo.settings import Stage
from torchzoo.stats import without_interval
from torchzoo.store import RunStore


def broken_down(active_s: float, movement_s: float, **changes: Any) -> Measured:
    steps = (StepTime(0.5, active_s / 2, movement_s / 2), StepTime(0.5, active_s / 2, movement_s / 2))
    return measured(variants={"eager": variant_result(breakdown=Breakdown(steps=steps, kernels=()))}, **changes)


def test_breakdown_gives_shares_per_model_and_means_per_domain(snapshot: SnapshotAssertion) -> None:
    run = run_of(
        [
            example(broken_down(0.9, 0.05), model="nlp_one", mode=Mode.TRAIN),
            example(broken_down(0.5, 0.15), model="nlp_two", mode=Mode.TRAIN),
            example(broken_down(0.1, 0.0), model="speech", mode=Mode.TRAIN),
            example(broken_down(0.2, 0.4), model="speech"),
        ]
    )
    text = report("paper_breakdown", run)
    assert figures(text) == snapshot


def test_breakdown_bars_are_as_long_as_the_shares() -> None:
    breakdown = module("paper_breakdown")
    assert breakdown.bar(breakdown.Shares(0.4, 0.2, 0.4)) == "█" * 10 + "▒" * 5 + "·" * 10
    assert len(breakdown.bar(breakdown.Shares(0.333, 0.333, 0.334))) == breakdown.BAR_WIDTH


def test_breakdown_has_rates_and_says_what_the_profiler_could_not_tell() -> None:
    flops = Flops(total=10**12, by_operator={})
    problem = measured(
        variants={"eager": variant_result(breakdown=Breakdown(steps=(), kernels=(), problem="events were lost"))}
    )
    text = report(
        "paper_breakdown", run_of([example(broken_down(0.5, 0, flops=flops)), example(problem, model="speech")])
    )
    (row,) = table(text, "model")
    assert float(row[-1]) == pytest.approx(1 / 0.1005, rel=1e-2)  # TFLOP/s at 100.5 ms
    assert "events were lost" in text


def compared_with(ratio: float, host: float = 1.0, device: float = 1.0, **changes: Any) -> Measured:
    """Eager takes 0.2 s and 1 GiB of each memory, the candidate, alone, `ratio` times that time and so on."""
    quad = [("eager", 0.2), ("candidate", 0.2 * ratio), ("candidate", 0.2 * ratio), ("eager", 0.2)]
    memory = [
        Memory(host_peak_rss_bytes=round(factor * 2**30), device_peak_allocated_bytes=round(other * 2**30))
        for factor, other in ((1.0, 1.0), (host, device))
    ]
    return measured(
        blocks=tuple(Block(name, (time_s,)) for name, time_s in quad * 8),
        variants={
            "eager": variant_result(memory=memory[0]),
            "candidate": variant_result(
                memory=memory[0], alone=by_itself(memory=memory[1]), first_step_s=3.0, compilation=Compilation(graphs=1)
            ),
        },
        **changes,
    )


def test_compilers_gives_ratios_geometric_means_and_how_many_cases_they_count(snapshot: SnapshotAssertion) -> None:
    crashed = Failed(kind=FailureKind.ERROR, stage=Stage.COMPILE, message="no")
    wrong = Check(status=CheckStatus.INCORRECT, reason="outputs differ")
    run = run_of(
        [
            example(model="nlp_one"),  # eager alone is no candidate
            example(compared_with(0.5, 1.2, 0.8), model="nlp_one", backend=INDUCTOR),
            example(compared_with(2.0, 1.2, 0.8), model="nlp_two", backend=INDUCTOR),
            example(crashed, model="speech", backend=INDUCTOR),
            example(compared_with(0.01, check=wrong), model="tiny", backend=INDUCTOR),
        ]
    )
    text = report("paper_compilers", run)
    assert figures(text) == snapshot


def uneven(model: str, mode: Mode, quads: int) -> Record:
    """Eager and a candidate whose ratio is another one in each quad, with memory of the model's own."""
    random = Random(f"{model} {mode}")
    times = [(0.2, 0.2 * random.uniform(0.3, 1.3)) for _ in range(quads)]
    made = compared_with(1.0, host=random.uniform(0.9, 1.4), device=random.uniform(0.5, 1.1))
    blocks = tuple(
        Block(name, (eager_s if name == "eager" else candidate_s,))
        for eager_s, candidate_s in times
        for name in ("eager", "candidate", "candidate", "eager")
    )
    return example(msgspec.structs.replace(made, blocks=blocks), model=model, mode=mode, backend=INDUCTOR)


def test_compilers_and_report_have_the_same_t_cm_and_gm_for_each_domain_and_mode(tmp_path: Path) -> None:
    models = {"nlp_one": 2, "nlp_two": 8, "speech": 5, "of_no_domain": 6}  # an even number of quads: a median of two
    wrong = Check(status=CheckStatus.INCORRECT, reason="outputs differ")
    records = [uneven(model, mode, quads) for mode in Mode for model, quads in models.items()]
    records += [example(compared_with(0.01, check=wrong), model="tiny", mode=mode, backend=INDUCTOR) for mode in Mode]
    both_modes = {row[0]: row[1:] for row in table(report("paper_compilers", run_of(records)), "domain")}
    assert list(both_modes) == ["nlp", "speech", "all"]
    for place, mode in enumerate(Mode):
        path = tmp_path / mode
        of_mode = run_of([one for one in records if one.case.mode is mode], path)
        with RunStore(path) as store:
            store.begin(of_mode.manifest)
            for one in of_mode.records:
                store.append(one)
        data = read_report_data([path])
        markdown, document = io.StringIO(), io.StringIO()
        FORMATS["md"].write(data, markdown)
        FORMATS["json"].write(data, document)
        rows = {row[0].removeprefix("domain "): row for row in table(markdown.getvalue(), "group")}
        exact = {
            total["name"]: [total[f"{name}_ratio"] for name in ("time", "host_memory", "device_memory")]
            for total in json.loads(document.getvalue())["summary"]["sections"][0]["totals"]
        }
        for domain, cells in both_modes.items():
            ratios = exact[domain]
            assert rows[domain][-3:] == [f"{ratio['value']:.2f}" for ratio in ratios]
            found = [cell.partition(" (at")[0] for cell in cells[4 * place : 4 * place + 3]]
            assert found == [
                f"{ratio['value']:.3f} [{ratio['low']:.3f}, {ratio['high']:.3f}]"
                if ratio["low"] is not None
                else f"{ratio['value']:.2f} ({without_interval(1.0, ratio['count'], 'models').why_no_interval})"
                for ratio in ratios
            ]


def test_compilers_keeps_backends_apart_and_says_where_there_is_none() -> None:
    other = Backend("cudagraphs")
    run = run_of([example(compared_with(0.5), backend=INDUCTOR), example(compared_with(0.25), backend=other)])
    text = report("paper_compilers", run)
    assert "## inductor: means" in text
    assert "## cudagraphs: means" in text
    assert "No case of this run has a backend" in report("paper_compilers", run_of([example()]))


def touching(functions: str, operators: str) -> Measured:
    return measured(api=ApiSurface(functions=tuple(functions.split()), operators=tuple(operators.split())))


def test_api_coverage_counts_unions_and_their_ratio(snapshot: SnapshotAssertion) -> None:
    run = run_of(
        [
            example(touching("relu", "aten::mm aten::relu"), model="resnet50"),  # of both sets
            example(touching("relu", "aten::mm_backward"), model="resnet50", mode=Mode.TRAIN),
            example(touching("linear stft", "aten::fft aten::mm aten::rare"), model="demucs"),
            example(touching("only_mlperf", "aten::conv3d"), model="unet3d"),
        ],
    )
    run = msgspec.structs.replace(
        run, manifest=msgspec.structs.replace(run.manifest, domains={"resnet50": Domain.NLP, "demucs": Domain.SPEECH})
    )
    text = report("paper_api", run)
    assert figures(text) == snapshot
    of_one_set = report("paper_api", run_of([example(touching("relu", "aten::mm"), model="demucs")]))
    assert "## What the ratio depends on" not in of_one_set  # a table without any figure


def test_compile_modes_has_eager_first_and_says_when_compiling_pays() -> None:
    quick = compared_with(0.5)  # 0.1 s won a step; the first step costs 20 s more
    run = run_of(
        [
            example(compared_with(1.1), backend=Backend("inductor", "max-autotune")),
            example(quick, backend=INDUCTOR),
            example(measured(), backend=EAGER),
        ],
    )
    rows = table(report("gpt2_modes", run), "backend")
    assert [row[0] for row in rows] == ["eager", "inductor:max-autotune", "inductor"]
    assert rows[2][3] == "20.5 s"
    assert rows[2][9] == "2.000x [2.000, 2.000]"
    assert rows[2][10] == "201 steps"
    assert rows[1][10] == "never, or not known"
    assert "### Where the time of a step goes" not in report("gpt2_modes", run)  # the device's time is not known
    alone = table(report("gpt2_modes", run_of([example(quick, backend=INDUCTOR)])), "backend")
    assert alone[0][0] == "eager (beside inductor)"


def test_compile_modes_warns_where_cases_shared_the_cores() -> None:
    settings = msgspec.structs.replace(manifest().settings, jobs=4)
    assert "4 cases prepared at once" in report("gpt2_modes", run_of([example()], settings=settings))
    assert "prepared at once" not in report("gpt2_modes", run_of([example()]))


@pytest.mark.parametrize("name", STUDIES)
def test_foreign_text_breaks_no_table(name: str) -> None:
    outcome = broken_down(0.5, 0.1, api=ApiSurface(functions=(NASTY,), operators=(NASTY,)))
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=NASTY)
    records = [
        example(outcome, model=NASTY),
        example(compared_with(0.5), model=NASTY, backend=INDUCTOR),
        example(failed, model=f"{NASTY}2"),
    ]
    text = report(name, run_of(records, command=("torchzoo", NASTY)))
    assert not any(line.startswith("# heading") for line in text.splitlines())
    no_code = re.sub(r"^(`{3,})sh\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)
    assert "<i>" not in re.sub(r"(?<!\\)`[^`\n]*`", "", no_code)
    columns = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        bars = line.replace("\\|", "").count("|")
        assert bars == (columns or bars), line
        columns = bars


@pytest.mark.parametrize("name", [*OF_RUNS, *STUDIES])
def test_an_empty_or_partial_run_says_what_is_missing(name: str, tmp_path: Path) -> None:
    skipped = example(Failed(kind=FailureKind.TIMEOUT, stage=Stage.BUILD, message="too slow"))
    run = run_of([skipped], tmp_path)
    run = msgspec.structs.replace(
        run, manifest=msgspec.structs.replace(run.manifest, cases=(*run.manifest.cases, example(model="other").case))
    )
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "pairs.json").write_text("{}")
    text = report(name, run)
    assert "2 cases: 0 measured, 1 skipped or failed (at the end), 1 not run yet" in text
    assert "No case of this run" in text or "it needs two runs" in text
    assert "## Measured on" in text
    assert "a CPU, 2 cores" in text
