"""Userbenchmarks: plans resolve without torch, reports give known figures from synthetic records, a run for real."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import msgspec
import pytest
import yaml

from examples import INDUCTOR, ROOT, compared, manifest, measured, variant_result
from examples import record as example
from kept_runs import keep
from torchzoo import cli, userbenchmark
from torchzoo.analysis.cases import read_report_data
from torchzoo.case import EAGER, Backend, Domain, Mode, Precision
from torchzoo.commands.userbenchmark import overridden
from torchzoo.errors import UsageError
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
from torchzoo.report.formats import FORMATS
from torchzoo.settings import Pass, Stage
from torchzoo.store import Run, RunStore, StoreError, read_run
from torchzoo.userbenchmark import Choice, UserBenchmark, by_domain, document
from torchzoo.zoo.catalog import CatalogError, find_models, load_model_class
from torchzoo.zoo.folders import import_folder
from torchzoo.zoo.requirements import is_installed
from torchzoo.zoo.spec import read_spec
from user_models import make_folder

NAMES = ("api_coverage", "breakdown", "compile_modes", "compilers", "optim")
NASTY = "a|b<i>`\n# heading"


def module(name: str) -> ModuleType:
    userbenchmark.load(name)
    return sys.modules[f"torchzoo_userbenchmarks.{name}"]


def run_of(records: list[Record], path: Path = Path("/nowhere"), **changes: Any) -> Run:
    domains = {"nlp_one": Domain.NLP, "nlp_two": Domain.NLP, "speech": Domain.SPEECH}
    cases = tuple(record.case for record in records)
    return Run(path=path, manifest=manifest(cases=cases, domains=domains, **changes), records=tuple(records))


def report(name: str, run: Run) -> str:
    return document(userbenchmark.load(name), run)


def table(text: str, first_heading: str) -> list[list[str]]:
    """The rows of the first table whose first heading is that, split into cells."""
    lines = text.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first_heading} |"))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.replace("\\|", "¦").strip("|").split("|")])
    return rows


# --- finding and listing ---


def test_five_are_listed_with_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["userbenchmark"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(NAMES)
    assert all(len(line.split()) > 5 for line in lines)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["brakdown", "-o", "/tmp/x"], "did you mean breakdown?"),
        (["nothing_like_it"], "known: api_coverage, breakdown"),
        (["breakdown"], "-o DIR"),
        (["breakdown", "--from", "/no/such"], "no run in /no/such"),
        (["breakdown", "resnet18", "--from", "/no/such", "--bs", "2"], "leave out MODEL, --bs"),
        (["breakdown", "--resume", "/no/such", "-t", "eval"], "leave out --mode"),
        (["breakdown", "--retry-failed", "-o", "/tmp/x"], "goes with --resume"),
        (["-o", "/tmp/x"], "leave out --output"),
    ],
)
def test_wrong_usage_is_one_clear_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["userbenchmark", *arguments]) == cli.USAGE
    shown = capsys.readouterr()
    assert words in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""


def test_a_user_has_userbenchmarks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text('"""My question."""\n\n\ndef plan(choice): ...\n')
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path))
    assert userbenchmark.summaries()["mine"] == "My question."
    with pytest.raises(CatalogError, match="mine is no userbenchmark: it has no function report"):
        userbenchmark.load("mine")
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", "/no/such")
    with pytest.raises(CatalogError, match="no such userbenchmark folder"):
        userbenchmark.summaries()


#: Bodies of a user's userbenchmark, and what the command line says.
HARMFUL = {
    "raises": ("raise RuntimeError('no\\nway')", "raises is no userbenchmark: RuntimeError: no way ("),
    "exits": ("import sys; sys.exit(0)", "exits is no userbenchmark: SystemExit: 0 ("),
    "syntax": ("def (", "syntax is no userbenchmark: SyntaxError: "),
    "lacks": ("import no_such_library_7", "lacks is no userbenchmark: ModuleNotFoundError: No module named"),
    "nul": ("\0", "nul is no userbenchmark: "),
    "deep": ("x = " + "-" * 100_000 + "1", "deep is no userbenchmark: ImportError: "),
    "number": ("plan = report = 3", "number is no userbenchmark: it has no function plan"),
    "plan_raises": (
        "def plan(choice): raise RuntimeError('no')\ndef report(run): return []",
        "__init__.py, line 1)",
    ),
    "plan_exits": (
        "def plan(choice): raise SystemExit\ndef report(run): return []",
        "plan_exits: SystemExit: SystemExit (",
    ),
    "plan_none": (
        "def plan(choice): return None\ndef report(run): return []",
        "plan_none: it must return a RunRequest, and returned a NoneType",
    ),
}


@pytest.mark.parametrize("name", HARMFUL)
def test_what_a_users_own_code_does_is_one_clear_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    body, words = HARMFUL[name]
    (tmp_path / "mine" / name).mkdir(parents=True)
    (tmp_path / "mine" / name / "__init__.py").write_text(body)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path / "mine"))
    assert cli.main(["userbenchmark", name, "resnet18", "-d", "cpu", "-o", str(tmp_path / "run")]) == cli.USAGE
    shown = capsys.readouterr().err
    assert words in shown
    assert len(shown.splitlines()) == 1
    assert cli.main(["userbenchmark"]) == 0
    assert name in [line.split()[0] for line in capsys.readouterr().out.splitlines()]


def test_a_report_that_raises_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine" / "divides").mkdir(parents=True)
    code = "def plan(choice): ...\ndef report(run): return [1 / 0]"
    (tmp_path / "mine" / "divides" / "__init__.py").write_text(code)
    monkeypatch.setenv("TORCHZOO_USERBENCHMARK_PATH", str(tmp_path / "mine"))
    run = keep(tmp_path / "run", [example()])
    assert cli.main(["userbenchmark", "divides", "--from", str(run)]) == cli.USAGE
    assert "divides: ZeroDivisionError: division by zero (" in capsys.readouterr().err


# --- plans ---


def test_plans_resolve_and_reports_are_loaded_without_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from pathlib import Path
from torchzoo import userbenchmark
from torchzoo.zoo.catalog import find_models
for name in {NAMES}:
    request = userbenchmark.load(name).plan(userbenchmark.Choice(folder=Path({str(tmp_path)!r})))
    assert find_models(map(Path, request.models_dirs)).select(request.patterns, request.suites), name
assert 'torch' not in sys.modules
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["api_coverage", "breakdown", "compile_modes", "compilers"])
def test_named_models_replace_the_plans_own(name: str, tmp_path: Path) -> None:
    plan = userbenchmark.load(name).plan
    assert plan(Choice(folder=tmp_path)).suites
    chosen = plan(Choice(patterns=("resnet18",), folder=tmp_path))
    assert (chosen.patterns, chosen.suites) == (("resnet18",), ())
    assert plan(Choice(suites=("smoke",), folder=tmp_path)).suites == ("smoke",)


def test_what_is_asked_of_each_case(tmp_path: Path) -> None:
    request = {name: userbenchmark.load(name).plan(Choice(folder=tmp_path)) for name in NAMES}
    assert set(request["breakdown"].settings.passes) == {Pass.BREAKDOWN, Pass.FLOPS}
    assert request["api_coverage"].settings.passes == (Pass.API,)
    assert request["api_coverage"].axes.batch_sizes == ("smoke",)
    assert request["compile_modes"].jobs == 1
    assert [str(backend) for backend in request["compile_modes"].axes.backends] == [
        "eager",
        "inductor",
        "inductor:reduce-overhead",
        "inductor:max-autotune",
        "inductor:max-autotune-no-cudagraphs",
    ]
    assert request["optim"].axes.modes == (Mode.TRAIN,)


def test_the_command_line_overrides_the_plan(tmp_path: Path) -> None:
    request = userbenchmark.load("compile_modes").plan(Choice(folder=tmp_path))

    def given(*words: str) -> Any:
        return overridden(request, cli.build_parser().parse_args(["userbenchmark", "compile_modes", *words]))

    assert given() == request
    words = ["-d", "cpu", "-t", "eval", "--precision", "bf16", "--bs", "smoke", "--time-limit", "3", "-j", "2"]
    changed = given(*words, "--threads", "1", "--backend", "inductor")
    assert changed.axes.devices == ("cpu",)
    assert changed.axes.modes == (Mode.EVAL,)
    assert changed.axes.precisions == (Precision.BF16,)
    assert changed.axes.batch_sizes == ("smoke",)
    assert changed.axes.backends == (INDUCTOR,)
    assert (changed.settings.time_limit_s, changed.settings.threads, changed.jobs) == (3.0, 1, 2)
    assert changed.settings.passes == request.settings.passes
    with pytest.raises(UsageError, match="did you mean train"):
        given("-t", "trian")


# --- reports ---


def broken_down(active_s: float, movement_s: float, **changes: Any) -> Measured:
    steps = (StepTime(0.5, active_s / 2, movement_s / 2), StepTime(0.5, active_s / 2, movement_s / 2))
    return measured(variants={"eager": variant_result(breakdown=Breakdown(steps=steps, kernels=()))}, **changes)


def test_breakdown_gives_shares_per_model_and_means_per_domain() -> None:
    run = run_of(
        [
            example(broken_down(0.9, 0.05), model="nlp_one", mode=Mode.TRAIN),
            example(broken_down(0.5, 0.15), model="nlp_two", mode=Mode.TRAIN),
            example(broken_down(0.1, 0.0), model="speech", mode=Mode.TRAIN),
            example(broken_down(0.2, 0.4), model="speech"),
        ]
    )
    text = report("breakdown", run)
    means = {row[0]: row[1:] for row in table(text, "domain")}
    assert means["nlp"] == ["70.0% [50.0% to 90.0%]", "10.0%", "20.0%", "2", "", "", "", "0"]
    assert means["all"] == ["50.0% [10.0% to 90.0%]", "6.7%", "43.3%", "3", "20.0%", "40.0%", "40.0%", "1"]
    assert list(means) == ["nlp", "speech", "all"]
    assert [row[:5] for row in table(text, "model")] == [
        ["nlp_one", "4", "90.0%", "5.0%", "5.0%"],
        ["nlp_two", "4", "50.0%", "15.0%", "35.0%"],
        ["speech", "4", "10.0%", "0.0%", "90.0%"],
    ]


def test_breakdown_bars_are_as_long_as_the_shares() -> None:
    breakdown = module("breakdown")
    assert breakdown.bar(breakdown.Shares(0.4, 0.2, 0.4)) == "█" * 10 + "▒" * 5 + "·" * 10
    assert len(breakdown.bar(breakdown.Shares(0.333, 0.333, 0.334))) == breakdown.BAR_WIDTH


def test_breakdown_has_rates_and_says_what_the_profiler_could_not_tell() -> None:
    flops = Flops(total=10**12, by_operator={})
    problem = measured(
        variants={"eager": variant_result(breakdown=Breakdown(steps=(), kernels=(), problem="events were lost"))}
    )
    text = report("breakdown", run_of([example(broken_down(0.5, 0, flops=flops)), example(problem, model="speech")]))
    (row,) = table(text, "model")
    assert float(row[-1]) == pytest.approx(1 / 0.1005, rel=1e-2)  # TFLOP/s at 100.5 ms
    assert "events were lost" in text


def compared_with(ratio: float, host: float = 1.0, device: float = 1.0, **changes: Any) -> Measured:
    """Eager takes 0.2 s and 1 GiB of each memory, the candidate `ratio` times that time and so on."""
    quad = [("eager", 0.2), ("candidate", 0.2 * ratio), ("candidate", 0.2 * ratio), ("eager", 0.2)]
    memory = [
        Memory(host_peak_rss_bytes=round(factor * 2**30), device_peak_allocated_bytes=round(other * 2**30))
        for factor, other in ((1.0, 1.0), (host, device))
    ]
    return measured(
        blocks=tuple(Block(name, (time_s,)) for name, time_s in quad * 8),
        variants={
            "eager": variant_result(memory=memory[0]),
            "candidate": variant_result(memory=memory[1], first_step_s=20.5, compilation=Compilation(graphs=1)),
        },
        **changes,
    )


def test_compilers_gives_ratios_geometric_means_and_pass_rates() -> None:
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
    text = report("compilers", run)
    means = {row[0]: row[1:] for row in table(text, "domain")}
    assert means["nlp"][0].startswith("1.000 [0.500, 2.000]")
    assert [cell.split()[0] for cell in means["nlp"]] == ["1.000", "1.200", "0.800", "2/2,"]
    assert means["speech"] == ["", "", "", "0/1, 0%"]
    assert means["all"][0].startswith("1.000")  # the wrong one is not in it
    assert means["all"][3] == "2/4, 50%"
    rows = {row[0]: row for row in table(text, "model")}
    assert list(rows) == ["tiny", "nlp_one", "nlp_two"]
    assert rows["nlp_one"][2:6] == ["0.500 [0.500, 0.500]", "1.20", "0.80", "20.5 s"]
    assert "wrong" in rows["tiny"][-1]
    assert "FAILED (error in compile): no" in text


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
    both_modes = {row[0]: row[1:] for row in table(report("compilers", run_of(records)), "domain")}
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
                if ratio["count"] > 1
                else f"{ratio['value']:.2f}"
                for ratio in ratios
            ]


def test_compilers_keeps_backends_apart_and_says_where_there_is_none() -> None:
    other = Backend("cudagraphs")
    run = run_of([example(compared_with(0.5), backend=INDUCTOR), example(compared_with(0.25), backend=other)])
    text = report("compilers", run)
    assert "## inductor: means" in text
    assert "## cudagraphs: means" in text
    assert "No case of this run has a backend" in report("compilers", run_of([example()]))


def touching(functions: str, operators: str) -> Measured:
    return measured(api=ApiSurface(functions=tuple(functions.split()), operators=tuple(operators.split())))


def test_api_coverage_counts_unions_and_their_ratio() -> None:
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
    text = report("api_coverage", run)
    rows = {row[0]: row[1:] for row in table(text, "set")}
    assert rows["torchbench"] == ["2 of 84", "3", "5"]
    assert rows["mlperf"] == ["2 of 6", "2", "4"]
    assert rows["ratio of what ran (the paper: 2.3)"] == ["", "1.50", "1.25"]
    assert "<summary>2 functions in torchbench and not in mlperf</summary>\n\n`linear`, `stft`" in text
    assert "<summary>1 operators in mlperf and not in torchbench</summary>\n\n`aten::conv3d`" in text
    assert "Without a surface in this run, of mlperf: dlrm" in text
    domains = {row[0]: row[1:] for row in table(text, "domain")}
    assert domains["speech"] == ["1", "2", "2", "3", "2"]  # aten::mm is touched elsewhere too
    assert domains["all"] == ["3", "4", "", "6", ""]
    assert ["aten::mm", "demucs, resnet50"] in table(text, "operator")


def test_compile_modes_has_eager_first_and_says_when_compiling_pays() -> None:
    quick = compared_with(0.5)  # 0.1 s won a step; the first step costs 20 s more
    run = run_of(
        [
            example(compared_with(1.1), backend=Backend("inductor", "max-autotune")),
            example(quick, backend=INDUCTOR),
            example(measured(), backend=EAGER),
        ],
    )
    rows = table(report("compile_modes", run), "backend")
    assert [row[0] for row in rows] == ["eager", "inductor:max-autotune", "inductor"]
    assert rows[2][3] == "20.5 s"
    assert rows[2][8] == "2.000x [2.000, 2.000]"
    assert rows[2][9] == "201 steps"
    assert rows[1][9] == "never, or not known"
    alone = table(report("compile_modes", run_of([example(quick, backend=INDUCTOR)])), "backend")
    assert alone[0][0] == "eager (beside inductor)"


def test_compile_modes_warns_where_cases_shared_the_cores() -> None:
    settings = msgspec.structs.replace(manifest().settings, jobs=4)
    assert "4 cases prepared at once" in report("compile_modes", run_of([example()], settings=settings))
    assert "prepared at once" not in report("compile_modes", run_of([example()]))


def stepping(time_s: float) -> Measured:
    blocks = tuple(Block("eager", (time_s,)) for _ in range(12))
    return measured(blocks=blocks, samples_per_step=7, sample_unit="parameter tensors", parameters=1234)


def optim_run(path: Path, times_s: dict[tuple[str, str, str], float]) -> Run:
    optim = module("optim")
    pairs, records = {}, []
    for (group, implementation, source), time_s in times_s.items():
        name = f"case{len(pairs)}"  # the report must not look into names
        pairs[name] = optim.Pair(group=group, implementation=implementation, source=source)
        records.append(example(stepping(time_s), model=name, mode=Mode.TRAIN))
    (path / "models").mkdir()
    (path / "models" / "pairs.json").write_bytes(msgspec.json.encode(pairs))
    return run_of(records, path)


def test_optim_gives_ratios_against_the_for_loop(tmp_path: Path) -> None:
    times_s = {
        ("adam", "for-loop", "one"): 0.4,
        ("adam", "fused", "one"): 0.1,
        ("adam", "for-loop", "two"): 0.1,
        ("adam", "fused", "two"): 0.1,
        ("sgd", "for-loop", "one"): 0.3,
        ("sgd", "foreach", "one"): 0.2,
        ("sgd", "foreach", NASTY): 0.2,
    }
    text = report("optim", optim_run(tmp_path, times_s))
    adam = {row[0]: row[1:] for row in table(text[text.index("## adam") :], "parameters of")}
    assert adam["one"][:4] == ["1,234", "7", "400.00 ms [400.00, 400.00]", "100 ms, 4.000x [4.000, 4.000] (at 90%)"]
    assert adam["geometric mean"][3].startswith("2.00x [1.00, 4.00]")
    sgd = {row[0]: row[1:] for row in table(text[text.index("## sgd") :], "parameters of")}
    assert sgd["one"][3] == "200 ms, 1.500x [1.500, 1.500] (at 90%)"
    (nasty,) = (cells for name, cells in sgd.items() if name.startswith("a¦b&lt;i&gt;"))
    assert nasty[2:] == ["not measured", "200 ms"]


def test_optim_refuses_a_run_that_is_not_its_own(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="was not made by"):
        report("optim", run_of([example()], tmp_path))


@pytest.mark.parametrize("name", ["api_coverage", "breakdown", "compile_modes", "compilers"])
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
    assert "<i>" not in re.sub(r"(?<!\\)`[^`\n]*`", "", text)  # code spans apart
    columns = 0
    for line in text.splitlines():
        if not line.startswith("|"):
            columns = 0
            continue
        bars = line.replace("\\|", "").count("|")
        assert bars == (columns or bars), line
        columns = bars


@pytest.mark.parametrize("name", NAMES)
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
    assert "No case of this run" in text
    assert "## Measured on" in text
    assert "a CPU, 2 cores" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_report_says_how_it_misleads_and_cites_its_source(name: str) -> None:
    benchmark = userbenchmark.load(name)
    assert "https://" in benchmark.doc or "arXiv:" in benchmark.doc
    assert "## How to read it, and where it can mislead" in module(name).READING


def test_a_report_from_a_run_with_no_records_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunStore(tmp_path) as store:
        store.begin(manifest())
    assert cli.main(["userbenchmark", "breakdown", "--from", str(tmp_path)]) == cli.USAGE
    assert "holds no records yet" in capsys.readouterr().err


def test_from_prints_the_report_or_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = example(compared(), backend=INDUCTOR)
    with RunStore(tmp_path / "run") as store:
        store.begin(manifest(cases=(done.case,)))
        store.append(done)
    assert cli.main(["userbenchmark", "compilers", "--from", str(tmp_path / "run")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("# compilers: What a compiler gains")
    assert cli.main(["userbenchmark", "compilers", "--from", str(tmp_path / "run"), "-o", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "report.md").read_text() == printed


def test_values_are_grouped_in_the_order_of_domains() -> None:
    assert by_domain(run_of([]), [("speech", 1), ("nlp_one", 2), ("unknown", 3)]) == {
        "nlp": [2],
        "speech": [1],
        "all": [1, 2, 3],
    }


# --- optim's models ---


@pytest.fixture(scope="module")
def optim_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders that the plan writes for a tiny model of the user's."""
    base = tmp_path_factory.mktemp("optim")
    make_folder(base / "zoo", "tiny")
    choice = Choice(patterns=("tiny",), models_dirs=(str(base / "zoo"),), folder=base)
    request = userbenchmark.load("optim").plan(choice)
    assert sorted(request.patterns) == sorted(find_models(map(Path, request.models_dirs)).select(["*@tiny"]))
    return base / "models"


def folders() -> list[str]:
    implementations = import_optim().IMPLEMENTATIONS
    return [f"{one.group}-{one.name.replace(' ', '-')}@tiny" for one in implementations]


def import_optim() -> ModuleType:
    folder = ROOT / "userbenchmark" / "optim"
    return import_folder(folder, "torchzoo_userbenchmarks.optim")


@pytest.mark.parametrize("name", folders())
def test_an_optimizers_step_changes_every_parameter_again_and_again(name: str, optim_models: Path) -> None:
    from torchzoo.zoo.contract import trainable_parameters, unchanged

    spec = read_spec(optim_models / name)
    if any(rule.device == ("cpu",) for rule in spec.skips):
        pytest.skip(spec.skips[-1].reason)
    model = load_model_class(spec)(Mode.TRAIN, "cpu", 1)
    assert model.samples_per_step == 4  # two weights, two biases
    assert sum(p.numel() for network in model.networks().values() for p in network.parameters()) == 74
    for _ in range(3):
        with unchanged(trainable_parameters(model)) as names:
            model.train_step()
        assert names == []


@pytest.mark.gpu
def test_capturable_steps_on_an_accelerator(optim_models: Path) -> None:
    from torchzoo.zoo.contract import trainable_parameters, unchanged

    model = load_model_class(read_spec(optim_models / "adam-capturable@tiny"))(Mode.TRAIN, "cuda", 1)
    with unchanged(trainable_parameters(model)) as names:
        model.train_step()
    assert names == []


def operators_of(step: Any) -> set[str]:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.names.add(func._schema.name)
            return func(*args, **(kwargs or {}))

    with Seen() as seen:
        step()
    return seen.names


@pytest.mark.parametrize(
    ("name", "has", "has_not"),
    [
        ("adam-for-loop", {"aten::addcdiv_"}, {"aten::_foreach_addcdiv_", "aten::_fused_adam_"}),
        ("adam-foreach", {"aten::_foreach_addcdiv_"}, {"aten::addcdiv_", "aten::_fused_adam_"}),
        ("adam-fused", {"aten::_fused_adam_"}, {"aten::addcdiv_", "aten::_foreach_addcdiv_"}),
        ("sgd-for-loop", {"aten::add_"}, {"aten::_foreach_add_", "aten::_fused_sgd_"}),
        ("sgd-foreach", {"aten::_foreach_add_"}, {"aten::add_", "aten::_fused_sgd_"}),
        ("sgd-fused", {"aten::_fused_sgd_"}, {"aten::add_", "aten::_foreach_add_"}),
        ("zero_grad-for-loop", {"aten::zero_", "aten::add_"}, {"aten::_foreach_zero_"}),
        ("zero_grad-foreach", {"aten::_foreach_zero_", "aten::add_"}, {"aten::zero_"}),
        (
            "zero_grad-set-to-None",
            {"aten::detach"},
            {"aten::zero_", "aten::_foreach_zero_", "aten::add_", "aten::clone"},
        ),
    ],
)
def test_each_implementation_is_what_its_name_says(
    name: str, has: set[str], has_not: set[str], optim_models: Path
) -> None:
    model = load_model_class(read_spec(optim_models / f"{name}@tiny"))(Mode.TRAIN, "cpu", 1)
    model.train_step()
    seen = operators_of(model.train_step)
    assert has <= seen
    assert not has_not & seen


def test_a_models_shared_and_frozen_parameters_stay_so(tmp_path: Path) -> None:
    code = '''"""Two networks that share a layer, one of them frozen in part (torchzoo's tests, 2026)."""
from torch import nn
from torchzoo.model import Model


class Model(Model):
    def build(self):
        shared = nn.Linear(2, 3)
        self.one = nn.Sequential(shared, nn.Linear(3, 1))
        self.two = nn.Sequential(shared, nn.Linear(3, 4).requires_grad_(False))
        self.batch = ()

    def networks(self):
        return {"one": self.one, "two": self.two}

    @property
    def example_inputs(self):
        return ()
'''
    make_folder(tmp_path / "zoo", "shares", code)
    choice = Choice(patterns=("shares",), models_dirs=(str(tmp_path / "zoo"),), folder=tmp_path)
    userbenchmark.load("optim").plan(choice)
    model = load_model_class(read_spec(tmp_path / "models" / "adam-fused@shares"))(Mode.TRAIN, "cpu", 1)
    one, two = (list(network.parameters()) for network in model.networks().values())
    assert [list(p.shape) for p in two] == [[3, 2], [3], [4, 3], [4]]
    assert one[0] is two[0]
    assert [p.requires_grad for p in two] == [True, True, False, False]
    assert model.samples_per_step == 4


def test_a_model_that_is_not_trained_is_skipped_with_its_reason(tmp_path: Path) -> None:
    metadata = {
        "domain": "other",
        "task": "testing",
        "paper": "https://example.org",
        "source": "tests",
        "requirements": [],
        "parameters": 72,
        "batch_size": {"eval": 4},
        "smoke_batch_size": 2,
        "skips": [{"mode": "train", "reason": "there is nothing to learn"}],
    }
    make_folder(tmp_path / "zoo", "fixed", metadata=yaml.safe_dump(metadata))
    choice = Choice(patterns=("fixed",), models_dirs=(str(tmp_path / "zoo"),), folder=tmp_path)
    userbenchmark.load("optim").plan(choice)
    rules = read_spec(tmp_path / "models" / "sgd-fused@fixed").skips
    assert "fixed is not trained: there is nothing to learn" in [rule.reason for rule in rules]


# --- for real ---


@pytest.mark.xdist_group("run")
def test_optim_from_the_command_line_to_its_report_and_on_with_resume(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "tiny")
    options = ["-d", "cpu", "--threads", "1", "--time-limit", "0.5", "--models-dir", str(tmp_path / "zoo")]
    out = tmp_path / "run"

    def torchzoo(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "torchzoo", "userbenchmark", "optim", *words]
        return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)

    done = torchzoo("tiny", *options, "-o", str(out))
    assert done.returncode == 0, done.stderr
    records = read_run(out).records
    assert sum(isinstance(record.outcome, Measured) for record in records) == 9  # capturable has no CPU form
    first = (out / "report.md").read_text()
    rows = {row[0]: row[1:] for row in table(first, "parameters of")}
    assert rows["tiny"][:2] == ["74", "4"]
    assert "capturable keeps Adam's step counts" in first

    lines = (out / "records.jsonl").read_bytes().splitlines(keepends=True)
    (out / "records.jsonl").write_bytes(b"".join(lines[:-1]))
    again = torchzoo("--resume", str(out))
    assert again.returncode == 0, again.stderr
    assert len(re.findall(r"^\[\d+/10\]", again.stderr, re.MULTILINE)) == 1  # one case was left
    assert len(read_run(out).records) == 10
    assert "10 cases: 9 measured" in (out / "report.md").read_text()
    twice = torchzoo("tiny", *options, "-o", str(out))
    assert twice.returncode == 2
    assert "--resume" in twice.stderr


def test_the_benchmarks_that_need_libraries_have_them_listed() -> None:
    """The default models of `optim` are in the zoo, and their libraries are known to the installer."""
    specs = [find_models().spec(name) for name in import_optim().DEFAULT_MODELS]
    assert len({spec.domain for spec in specs}) >= 5
    assert all(isinstance(is_installed(requirement), bool) for spec in specs for requirement in spec.requirements)
    assert all(Mode.TRAIN in spec.batch_size for spec in specs)


def test_a_loaded_userbenchmark_is_what_the_command_uses() -> None:
    assert isinstance(userbenchmark.load("optim"), UserBenchmark)
