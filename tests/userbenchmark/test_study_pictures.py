"""The pictures of studies: a dot for each case that a mean counts, where its value stands, and the means."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import msgspec
import pytest
from benchmark_runs import report, run_of
from study_records import CRASHED, alone, in_turns, of_plan, trained, with_domains

from examples import GB, INDUCTOR, by_itself, environment, measured, variant_result
from kept_runs import keep
from svg_dots import dots, texts
from torchzoo import cli
from torchzoo.case import Backend, Domain, Precision
from torchzoo.record import Breakdown, Gpu, Measured, Memory, Record, StepTime
from torchzoo.store import Run
from torchzoo.studies import study

LEFT, RIGHT = 216, 572  # of the plot


def drawn(name: str, *runs: Run) -> ET.Element:
    found = study.document(study.load(name), runs).picture
    assert found is not None
    return ET.fromstring(found)


def profiled(active: float) -> Measured:
    breakdown = Breakdown(steps=(StepTime(1.0, active, 0.0),) * 6, kernels=())
    return measured(variants={"eager": variant_result(breakdown=breakdown)})


def remembering(host: float, time: float, *, is_alone: bool = True) -> Measured:
    """A candidate with this peak of host memory and this time of a step, both over eager's."""
    eager, own = (
        Memory(host_peak_rss_bytes=int(one * 2**30), host_peak_is_of_pass=True, device_peak_allocated_bytes=None)
        for one in (1, host)
    )
    candidate = variant_result(memory=own, alone=by_itself(memory=own) if is_alone else None)
    return in_turns(0.1, 0.1 * time, variants={"eager": variant_result(memory=eager), "candidate": candidate})


def test_the_breakdowns_picture_has_the_share_of_each_model() -> None:
    run = run_of([trained("vgg16", profiled(0.75)), trained("alexnet", profiled(0.25)), trained("dcgan", CRASHED)])
    picture = drawn("paper_breakdown", with_domains(run, vgg16=Domain.COMPUTER_VISION, alexnet=Domain.NLP))
    where = {text.split()[0]: (x - LEFT) / (RIGHT - LEFT) for text, x in dots(picture)}
    assert where == pytest.approx({"vgg16": 0.75, "alexnet": 0.25})
    shown = texts(picture)
    assert {"0%", "100%", "computer vision", "nlp", "75.0% (1)", "25.0% (1)", "50.0% (2)"} <= set(shown)
    assert "mean with its 95% interval, of 4 models or more (number of models)" in shown


def test_the_compilers_picture_has_each_ratio_of_the_cases_that_count() -> None:
    run = run_of(
        [
            trained("a", remembering(0.5, 0.25), INDUCTOR),
            trained("b", remembering(8.0, 0.5, is_alone=False), INDUCTOR),  # in no mean of memory
            trained("c", CRASHED, INDUCTOR),
        ]
    )
    picture = drawn("paper_compilers", run)
    assert [text.split()[-1] for text, _ in dots(picture)] == ["0.25x", "0.5x", "0.5x"]
    titles = [text for text in texts(picture) if "(Figures 3 and 4)" in text]
    assert [title.partition(":")[0] for title in titles] == ["T", "CM"]  # no GPU has memory here
    text = report("paper_compilers", run)
    assert f"![{'; '.join(titles)}](paper_compilers.svg)" in text


def test_the_claims_picture_has_a_chart_for_each_precision_and_a_row_for_each_collection() -> None:
    records = [
        trained(name, in_turns(0.2, 0.1), INDUCTOR, precision=precision)
        for precision in (Precision.TF32, Precision.AMP)
        for name in ("hf:One", "timm:two", "three")
    ]
    picture = drawn("pt2_claim", run_of(records))
    assert len(dots(picture)) == 12  # each in its collection and in all
    shown = texts(picture)
    assert [text for text in shown if text.startswith("Speedup of")] == [
        "Speedup of inductor over eager at tf32",
        "Speedup of inductor over eager at amp",
    ]
    assert [shown.count(name) for name in ("HuggingFace", "timm", "TorchBench", "all")] == [2, 2, 2, 2]


def test_the_devices_picture_needs_both_machines() -> None:
    def machine(name: str, *, step_s: float) -> Run:
        outcome = alone(*[step_s] * 12, device_name=name)
        run = run_of([trained("resnet18", outcome, precision=Precision.TF32)], Path(f"/{name}"))
        facts = environment(gpus=(Gpu(name=name, memory_bytes=80 * GB, driver="1"),))
        run = msgspec.structs.replace(run, manifest=msgspec.structs.replace(run.manifest, environment=facts))
        return with_domains(run, resnet18=Domain.COMPUTER_VISION)

    one, two = machine("one", step_s=0.3), machine("two", step_s=0.1)
    picture = drawn("paper_devices", one, two)
    assert [text.split()[-1] for text, _ in dots(picture)] == ["3x"] * 2  # of its domain, of all
    assert "one's time over two's, eager tf32 (Figure 5)" in texts(picture)
    assert "one · two · torch 2.15.0 · torchzoo 0.1.0 · 2026-11-20" in texts(picture)
    assert study.document(study.load("paper_devices"), [one]).picture is None


def test_the_optimizations_picture_has_a_row_for_each_change() -> None:
    records = [
        trained("resnet18", in_turns(0.1, 0.2), Backend("zero_grad", "kernels")),  # the old way is put back
        trained("resnet18", in_turns(0.2, 0.1), Backend("optimizer", "fused")),
    ]
    picture = drawn("paper_optimizations", run_of(records))
    assert [text for text, _ in dots(picture)] == ["resnet18: 2x"] * 2
    assert {"zero_grad:kernels", "optimizer:fused"} <= set(texts(picture))


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("nanogpt", [trained("nanogpt_gpt2", alone(0.1))]),
        ("paper_breakdown", [trained("vgg16", alone(0.1))]),
        ("paper_compilers", [trained("vgg16", CRASHED, INDUCTOR)]),
    ],
    ids=["not in this study", "without a breakdown", "nothing counts"],
)
def test_a_document_without_a_picture_shows_none(name: str, records: list[Record]) -> None:
    run = run_of(records)
    assert study.document(study.load(name), [run]).picture is None
    assert "![" not in report(name, run)


def test_the_picture_is_written_beside_the_document(tmp_path: Path) -> None:
    run = keep(tmp_path / "run", [of_plan("paper_compilers", in_turns(0.2, 0.1), model="resnet18")])
    assert cli.main(["study", "paper_compilers", "--from", str(run), "-o", str(tmp_path / "out")]) == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["paper_compilers.md", "paper_compilers.svg"]
    assert "](paper_compilers.svg)" in (tmp_path / "out/paper_compilers.md").read_text(encoding="utf-8")
