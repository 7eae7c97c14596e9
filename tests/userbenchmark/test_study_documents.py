"""Documents of studies from made-up records: each figure at its place, beside the right published one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from benchmark_runs import beside, figures, report, run_of, table
from study_records import CRASHED, in_turns, late, trained, with_domains
from syrupy.assertion import SnapshotAssertion

from examples import INDUCTOR, by_itself, measured, variant_result
from examples import record as example
from torchzoo.case import Backend, Domain, Mode
from torchzoo.record import (
    ApiSurface,
    Breakdown,
    Compilation,
    Failed,
    FailureKind,
    Flops,
    HostWatch,
    Measured,
    Memory,
    Record,
    Skipped,
    StepTime,
)
from torchzoo.settings import Stage
from torchzoo.studies import study
from torchzoo.studies.userbenchmark import Choice

# --- paper_breakdown ---


def profiled(active_s: float, movement_s: float, **changes: Any) -> Measured:
    steps = (StepTime(0.5, active_s / 2, movement_s / 2),) * 6
    return measured(variants={"eager": variant_result(breakdown=Breakdown(steps=steps, kernels=()))}, **changes)


def test_breakdown_stands_beside_table_2_by_domain_and_mode(snapshot: SnapshotAssertion) -> None:
    flops = Flops(total=2 * 10**12, by_operator={})
    run = run_of(
        [
            trained("vgg16", profiled(0.9, 0.04, flops=flops)),
            trained("alexnet", profiled(0.7, 0.02)),
            example(profiled(0.5, 0.1), model="vgg16", device="cuda"),
        ]
    )
    text = report("paper_breakdown", with_domains(run, vgg16=Domain.COMPUTER_VISION, alexnet=Domain.COMPUTER_VISION))
    assert figures(text) == snapshot


def test_breakdown_says_what_bounds_each_model_and_how_fast_the_host_was() -> None:
    steps = Breakdown(steps=(StepTime(0.5, 0.1, 0.0),) * 6, kernels=())
    host = HostWatch(undisturbed_s=0.001, looks_s=(0.001, 0.0012, 0.002), waited_s=0.0, fast_cores=(), was_slow=False)
    idle = measured(variants={"eager": variant_result(breakdown=steps, device_active_s=0.02)}, host=host)
    busy = measured(variants={"eager": variant_result(breakdown=steps, device_active_s=0.095)})
    text = report("paper_breakdown", run_of([trained("vgg16", idle), trained("alexnet", busy)]))
    rows = {row[0]: [row[6], *row[8:]] for row in table(text, "model")}
    assert rows == {"vgg16": ["19.9%", "host", "1.20x"], "alexnet": ["94.5%", "device", ""]}
    assert "| 57.2% | 2 |" in text  # the mean of both, without the profiler


# --- paper_compilers ---


def remembering(host: float, device: float, *, is_alone: bool) -> Measured:
    """A candidate with these peaks beside eager's of 1 GiB; beside eager it needs three times as much."""
    eager, own, with_eager = (
        Memory(
            host_peak_rss_bytes=int(one * 2**30),
            host_peak_is_of_pass=True,
            device_peak_allocated_bytes=int(other * 2**30),
        )
        for one, other in ((1, 1), (host, device), (3, 3))
    )
    candidate = variant_result(memory=with_eager, alone=by_itself(memory=own) if is_alone else None)
    return in_turns(0.2, 0.1, variants={"eager": variant_result(memory=eager), "candidate": candidate})


def test_compilers_memory_is_that_of_processes_of_their_own_and_may_fall() -> None:
    text = report("paper_compilers", run_of([trained("a", remembering(0.5, 0.75, is_alone=True), INDUCTOR)]))
    host = beside(text, "CPU memory, change of the peak (CM - 1)")["train"]
    assert host[:3] == [
        "-71.2 %",
        "-50.0 % (1 model: too few for an interval); 1 of the 1 models that count",
        "+21.2 points",
    ]
    device = beside(text, "GPU memory, change of the peak (GM - 1)")["train"]
    assert device[1] == "-25.0 % (1 model: too few for an interval); 1 of the 1 models that count"
    speedup = beside(text, "Speedup of inductor over eager")
    assert speedup["train"][:2] == ["1.3 times", "2.00 times (1 model: too few for an interval); 1 of 1 counted"]
    assert speedup["eval"][1] == "not measured: no measured case of this run gives it"
    (row,) = table(text, "model")
    assert row[3:5] == ["0.50", "0.75"]
    assert row[-1] == ""


def test_compilers_memory_beside_eager_is_shown_and_in_no_mean(snapshot: SnapshotAssertion) -> None:
    apart, no_device = (remembering(0.5, 0.75, is_alone=True) for _ in range(2))
    variants = {
        name: msgspec.structs.replace(one, memory=msgspec.structs.replace(one.memory, device_peak_allocated_bytes=None))
        for name, one in no_device.variants.items()
    }
    beside_eager = remembering(0.5, 0.75, is_alone=False)
    late = Failed(kind=FailureKind.TIMEOUT, stage=Stage.ALONE, message="it took longer than 300 s and was killed")
    candidate = msgspec.structs.replace(beside_eager.variants["candidate"], why_not_alone=late)
    killed = msgspec.structs.replace(beside_eager, variants={**beside_eager.variants, "candidate": candidate})
    found = {
        "apart": apart,
        "without a device's memory": msgspec.structs.replace(no_device, variants=variants),
        "beside eager": beside_eager,
        "killed": killed,
    }
    text = report("paper_compilers", run_of([trained(name, one, INDUCTOR) for name, one in found.items()]))
    assert table(text, "domain")[-1][4] == "4 of 4 counted; CM of 2, GM of 1"
    assert figures(text) == snapshot
    alone_there = report("paper_compilers", run_of([trained("a", beside_eager, INDUCTOR)]))
    host = beside(alone_there, "CPU memory, change of the peak (CM - 1)")["train"]
    assert host[1].startswith("not measured: no candidate had a process of its own")


def test_compilers_shows_both_times_of_first_steps_and_says_what_they_waited_for() -> None:
    run = run_of([trained("a", remembering(0.5, 0.75, is_alone=True), INDUCTOR)])
    (row,) = table(report("paper_compilers", run), "model")
    assert row[5:7] == ["20.5 s", "40.0 s"]
    assert "prepared at once" not in report("paper_compilers", run)
    settings = msgspec.structs.replace(run.manifest.settings, jobs=16)
    several = msgspec.structs.replace(run, manifest=msgspec.structs.replace(run.manifest, settings=settings))
    assert "Up to 16 cases prepared at once" in report("paper_compilers", several)
    joined = msgspec.structs.replace(run, joined=(run, several))
    assert "Up to 16 cases prepared at once" in report("paper_compilers", joined)


def test_compilers_notes_what_is_slower_and_how_busy_the_device_is() -> None:
    def of(eager_s: float, candidate_s: float, active_s: float | None) -> Measured:
        memory = Memory(host_peak_rss_bytes=2**30)
        variants = {
            "eager": variant_result(memory=memory, device_active_s=active_s),
            "candidate": variant_result(memory=memory, device_active_s=active_s, alone=by_itself(memory=memory)),
        }
        return in_turns(eager_s, candidate_s, variants=variants)

    found = {"slow": of(0.1, 0.2, 0.05), "slow on a CPU": of(0.1, 0.2, None), "fast": of(0.2, 0.1, 0.05)}
    text = report("paper_compilers", run_of([trained(name, one, INDUCTOR) for name, one in found.items()]))
    whole = "CM is of whole processes, building and compiling included"
    assert {row[0]: row[-1] for row in table(text, "model")} == {
        "slow": f"slower than eager (the device works 25.0% of its step, 50.0% of eager's); {whole}",
        "slow on a CPU": f"slower than eager; {whole}",
        "fast": whole,
    }
    slow = of(0.1, 0.2, None)
    few = trained("slow", msgspec.structs.replace(slow, blocks=slow.blocks[:8]), INDUCTOR)  # two quads
    assert table(report("paper_compilers", run_of([few])), "model")[0][-1] == whole


def test_compilers_counts_unsteady_models_apart_and_says_which_they_are() -> None:
    run = run_of(
        [
            trained("a", in_turns(0.2, 0.1), INDUCTOR),
            trained("b", in_turns(0.2, 0.02, variants=late()), INDUCTOR),
            trained("c", CRASHED, INDUCTOR),
        ]
    )
    text = report("paper_compilers", run)
    speedup = beside(text, "Speedup of inductor over eager")["train"][1]
    assert speedup == "2.00 times (1 model: too few for an interval); 1 of 3 counted, 1 unsteady, 1 failed"
    assert {row[0]: row[-1] for row in table(text, "model")}["b"].startswith(
        "unsteady, in no mean: compiled 1 more graphs while it was measured"
    )


def test_compilers_shows_what_the_paper_found_slower() -> None:
    eval_case: dict[str, Any] = {"mode": Mode.EVAL}
    guarded = {"eager": variant_result(), "candidate": variant_result(compilation=Compilation(graphs=1, guards=1350))}
    run = run_of(
        [
            trained("yolov3", in_turns(0.1, 0.2), INDUCTOR, **eval_case),
            trained("hf_Reformer", CRASHED, INDUCTOR, **eval_case),
            trained("hf_Reformer", in_turns(0.1, 0.2, variants=guarded), INDUCTOR),
        ]
    )
    text = report("paper_compilers", run)
    slower = beside(text, "Slower than eager in evaluation")
    assert slower["yolov3"][1].startswith("0.5 times")
    assert slower["hf_Reformer"][1] == "not measured: error in compile: no such lowering"
    assert beside(text, "Heavy guards of hf_Reformer")["hf_Reformer"][0] == "30 %"
    guards = beside(text, "Guards of hf_Reformer")["hf_Reformer, train"]
    assert guards[:3] == ["2699 guards", "1,350 guards", "0.50 of the published"]


# --- paper_api ---


def test_api_coverage_stands_beside_the_papers_ratio() -> None:
    def touching(model: str, functions: str, operators: str) -> Record:
        surface = ApiSurface(functions=tuple(functions.split()), operators=tuple(operators.split()))
        return trained(model, measured(api=surface))

    def rows(*records: Record) -> dict[str, str]:
        shown = beside(report("paper_api", run_of([*records])), "API coverage over MLPerf's models")
        return {name: cells[1] for name, cells in shown.items()}

    paper, mlperf = touching("demucs", "a b c", "x y"), touching("unet3d", "a b", "x")
    assert rows(paper)["functions"].startswith("not measured: one of the two sets")
    both, more = rows(paper, mlperf), rows(paper, mlperf, touching("fno2d", "a b c d", "x y z"))
    assert both["functions"].startswith("1.50 times; models: 1 of 84 of torchbench, 1 of 6 of mlperf")
    assert both["operators"].startswith("2.00 times")
    assert "functions, all of torchzoo" not in both
    assert more["functions"].startswith("1.50 times")
    assert more["functions, all of torchzoo"].startswith("2.00 times; models: 3 of torchzoo, 1 of 6 of mlperf")


# --- paper_optimizations ---


def changed(model: str, own_s: float, changed_s: float, *backend: str, **axes: Any) -> Record:
    return trained(model, in_turns(own_s, changed_s), Backend(*backend), **axes)


def test_an_old_way_that_is_slower_is_a_gain_of_todays_step(snapshot: SnapshotAssertion) -> None:
    run = run_of(
        [
            changed("one", 0.1, 0.2, "zero_grad", "kernels"),
            changed("two", 0.1, 0.09, "zero_grad", "kernels"),
            changed("one", 0.1, 0.08, "zero_grad", "foreach"),
            changed(
                "one", 0.1, 0.05, "paper_optimizations/optimizer", "fused"
            ),  # as a run has it; older ones as the others
            changed("one", 0.1, 0.3, "offload", mode=Mode.EVAL),
            trained("one", Skipped(reason="no optimizer"), Backend("zero_grad", "none")),
        ]
    )
    text = report("paper_optimizations", run)
    assert figures(text) == snapshot


def test_a_gain_in_evaluation_must_be_above_three_percent() -> None:
    found = [changed(f"m{n}", 0.1, times, "offload", mode=Mode.EVAL) for n, times in enumerate((0.102, 0.104))]
    unsure = in_turns(0.1, 0.9)
    unsure = msgspec.structs.replace(unsure, blocks=unsure.blocks[:8])  # two quads: an interval at 50%
    found.append(trained("m2", unsure, Backend("offload"), mode=Mode.EVAL))
    text = report("paper_optimizations", run_of(found))
    (kept,) = [
        name for name in beside(text, "Models that gain") if name.startswith("eval, networks kept on the device")
    ]
    assert beside(text, "Models that gain")[kept][1] == "1 models; of 2 decided; 0 lose; 1 undecided"
    assert beside(text, "Largest speedup")[kept][1].endswith("; m1")  # m2's is larger, and not decided


def test_the_papers_changes_are_both_ways_to_zero_gradients_and_in_reformer_the_square_root() -> None:
    slow = in_turns(0.5, 1.0)
    slow = msgspec.structs.replace(slow, blocks=slow.blocks[:8])  # two quads
    run = run_of(
        [
            changed("hf_Reformer", 0.1, 0.2, "zero_grad", "kernels"),
            changed("hf_Reformer", 0.1, 0.125, "zero_grad", "foreach"),  # the default is better, and is not the paper's
            changed("hf_Reformer", 0.1, 0.15, "rsqrt"),
            changed("resnet18", 0.1, 0.1, "zero_grad", "kernels"),
            changed("resnet18", 0.1, 0.1, "zero_grad", "foreach"),
            trained("vgg16", slow, Backend("zero_grad", "kernels")),
            changed("vgg16", 0.5, 0.5, "zero_grad", "foreach"),
            changed("alexnet", 0.1, 0.5, "zero_grad", "kernels"),
        ]
    )
    text = report("paper_optimizations", run)
    assert (
        beside(text, "Models that gain")["train, the paper's optimizations instead of what was before them"][1]
        == "1 models; of 2 decided; 0 lose; 1 undecided"
    )
    mean = beside(text, "Mean speedup")
    assert mean["train, the paper's optimizations instead of what was before them, those that gain"][1].startswith(
        "2.40 times"
    )  # 2 / 1.25 * 1.5
    assert mean["train, the paper's optimizations instead of what was before them, all"][1].endswith(
        "; 3 models; no difference is sure"
    )


def test_a_row_says_which_way_is_the_faster_one() -> None:
    found = [changed(name, 0.1, 0.2, "zero_grad", "foreach") for name in ("one", "two")]  # the changed step is slower
    found += [changed(name, 0.1, 0.2, "optimizer", "for-loop") for name in ("one", "two")]
    undecided = in_turns(0.1, 0.08)
    undecided = msgspec.structs.replace(undecided, blocks=undecided.blocks[:8])
    found.append(trained("three", undecided, Backend("zero_grad", "foreach")))
    text = report("paper_optimizations", run_of(found))
    foreach = "train, gradients zeroed by foreach instead of set to None, as the step does"
    loop = "train, optimizer as the step has it instead of in a for-loop"
    assert beside(text, "Models that gain")[foreach][1] == "0 models; of 2 decided; 2 lose; 1 undecided"
    assert (
        beside(text, "Mean speedup")[f"{loop}, all"][1]
        == "2.00 times (2 models: too few for an interval); 2 models; no difference is sure"
    )
    assert beside(text, "Largest speedup")[foreach][1].endswith("; three; no gain is decided")
    only = report("paper_optimizations", run_of(found[:2]))
    assert (
        beside(only, "Mean speedup")[f"{foreach}, all"][1]
        == "0.5 times (2 models: too few for an interval); 2 models; no difference is sure"
    )
    undecided = report("paper_optimizations", run_of(found[-1:]))  # two quads of one model
    assert beside(undecided, "Mean speedup")[f"{foreach}, all"][1].endswith("1 models; no difference is sure")


def test_models_that_are_all_undecided_gain_nothing_and_lose_nothing() -> None:
    slow = in_turns(0.1, 0.2)
    slow = msgspec.structs.replace(slow, blocks=slow.blocks[:4])  # one quad of each of two models
    text = report("paper_optimizations", run_of([trained(name, slow, Backend("offload")) for name in ("one", "two")]))
    kept = "train, networks kept on the device instead of moved to the host and back before each step"
    assert beside(text, "Models that gain")[kept][1:3] == [
        "not measured: none of 2 models has the six quads that decide it",
        "",
    ]
    assert beside(text, "Mean speedup")[f"{kept}, all"][1].endswith("2 models; no difference is sure")


def test_optimizations_have_time_to_decide_slow_models(tmp_path: Path) -> None:
    request = study.load("paper_optimizations").plan(Choice(folder=tmp_path))
    assert request.settings.time_limit_s >= 6 * 4 * 0.3  # six quads of a step of 0.3 s


# --- the conditions of the cases ---


def test_a_document_says_how_the_cases_were_measured_where_it_shows_times() -> None:
    slow = HostWatch(undisturbed_s=0.001, looks_s=(0.002,), waited_s=0.0, fast_cores=(), was_slow=True)
    run = run_of([trained("vgg16", measured(host=slow))])
    section = "## Conditions of the measured cases"
    assert f"{section}\n\n| condition |" in report("paper_breakdown", run)
    assert "| the host stayed slow: a step that waits for it takes longer | 1 of 1 | vgg16 train" in report(
        "paper_breakdown", run
    )
    assert section not in report("paper_api", run)
