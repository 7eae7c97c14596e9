"""The check finds wrong results wrong and right ones right. What can't be judged is never called correct."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
import torch._inductor.config
from classifier import (
    Classifier,
    adds_a_half,
    adds_a_hundredth,
    check,
    drops_a_relu,
    has_a_wrong_gradient,
    raises_when_run,
    with_network,
)
from torch import Tensor, nn
from torch.nn import functional as F

from examples import CASE, SPEC
from torchzoo.case import Backend, Mode, Precision, ResultKind
from torchzoo.cli import main
from torchzoo.measure.check.check_case import check_case
from torchzoo.model import Model
from torchzoo.model.tasks import Batch
from torchzoo.record import Check, CheckStatus
from torchzoo.zoo.rules import ToleranceRule
from torchzoo.zoo.spec import SpecError, read_spec
from user_models import METADATA, TINY, make_folder

#: At a coarse precision, rounding may leave a gradient of a few open.
RIGHT = (CheckStatus.CORRECT, CheckStatus.PARTLY_CORRECT)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize(
    "name",
    ["aot_eager", "inductor", pytest.param("inductor:reduce-overhead", marks=pytest.mark.slow), "torchscript:trace"],
)
def test_good_backends_are_correct(name: str, mode: Mode) -> None:
    found = check(Classifier, mode, name)
    assert found.status is CheckStatus.CORRECT, found
    kinds = [comparison.what for comparison in found.comparisons]
    in_training = ["loss", "gradients", "parameters", "buffers", "integers"]
    assert kinds == (["outputs", "state", "integers"] if mode is Mode.EVAL else in_training)
    assert all(comparison.is_close for comparison in found.comparisons)
    errors = [comparison.error for comparison in found.comparisons]
    assert max(errors) > 0, "fp32 can't equal fp64: something was compared with itself"
    assert max(errors) < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize(
    "precision", [Precision.DEFAULT, Precision.FP32, Precision.TF32, Precision.AMP, Precision.BF16]
)
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize("name", ["eager", "inductor", "inductor:reduce-overhead", "cudagraphs"])
def test_good_backends_are_correct_on_a_gpu(name: str, mode: Mode, precision: Precision) -> None:
    def allocated_bytes() -> int:
        torch._C._cuda_clearCublasWorkspaces()  # cuBLAS keeps 32 MiB on Hopper from its first product on
        return torch.cuda.memory_allocated()

    before = allocated_bytes()
    name, _, option = name.partition(":")
    case = msgspec.structs.replace(
        CASE, mode=mode, backend=Backend(name, option or None), batch_size=8, device="cuda", precision=precision
    )
    found = check_case(case, SPEC, Classifier, torch.device("cuda", 0))
    assert found.status in (RIGHT if precision is Precision.BF16 else [CheckStatus.CORRECT]), found
    assert allocated_bytes() - before < 2**20


@pytest.mark.parametrize(
    ("compiler", "mode", "what"),
    [
        (adds_a_hundredth, Mode.EVAL, "outputs"),
        (drops_a_relu, Mode.EVAL, "outputs"),
        (drops_a_relu, Mode.TRAIN, "loss"),
        (has_a_wrong_gradient, Mode.TRAIN, "gradients"),
    ],
)
def test_a_wrong_backend_is_incorrect(
    backend: Callable[..., str], compiler: Callable[..., Any], mode: Mode, what: str
) -> None:
    found = check(Classifier, mode, backend(compiler))
    assert found.status is CheckStatus.INCORRECT, found
    assert what in {comparison.what for comparison in found.comparisons if comparison.is_close is False}
    assert what in found.reason
    assert "\n" not in found.reason
    if compiler is has_a_wrong_gradient:
        assert found.comparisons[0].what is ResultKind.LOSS
        assert found.comparisons[0].is_close is True
        assert "the worst of 7 of 8)" in found.reason  # that of the bias before the normalization is zero


def test_what_the_candidate_raises_is_its_own_failure(backend: Callable[..., str]) -> None:
    with pytest.raises(ArithmeticError, match="own error"):
        check(Classifier, Mode.EVAL, backend(raises_when_run))


def test_nan_and_another_shape_are_incorrect(backend: Callable[..., str]) -> None:
    def gives_nan(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output * math.nan for output in graph(*args))

    def cuts_off(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output[1:] for output in graph(*args))

    for compiler in (gives_nan, cuts_off):
        found = check(Classifier, Mode.EVAL, backend(compiler))
        assert found.status is CheckStatus.INCORRECT
        assert found.comparisons[0].error is None
        assert msgspec.json.decode(msgspec.json.encode(found), type=Check) == found


def test_another_dtype_is_incorrect_however_close_the_numbers_are(backend: Callable[..., str]) -> None:
    def widens(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output.double() for output in graph(*args))

    found = check(Classifier, Mode.EVAL, backend(widens))
    assert (found.status, all(one.is_close for one in found.comparisons)) == (CheckStatus.INCORRECT, True)
    assert "is torch.float64, and torch.float32 in eager" in found.reason


class Noisy(Classifier):
    """Its step draws random numbers from the seeded generators: all runs draw the same."""

    def forward(self) -> Tensor:
        (x,) = self.batch.inputs
        return self.network(x + torch.randn_like(x)) * (1 + torch.rand(1)) + torch.zeros(3).bernoulli_(0.5)


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.AMP_BF16])
def test_random_numbers_of_a_step_are_the_same_in_all_runs_and_precisions(precision: Precision, mode: Mode) -> None:
    found = check(Noisy, mode, "aot_eager", precision=precision)
    assert found.status is CheckStatus.CORRECT, found


class NoisyNetwork(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 3)
        self.drop_rate = 0.5

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(x, self.drop_rate, self.training)
        return self.linear(x + torch.randn_like(x)) + torch.rand(3, device=x.device)


#: Its random numbers are drawn inside the compiled network.
NoisyInside = with_network(NoisyNetwork)


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_random_numbers_inside_the_compiled_network_are_eagers(name: str) -> None:
    assert check(NoisyInside, Mode.TRAIN, name).status is CheckStatus.CORRECT


@pytest.mark.parametrize(("model", "draws"), [(Classifier, False), (Noisy, True), (NoisyInside, True)])
def test_inductor_is_told_to_draw_as_eager_does_only_where_a_step_draws(
    model: type[Model], *, draws: bool, backend: Callable[..., str]
) -> None:
    told: list[bool] = []

    def notes(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        told.append(torch._inductor.config.fallback_random)
        return graph.forward

    assert check(model, Mode.TRAIN, backend(notes)).status is CheckStatus.CORRECT
    assert set(told) == {draws}
    assert not torch._inductor.config.fallback_random


class Single(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is torch.float64:
            raise RuntimeError("only\nfloat32, please")
        return super().forward(x)


OnlySingle = with_network(lambda: Single(6, 3))


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_without_a_reference_nothing_is_called_correct(name: str) -> None:
    found = check(OnlySingle, Mode.TRAIN, name)
    assert found.status is CheckStatus.REFERENCE_FAILED
    assert "only float32, please" in found.reason
    assert ("agrees with eager" if name == "aot_eager" else "agrees with itself") in found.reason


def test_without_a_reference_a_wrong_backend_is_still_incorrect(backend: Callable[..., str]) -> None:
    found = check(OnlySingle, Mode.EVAL, backend(adds_a_hundredth))
    assert found.status is CheckStatus.INCORRECT
    assert "only float32, please" in found.reason


class Otherwise(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + (x.dtype is torch.float64)


OtherwiseInDouble = with_network(lambda: Otherwise(6, 3))


def test_eager_that_is_not_what_fp64_gives_is_neither_correct_nor_incorrect() -> None:
    found = check(OtherwiseInDouble, Mode.EVAL)
    assert found.status is CheckStatus.REFERENCE_FAILED
    assert "differ by more than rounding" in found.reason


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("precision", [Precision.BF16, Precision.AMP, Precision.FP32, Precision.FP64])
def test_precisions_pass_by_their_own_tolerance(precision: Precision, name: str, mode: Mode) -> None:
    found = check(Classifier, mode, name, precision=precision)
    assert found.status in RIGHT, found
    first = found.comparisons[0]
    expected = {Precision.BF16: 5e-2, Precision.AMP: 5e-2, Precision.FP32: 1e-4, Precision.FP64: 1e-9}
    assert first.tolerance == expected[precision]
    if precision in (Precision.BF16, Precision.AMP):
        assert max(one.error for one in found.comparisons) > 1e-5
        assert name != "eager" or first.eager_error < 1e-5  # judged beside eager at the native precision


def test_a_wrong_result_is_found_at_low_precision_too(backend: Callable[..., str]) -> None:
    def doubles(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output * 1.5 for output in graph(*args))

    assert check(Classifier, Mode.EVAL, backend(doubles), precision=Precision.BF16).status is CheckStatus.INCORRECT


class IllConditioned(Classifier):
    """It normalises inputs that are almost equal, so that the outputs are nothing but the rounding of fp32."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16, eps=1e-30), nn.Linear(16, 3))

    def build_batch(self) -> Batch:
        same = self.data.uniform(1, 6).expand(self.batch_size, 6)
        return Batch((same.contiguous(),), self.data.labels(self.batch_size, 3))


def test_what_only_rounding_decides_is_not_judged(backend: Callable[..., str]) -> None:
    def rounds_otherwise(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output * torch.linspace(0.5, 1.5, 3) for output in graph(*args))

    found = check(IllConditioned, Mode.TRAIN, backend(rounds_otherwise))
    assert found.status is not CheckStatus.CORRECT, found


def test_an_exception_of_the_model_replaces_the_tolerance(backend: Callable[..., str]) -> None:
    wrong = backend(adds_a_hundredth)
    rule = ToleranceRule(reason="a test", tolerance=0.2, what=(ResultKind.OUTPUTS,), backend=(wrong,))
    lenient = msgspec.structs.replace(SPEC, tolerances=(rule,))
    assert check(Classifier, Mode.EVAL, wrong, lenient).status is CheckStatus.CORRECT
    other = msgspec.structs.replace(SPEC, tolerances=(msgspec.structs.replace(rule, mode=Mode.TRAIN),))
    assert check(Classifier, Mode.EVAL, wrong, other).status is CheckStatus.INCORRECT


@pytest.mark.parametrize("entry", ["{tolerance: 0.1, reason: ' '}", "{tolerance: 2, reason: x}", "{tolerance: 0.1}"])
def test_an_exception_without_a_reason_is_refused(tmp_path: Path, entry: str) -> None:
    folder = make_folder(tmp_path, "tiny", metadata=METADATA + f"tolerances: [{entry}]\n")
    with pytest.raises(SpecError, match=r"tolerance|reason"):
        read_spec(folder)


def test_flags_are_as_before() -> None:
    before = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.get_default_dtype())
    check(Classifier, Mode.EVAL, precision=Precision.FP32)
    after = (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32, torch.get_default_dtype())
    assert after == before


class ToyDetector(Model):
    """Gives a score to each of a few fixed boxes. Its detections are a dictionary, sorted by score."""

    def build(self) -> None:
        self.network = nn.Linear(4, 1)
        self.batch = (self.data.boxes(12, 100, 100),)

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}

    @property
    def example_inputs(self) -> tuple[Tensor]:
        return self.batch  # type: ignore[no-any-return]

    @torch.no_grad()
    def eval_step(self) -> list[dict[str, Tensor]]:
        (boxes,) = self.batch
        scores = self.network(boxes / 100).squeeze(1).sigmoid()
        order = scores.argsort(descending=True)
        return [{"boxes": boxes[order], "scores": scores[order], "labels": torch.ones(12, dtype=torch.long)}]


def test_a_detector_is_checked_as_a_set(backend: Callable[..., str]) -> None:
    def shifts_scores(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output + 2 for output in graph(*args))

    good = check(ToyDetector, Mode.EVAL, "aot_eager")
    assert (good.status, good.comparisons[0].what) == (CheckStatus.CORRECT, ResultKind.DETECTIONS)
    assert check(ToyDetector, Mode.EVAL, backend(shifts_scores)).status is CheckStatus.INCORRECT


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_the_command_line_says_so_and_its_status_is_1_for_an_incorrect_case(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    otherwise = '\n\nclass Otherwise(nn.Module):\n    """Computes something else where it is compiled."""\n\n'
    otherwise += "    def forward(self, x):\n        return x + 0.1 if torch.compiler.is_compiling() else x\n"
    make_folder(tmp_path, "good")
    make_folder(tmp_path, "wrong", TINY.replace("nn.Flatten()", "Otherwise(), nn.Flatten()") + otherwise)
    how = ["--models-dir", str(tmp_path), "--check", "--backend", "aot_eager", "-d", "cpu", "--threads", "1"]
    assert main(["run", "good", "-t", "train", *how, "--time-limit", "0.5"]) == 0
    assert "check: correct" in capsys.readouterr().out
    assert main(["run", "wrong", *how, "--time-limit", "0.5"]) == 1
    assert "incorrect" in capsys.readouterr().out.lower()


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_a_coarse_precision_is_judged_by_fp32_where_there_is_no_fp64(mode: Mode, name: str) -> None:
    found = check(OnlySingle, mode, name, precision=Precision.BF16)
    assert found.status in RIGHT, found.reason
    assert found.reason.startswith("judged by fp32, since in fp64 it raises RuntimeError: only float32, please")


def test_a_wrong_result_is_found_by_fp32_too(backend: Callable[..., str]) -> None:
    found = check(OnlySingle, Mode.EVAL, backend(adds_a_half), precision=Precision.BF16)
    assert found.status is CheckStatus.INCORRECT
    assert found.reason.startswith("judged by fp32")


class Large(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            raise torch.OutOfMemoryError("no GiB free")
        return super().forward(x)


NeedsMemory = with_network(lambda: Large(6, 3))


def test_a_reference_that_has_no_memory_beside_other_cases_ends_the_case_and_alone_it_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = 3 * 2**30
    monkeypatch.setattr("torchzoo.devices.cpu.CpuDevice.held_by_others", lambda _: held)
    with pytest.raises(torch.OutOfMemoryError, match="no GiB free"):
        check(NeedsMemory, Mode.EVAL, "aot_eager", precision=Precision.BF16)
    held = 2**30
    found = check(NeedsMemory, Mode.EVAL, "aot_eager", precision=Precision.BF16)
    assert found.reason.startswith("judged by fp32, since in fp64 it raises OutOfMemoryError: no GiB free")
