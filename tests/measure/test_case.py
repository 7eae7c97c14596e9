"""A whole case: the order of its stages and passes, what is alive in which of them, and what the outcome has."""

from __future__ import annotations

import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from measuring import measure, spy
from torch.utils._pytree import tree_leaves

from torchzoo.case import Mode
from torchzoo.cli import build_parser
from torchzoo.commands.options import run_request
from torchzoo.measure import case_rank
from torchzoo.measure import measure_case as case_module
from torchzoo.measure.case_ranks import CaseRanks
from torchzoo.measure.passes import MeasurePass, PassContext, PassRow
from torchzoo.measure.variant import Variant
from torchzoo.model import Model
from torchzoo.record import Check, CheckStatus
from torchzoo.settings import Pass, Stage
from user_models import TINY

TIMED = tuple(one for one in Pass if one is not Pass.CHECK_ONLY)


def note(monkeypatch: pytest.MonkeyPatch, events: list[str], names: list[str]) -> None:
    """Add each call of these functions to the events, with the name of the variant that it is for."""

    def noted(name: str) -> None:
        def add(*args: Any, **_: Any) -> None:
            variants = [one.name for one in args if isinstance(one, Variant)]
            events.append(" ".join([name, *variants]))

        spy(monkeypatch, name, add)

    for name in names:
        noted(name)


def test_the_order_of_stages_and_passes_and_what_is_in_the_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    before = ["apply_precision", "warm_up", "inspect_step", "check_precision", "watch_compilation", "candidate_variant"]
    timed = ["count_compiled", "measure_memory", "step_until_steady", "measure_latency", "measure_throughput"]
    note(monkeypatch, events, [*before, *timed, "_require_finite", "check_case"])
    load = PassRow.load

    def noted(row: PassRow) -> MeasurePass:
        def measure_noted(context: PassContext) -> Any:
            events.append(f"{row.module} {context.variant.name}")
            return load(row)(context)

        return measure_noted

    monkeypatch.setattr(PassRow, "load", noted)
    measured = measure(
        tmp_path,
        backend="aot_eager",
        ask=TIMED,
        tell=lambda stage: events.append(stage.upper()),
        window=lambda: events.append("window"),
    )
    assert events == [
        "IMPORT",
        "BUILD",
        "PREPARE",
        "apply_precision",
        "WARM_UP",
        "watch_compilation",  # eager compiles nothing
        "warm_up eager",
        "measure_memory",  # eager's, before anything is compiled
        "inspect_step",
        "check_precision",
        "COMPILE",
        "watch_compilation",
        "candidate_variant",
        "warm_up candidate",
        "count_compiled",
        "measure_memory",
        "WAIT",
        "window",
        "MEASURE",
        "step_until_steady eager",
        "step_until_steady candidate",
        "measure_latency",
        "measure_throughput eager",
        "measure_throughput candidate",
        "_require_finite",  # from here on, what was measured counts whatever comes
        "energy eager",
        "energy candidate",
        "breakdown eager",  # after all energy: the profiler leaves its hooks in the process
        "breakdown candidate",
        "op_shapes eager",
        "op_shapes candidate",
        "EXAMINE",
        "counts eager",
        "counts candidate",
        "leak eager",
        "leak candidate",
        "coverage candidate",
        "flops eager",
        "flops candidate",
        "api eager",
        "HOLD",
        "CHECK",
        "check_case",
    ]
    assert [name.upper() for name in measured.stage_seconds] == [event for event in events if event.isupper()]
    assert measured.stage_seconds.keys() == measured.stage_cpu_seconds.keys()
    assert min(measured.stage_seconds.values()) > 0
    in_window = ["wait", "steady", "latency", "throughput", "finite", "record", "energy", "breakdown", "op_shapes"]
    assert list(measured.window_seconds) == in_window
    assert sum(measured.window_seconds.values()) <= measured.stage_seconds["measure"]
    assert list(measured.variants) == ["eager", "candidate"]
    for variant in measured.variants.values():
        assert variant.result_is_finite
        assert variant.breakdown is not None
        assert variant.breakdown.problem == ""
        assert variant.growth is not None
        assert variant.energy is None  # the CPU has no counter
    assert measured.flops is not None
    assert measured.flops.total > 0
    assert measured.api is not None
    assert "aten::convolution" in measured.api.operators
    assert measured.check is not None
    assert measured.check.status is CheckStatus.CORRECT
    assert measured.variants["eager"].compilation is None
    assert measured.variants["candidate"].compilation is not None


def test_a_device_of_any_rank_that_stays_busy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[float, bool] | None] = [(0.1, True), (3.0, False)]
    everywhere = CaseRanks.everywhere

    def of_two_ranks(ranks: CaseRanks, method: Any, *arguments: Any) -> list[Any]:
        return waits if method.__name__ == "wait_for_device" else everywhere(ranks, method, *arguments)

    monkeypatch.setattr(CaseRanks, "everywhere", of_two_ranks)
    measured = measure(tmp_path, mode=Mode.EVAL)
    assert (measured.device_wait_s, measured.device_was_busy) == (3.0, True)
    waits[:] = [(0.1, True), (0.2, True)]
    measured = measure(tmp_path / "idle", mode=Mode.EVAL)
    assert (measured.device_wait_s, measured.device_was_busy) == (0.2, False)


def test_what_a_backend_converts_before_its_first_step_counts_as_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def import_backend(_: object) -> None:
        time.sleep(1.0)  # imports do not count

    spy(monkeypatch, "candidate_variant", lambda *_: time.sleep(0.3))
    monkeypatch.setattr(case_rank.CaseRank, "import_backend", import_backend)
    measured = measure(tmp_path, mode=Mode.EVAL, backend="torchscript")
    eager, candidate = measured.variants["eager"], measured.variants["candidate"]
    assert eager.conversion_s is None
    assert candidate.conversion_s is not None
    assert 0.3 < candidate.conversion_s < 1.0
    assert candidate.first_step_s > candidate.conversion_s


def test_the_inspections_tensors_are_gone_when_the_candidates_memory_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inspect_step = case_rank.inspect_step
    tensors: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def inspected(*args: Any) -> Any:
        inspection = inspect_step(*args)
        calls = [(call.args, call.kwargs) for call in inspection.calls.values()]
        tensors.extend(weakref.ref(leaf) for leaf in tree_leaves(calls) if isinstance(leaf, torch.Tensor))
        return inspection

    monkeypatch.setattr(case_rank, "inspect_step", inspected)
    spy(monkeypatch, "measure_memory", lambda *_: alive.append(sum(tensor() is not None for tensor in tensors)))
    measure(tmp_path, backend="aot_eager")
    assert len(tensors) == 1  # the images
    assert alive == [0, 0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_measured_model_is_gone_when_the_check_builds_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    held: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    def hold(model: Model, *_: Any) -> None:
        held.extend(weakref.ref(one) for one in (model, *model.network.parameters(), model.batch.inputs[0]))

    def check_case(*_: Any, **__: Any) -> Check:
        alive.extend(one() is not None for one in held)
        time.sleep(0.1)
        return Check(status=CheckStatus.CORRECT)

    spy(monkeypatch, "eager_variant", hold)
    monkeypatch.setattr(case_module, "check_case", check_case)
    measured = measure(tmp_path, backend=backend, ask=(Pass.CHECK,))
    assert len(alive) == 6
    assert not any(alive)
    assert measured.check == Check(status=CheckStatus.CORRECT)
    assert measured.stage_seconds[Stage.CHECK] > 0.1


SCALED = (
    TINY.replace("nn.Flatten()", "Scale(), nn.Flatten()")
    + """

class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        return x * self.scale
"""
)


def test_graphs_that_are_compiled_after_the_warm_up_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[Model] = []
    spy(monkeypatch, "eager_variant", lambda model, *_: models.append(model))

    def window() -> None:
        models[0].network[2].scale = 2.0  # type: ignore[attr-defined]

    compilation = (
        measure(tmp_path, SCALED, mode=Mode.EVAL, backend="aot_eager", window=window).variants["candidate"].compilation
    )
    assert compilation is not None
    assert (compilation.graphs, compilation.late_graphs) == (2, 1)
    assert len(compilation.recompilations) == 1


def test_a_pass_that_is_not_asked_for_is_not_run(tmp_path: Path) -> None:
    measured = measure(tmp_path, mode=Mode.EVAL)
    (eager,) = measured.variants.values()
    assert (eager.breakdown, eager.growth, eager.energy, eager.compilation) == (None,) * 4
    assert (measured.flops, measured.api, measured.check) == (None,) * 3


@pytest.mark.parametrize("one", list(Pass))
def test_each_pass_has_a_flag_of_its_own(one: Pass) -> None:
    parse = build_parser().parse_args
    assert run_request(parse(["run", "resnet18"])).settings.passes == ()
    assert run_request(parse(["run", "resnet18", f"--{one.replace('_', '-')}"])).settings.passes == (one,)


def test_what_building_a_model_changes_is_put_back_and_said(tmp_path: Path) -> None:
    building = """
    def build_network(self):
        torch.backends.cudnn.benchmark = True
        return super().build_network()
"""
    code = (
        TINY.replace("class Model(SupervisedModel)", "class Own(SupervisedModel)") + f"\n\nclass Model(Own):{building}"
    )
    assert not torch.backends.cudnn.benchmark
    measured = measure(tmp_path, code, mode=Mode.EVAL, ask=(Pass.CHECK,), backend="aot_eager")
    assert measured.put_back == ("cudnn.benchmark",)
    assert measured.precision_flags["cudnn_benchmark"] == "False"
    assert not torch.backends.cudnn.benchmark  # nor has a model of the check left it on
