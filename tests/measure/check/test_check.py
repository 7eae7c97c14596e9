"""The check: wrong results are called so, right ones too, and what can't be judged is never called correct."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import examples
from examples import CASE, ROOT, SPEC
from torchzoo.analysis import figures
from torchzoo.case import Backend, Mode, Precision
from torchzoo.measure.check import check
from torchzoo.measure.check.check import check_case
from torchzoo.measure.check.comparing import CanNotCompare, Reference, Results, collect_outputs, on_host
from torchzoo.measure.check.comparing import compare as compare_and_allow
from torchzoo.measure.check.matching import Detections, from_rows, unmatched_share
from torchzoo.measure.check.randomness import RecordDraws, ReplayDraws, without_dropout
from torchzoo.measure.precision import LabelNotReached
from torchzoo.model import Model
from torchzoo.record import Check, CheckStatus, Comparison, Record, ResultKind
from torchzoo.report import summary
from torchzoo.report.tables import case_table
from torchzoo.tasks import Batch, SupervisedModel
from torchzoo.zoo.spec import SpecError, ToleranceRule, read_spec
from user_models import METADATA, TINY, make_folder

CPU = torch.device("cpu")


class Classifier(SupervisedModel):
    """With batch normalisation and dropout, trained by Adam."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(6, 16),
            nn.BatchNorm1d(16),
            nn.ReLU(),
            nn.Dropout(0.5),
            nn.Linear(16, 16),
            nn.ReLU(),
            nn.Linear(16, 3),
        )

    def build_batch(self) -> Batch:
        return Batch((self.data.uniform(self.batch_size, 6),), self.data.labels(self.batch_size, 3))

    def compute_loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets)


def check(model_class: type[Model], mode: Mode, backend: str = "eager", spec: Any = SPEC, **changes: Any) -> Check:
    name, _, option = backend.partition(":")
    case = msgspec.structs.replace(CASE, mode=mode, backend=Backend(name, option or None), batch_size=8, **changes)
    return check_case(case, spec, model_class, CPU)


@pytest.fixture
def backend() -> Any:
    """Registers a Dynamo backend that runs each graph by `run(graph_module, inputs)`, or after `edit(graph_module)`."""
    import torch._dynamo

    names: list[str] = []

    def register(compiler: Callable[..., Any]) -> str:
        name = f"torchzoo_test_{compiler.__name__}"
        torch._dynamo.register_backend(compiler, name=name)
        names.append(name)
        return name

    yield register
    for name in names:
        torch._dynamo.backends.registry._COMPILER_FNS.pop(name, None)
    torch._dynamo.reset()


def adds_a_hundredth(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(output + 0.01 for output in graph(*args))


def drops_a_relu(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    for node in graph.graph.nodes:
        if "relu" in str(node.target).lower():
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
            break
    else:
        raise AssertionError("there was no relu to drop")
    graph.recompile()
    return graph.forward


class _WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_: Any, gradient: Tensor) -> Tensor:
        return 1.02 * gradient


def has_a_wrong_gradient(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(_WrongGradient.apply(output) for output in graph(*args))


def is_right(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return graph.forward


def raises_when_run(*_: Any) -> Callable[..., Any]:
    def run(*_: Any) -> Any:
        raise ArithmeticError("the candidate's own error")

    return run


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", ["aot_eager", "inductor", "inductor:reduce-overhead", "torchscript:trace"])
def test_good_backends_are_correct(name: str, mode: Mode) -> None:
    found = check(Classifier, mode, name)
    assert found.status is CheckStatus.CORRECT, found
    kinds = [comparison.what for comparison in found.comparisons]
    assert kinds == (["outputs"] if mode is Mode.EVAL else ["loss", "gradients", "parameters", "buffers", "integers"])
    assert all(comparison.is_close for comparison in found.comparisons)
    errors = [comparison.error for comparison in found.comparisons]
    assert max(errors) > 0, "fp32 can't equal fp64: something was compared with itself"
    assert max(errors) < 1e-2


@pytest.mark.gpu
@pytest.mark.parametrize(
    "precision", [Precision.DEFAULT, Precision.FP32, Precision.TF32, Precision.AMP, Precision.BF16]
)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", ["eager", "inductor", "inductor:reduce-overhead", "cudagraphs"])
def test_good_backends_are_correct_on_a_gpu(name: str, mode: Mode, precision: Precision) -> None:
    def allocated_bytes() -> int:
        torch._C._cuda_clearCublasWorkspaces()  # 32 MiB on Hopper, kept by cuBLAS from its first product on
        return torch.cuda.memory_allocated()

    before = allocated_bytes()
    name, _, option = name.partition(":")
    case = msgspec.structs.replace(
        CASE, mode=mode, backend=Backend(name, option or None), batch_size=8, device="cuda", precision=precision
    )
    found = check_case(case, SPEC, Classifier, torch.device("cuda", 0))
    assert found.status is CheckStatus.CORRECT, found
    assert allocated_bytes() - before < 2**20


def test_a_step_compiled_whole_is_correct() -> None:
    from torchzoo.case import CompileScope

    found = check(Classifier, Mode.TRAIN, "aot_eager", compile_scope=CompileScope.STEP)
    assert found.status is CheckStatus.CORRECT, found


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


def test_a_wrong_gradient_alone_leaves_the_loss_close(backend: Callable[..., str]) -> None:
    found = check(Classifier, Mode.TRAIN, backend(has_a_wrong_gradient))
    assert {c.what: c.is_close for c in found.comparisons}[ResultKind.LOSS] is True


def test_a_right_backend_of_the_tests_own_is_correct(backend: Callable[..., str]) -> None:
    assert check(Classifier, Mode.TRAIN, backend(is_right)).status is CheckStatus.CORRECT


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


class Moody(Classifier):
    """No two runs agree, whatever is seeded."""

    runs = 0

    def forward(self) -> Tensor:
        type(self).runs += 1
        outputs: Tensor = super().forward()
        return outputs * (1 + 0.1 * type(self).runs)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_a_model_that_disagrees_with_itself_is_nondeterministic(name: str, mode: Mode) -> None:
    found = check(Moody, mode, name)
    assert found.status is CheckStatus.NONDETERMINISTIC
    assert "two runs of eager" in found.reason


class Noisy(Classifier):
    """Random numbers in its step, from the seeded generators: all runs draw the same."""

    def forward(self) -> Tensor:
        (x,) = self.batch.inputs
        return self.network(x + torch.randn_like(x)) * (1 + torch.rand(1)) + torch.zeros(3).bernoulli_(0.5)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("precision", [Precision.DEFAULT, Precision.BF16, Precision.AMP_BF16])
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


class NoisyInside(Classifier):
    """Random numbers inside the compiled network."""

    def build_network(self) -> nn.Module:
        return NoisyNetwork()


@pytest.mark.parametrize("name", ["aot_eager", "inductor"])
def test_random_numbers_inside_the_compiled_network_are_eagers(name: str) -> None:
    assert check(NoisyInside, Mode.TRAIN, name).status is CheckStatus.CORRECT


class Single(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        if x.dtype is torch.float64:
            raise RuntimeError("only\nfloat32, please")
        return super().forward(x)


class OnlySingle(Classifier):
    def build_network(self) -> nn.Module:
        return Single(6, 3)


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


class OtherwiseInDouble(Classifier):
    def build_network(self) -> nn.Module:
        return Otherwise(6, 3)


def test_eager_that_is_not_what_fp64_gives_is_neither_correct_nor_incorrect() -> None:
    found = check(OtherwiseInDouble, Mode.EVAL)
    assert found.status is CheckStatus.REFERENCE_FAILED
    assert "differ by more than rounding" in found.reason


class Steep(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(1000 * x)


class Chaotic(Classifier):
    """What TF32 rounds off decides its results; what fp32 does, hardly changes them."""

    def build_network(self) -> nn.Module:
        return nn.Sequential(nn.Linear(6, 3), Steep())


def rounds_where_tf32_is_allowed(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    """As a device with TF32 would: nothing at fp32."""
    return lambda *args: tuple(out + 0.5 * torch.backends.cudnn.allow_tf32 for out in graph(*args))


def adds_a_half(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
    return lambda *args: tuple(out + 0.5 for out in graph(*args))


@pytest.mark.parametrize(
    ("compiler", "status"),
    [(rounds_where_tf32_is_allowed, CheckStatus.CORRECT), (adds_a_half, CheckStatus.INCORRECT)],
)
def test_where_tf32_leaves_nothing_to_judge_by_the_same_program_is_judged_at_fp32(
    backend: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    compiler: Callable[..., Any],
    status: CheckStatus,
) -> None:
    arithmetic = {Precision.DEFAULT: Precision.TF32, Precision.FP32: Precision.FP32}
    monkeypatch.setattr(check._Runs, "_arithmetic", lambda runs: arithmetic[runs.case.precision])
    found = check(Chaotic, Mode.EVAL, backend(compiler))
    assert (found.status, found.judged_at) == (status, Precision.FP32)
    assert found.reason.startswith("judged at fp32, since at TF32 nothing to judge by: outputs")
    assert ("; outputs: output is off by" in found.reason) == (status is CheckStatus.INCORRECT)


class NeverCompiled(Classifier):
    def build_network(self) -> nn.Module:
        network = nn.Linear(6, 3)
        network.forward = torch.compiler.disable(network.forward)  # type: ignore[method-assign]
        return network


def test_a_backend_that_compiles_nothing_is_not_found_correct() -> None:
    with pytest.raises(LabelNotReached, match="nothing to compile"):
        check(NeverCompiled, Mode.EVAL, "aot_eager")


class Restless(Classifier):
    """No two of its steps give the same where TF32 is allowed; elsewhere they do."""

    steps = itertools.count()

    def eval_step(self) -> Tensor:
        logits: Tensor = super().eval_step()
        has_tf32 = torch.backends.cudnn.allow_tf32 and logits.dtype is torch.float32
        return logits + next(self.steps) if has_tf32 else logits


@pytest.mark.parametrize(("compiler", "status"), [(None, CheckStatus.CORRECT), (adds_a_half, CheckStatus.INCORRECT)])
def test_where_two_runs_of_eager_agree_at_fp32_alone_the_backend_is_judged_there(
    backend: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    compiler: Callable[..., Any] | None,
    status: CheckStatus,
) -> None:
    arithmetic = {Precision.DEFAULT: Precision.TF32, Precision.FP32: Precision.FP32}
    monkeypatch.setattr(check._Runs, "_arithmetic", lambda runs: arithmetic[runs.case.precision])
    found = check(Restless, Mode.EVAL, "aot_eager" if compiler is None else backend(compiler))
    assert (found.status, found.judged_at) == (status, Precision.FP32)
    assert found.reason.startswith("judged at fp32, since at TF32 two runs of eager from the same seed differ")
    alone = check(Restless, Mode.EVAL)
    assert (alone.status, alone.judged_at) == (CheckStatus.NONDETERMINISTIC, None)


def test_other_precisions_than_tf32_are_not_judged_by_fp32(backend: Callable[..., str]) -> None:
    found = check(Chaotic, Mode.EVAL, backend(adds_a_half), precision=Precision.BF16)
    assert (found.status, found.judged_at) == (CheckStatus.REFERENCE_FAILED, None)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", ["eager", "aot_eager"])
@pytest.mark.parametrize("precision", [Precision.BF16, Precision.AMP, Precision.FP32, Precision.FP64])
def test_precisions_pass_by_their_own_tolerance(precision: Precision, name: str, mode: Mode) -> None:
    found = check(Classifier, mode, name, precision=precision)
    assert found.status is CheckStatus.CORRECT, found
    first = found.comparisons[0]
    expected = {Precision.BF16: 5e-2, Precision.AMP: 5e-2, Precision.FP32: 1e-4, Precision.FP64: 1e-9}
    assert first.tolerance == expected[precision]
    if precision in (Precision.BF16, Precision.AMP):
        assert first.error > 1e-5
        assert name != "eager" or first.eager_error < 1e-5  # native eager beside it


def test_a_wrong_result_is_found_at_low_precision_too(backend: Callable[..., str]) -> None:
    def doubles(graph: Any, _: Any) -> Callable[..., Any]:
        return lambda *args: tuple(output * 1.5 for output in graph(*args))

    assert check(Classifier, Mode.EVAL, backend(doubles), precision=Precision.BF16).status is CheckStatus.INCORRECT


class IllConditioned(Classifier):
    """Two almost equal images normalised: rounding in the last digits of fp32 is all that the outputs hold."""

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


# Errors and rules


def compare(*arguments: Any, **options: Any) -> Comparison:
    return compare_and_allow(*arguments, **options).comparison


def results(**tensors: Tensor) -> Results:
    return Results(values={ResultKind.GRADIENTS: dict(tensors)})


def test_noise_in_a_gradient_that_should_be_zero_is_no_error() -> None:
    big = torch.randn(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    yardstick = Reference(results(weight=big, bias=torch.full((10,), 1e-12)))
    noisy = results(weight=big * (1 + 1e-6), bias=torch.full((10,), 1e-7))
    comparison = compare(ResultKind.GRADIENTS, yardstick, noisy, tolerance=1e-3)
    assert comparison.is_close
    wrong = results(weight=big, bias=torch.full((10,), 0.1))
    comparison = compare(ResultKind.GRADIENTS, yardstick, wrong, tolerance=1e-3)
    assert (comparison.is_close, comparison.worst) == (False, "bias")


def test_errors_may_be_a_small_multiple_of_eagers_but_never_most_of_the_result() -> None:
    reference = torch.ones(100, dtype=torch.float64)

    def judged(error: float, eager_error: float) -> bool | None:
        found, eager = results(w=reference * (1 + error)), results(w=reference * (1 - eager_error))
        return compare(
            ResultKind.GRADIENTS, Reference(results(w=reference)), found, tolerance=1e-3, beside=eager, eager=eager
        ).is_close

    assert judged(0.02, 0.01) is True
    assert judged(0.05, 0.01) is False
    assert judged(0.5, 0.4) is None  # eager itself is far off: nothing to judge by
    assert judged(-0.4, 0.4) is True  # but as eager computes


def test_adams_updates_of_noise_gradients_weigh_nothing_and_of_real_ones_do() -> None:
    gradient = torch.tensor([1.0, -0.5, 1e-9, -1e-9], dtype=torch.float64)
    update = -1e-3 * gradient.sign()
    reference = Results(values={ResultKind.PARAMETERS: {"w": update}}, weights={"w": gradient.abs()})

    def is_close(*signs: float) -> bool | None:
        found = Results(values={ResultKind.PARAMETERS: {"w": update * torch.tensor(signs)}})
        return compare(ResultKind.PARAMETERS, Reference(reference), found, tolerance=1e-3).is_close

    assert is_close(1, 1, -1, -1)
    assert is_close(1, -1, 1, 1) is False


def test_an_update_below_the_resolution_of_the_weights_is_not_judged() -> None:
    reference = Results(values={ResultKind.PARAMETERS: {"w": torch.full((10,), 1e-5, dtype=torch.float64)}})
    lost = Results(values={ResultKind.PARAMETERS: {"w": torch.zeros(10)}}, resolution={"w": 2**-7 * 10**0.5})
    assert compare(ResultKind.PARAMETERS, Reference(reference), lost, tolerance=0.1).is_close is None


def test_an_update_may_be_twice_as_far_off_as_its_gradient() -> None:
    update = torch.ones(10, dtype=torch.float64)
    yardstick = Reference(Results(values={ResultKind.PARAMETERS: {"w": update}}))
    found = Results(values={ResultKind.PARAMETERS: {"w": 1.05 * update}})
    for allowed, is_close in ((0.1, True), (0.01, False)):
        comparison = compare(ResultKind.PARAMETERS, yardstick, found, tolerance=1e-3, at_least={"w": allowed})
        assert comparison.is_close is is_close


def test_large_sparse_gradients_are_compared_as_dense_ones() -> None:
    table = torch.zeros(2**16, 32)
    table[7], table[9] = 1.0, 2.0
    assert on_host(table).is_sparse
    for other in (on_host(table), table.clone(), on_host(table.to_sparse())):
        assert compare(
            ResultKind.GRADIENTS, Reference(results(w=on_host(table))), results(w=other), tolerance=0.0
        ).is_close
    wrong = table.clone()
    wrong[8] = 0.5
    for other in (on_host(wrong), wrong):
        comparison = compare(
            ResultKind.GRADIENTS, Reference(results(w=on_host(table))), results(w=other), tolerance=0.1
        )
        assert comparison.error == pytest.approx(0.5 / 5**0.5)
    figures = torch.sparse_coo_tensor(torch.tensor([[9, 7]]), torch.tensor([[2.0] * 32, [1.0] * 32]), table.shape)
    moved = Results(values={ResultKind.PARAMETERS: {"w": 1.1 * table}})
    for weights in (on_host(table), on_host(figures)):  # made sparse here, or by the embedding
        weighted = Results(values={ResultKind.PARAMETERS: {"w": on_host(table)}}, weights={"w": weights})
        assert compare(ResultKind.PARAMETERS, Reference(weighted), moved, tolerance=0.0).error == pytest.approx(0.1)


def test_integers_are_compared_by_the_share_that_differs() -> None:
    tokens = torch.arange(100)
    changed = tokens.clone()
    changed[0] = 7
    yardstick = Reference(Results(values={ResultKind.INTEGERS: {"tokens": tokens}}))
    found = Results(values={ResultKind.INTEGERS: {"tokens": changed}})
    comparison = compare(ResultKind.INTEGERS, yardstick, found, tolerance=0.0)
    assert (comparison.error, comparison.is_close) == (0.01, False)
    assert compare(ResultKind.INTEGERS, yardstick, found, tolerance=0.02).is_close


def test_equal_infinities_are_equal() -> None:
    mask = torch.tensor([0.0, -math.inf])
    yardstick = Reference(results(w=mask))
    assert compare(ResultKind.GRADIENTS, yardstick, results(w=mask.clone()), tolerance=0.1).is_close
    assert compare(ResultKind.GRADIENTS, yardstick, results(w=mask.abs()), tolerance=0.1).is_close is False


def test_outputs_of_unknown_kind_are_not_passed_over() -> None:
    with pytest.raises(CanNotCompare, match="output\\['a'\\] is a object"):
        collect_outputs({"a": object()}, figures=False)


def test_draws_are_given_again_in_another_dtype_until_the_ways_part() -> None:
    recorded = RecordDraws()
    with recorded:
        first, second = torch.randn(3), torch.randperm(5)
        third = torch.empty(2).uniform_()
    with ReplayDraws(recorded.draws):
        assert torch.equal(torch.randn(3, dtype=torch.float64), first.double())
        assert torch.equal(torch.randperm(5), second)
        assert torch.equal(torch.empty(2, dtype=torch.float64).uniform_(), third.double())
    with ReplayDraws(recorded.draws):
        assert not torch.equal(torch.randn(4), torch.randn(4))
        assert not torch.equal(torch.randn(3), first)


def test_every_kind_of_dropout_is_off() -> None:
    class Layered(Classifier):
        def build_network(self) -> nn.Module:
            network = nn.ModuleList(
                [nn.Dropout2d(0.3), nn.LSTM(4, 4, 2, dropout=0.2), nn.MultiheadAttention(4, 2, dropout=0.1)]
            )
            network.layerdrop = 0.4  # type: ignore[assignment]
            return network

    model = Layered(Mode.TRAIN, "cpu", 2)
    without_dropout(model)
    dropout, lstm, attention = model.network  # type: ignore[misc]
    assert (dropout.p, lstm.dropout, attention.dropout, model.network.layerdrop) == (0.0, 0.0, 0.0, 0.0)


# Detections


def detections(count: int = 20) -> Detections:
    generator = torch.Generator().manual_seed(1)
    corner = torch.rand(count, 2, generator=generator, dtype=torch.float64) * 500
    extent = 20 + torch.rand(count, 2, generator=generator, dtype=torch.float64) * 100
    scores = torch.linspace(0.9, 0.2, count, dtype=torch.float64)
    return Detections(torch.cat([corner, corner + extent], 1), scores, torch.arange(count) % 3)


def test_detections_in_another_order_are_the_same_set() -> None:
    one = detections()
    order = torch.randperm(20, generator=torch.Generator().manual_seed(2))
    assert unmatched_share(Detections(one.boxes[order], one.scores[order], one.labels[order]), one) == 0


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda d: Detections(d.boxes[1:], d.scores[1:], d.labels[1:]), 1 / 39),
        (lambda d: d._replace(boxes=d.boxes + torch.tensor([40.0, 0, 40, 0]) * (torch.arange(20) == 3)[:, None]), 0.05),
        (lambda d: d._replace(labels=d.labels + 3 * (torch.arange(20) == 3)), 0.05),
        (lambda d: d._replace(scores=d.scores - 0.1 * (torch.arange(20) == 3)), 0.05),
        (lambda d: d._replace(boxes=d.boxes * math.nan), 1.0),
    ],
    ids=["missing", "shifted", "label", "score", "nan"],
)
def test_a_detection_that_is_missing_or_another_has_no_partner(
    change: Callable[[Detections], Detections], share: float
) -> None:
    assert unmatched_share(change(detections()), detections()) == pytest.approx(share)


def test_masks_of_matched_boxes_must_overlap() -> None:
    box = torch.tensor([[0.0, 0, 8, 8]], dtype=torch.float64)
    mask = torch.zeros(1, 10, 10)
    mask[0, :8, :8] = 1
    one = Detections(box, torch.ones(1), torch.ones(1), mask)
    assert unmatched_share(one, one) == 0
    assert unmatched_share(one._replace(masks=mask.flip(1)), one) == 1


def test_rows_of_score_zero_only_fill_up() -> None:
    found = from_rows(torch.tensor([[0.0, 0, 1, 1, 0.5, 7], [0, 0, 0, 0, 0, 0]]))
    assert (len(found.boxes), found.labels.tolist()) == (1, [7])


class ToyDetector(Model):
    """A score for each of a few fixed boxes; detections sorted by score, as a dictionary."""

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


# What is said of it


def checked(status: CheckStatus, model: str = "tiny") -> Record:
    comparison = Comparison(
        what=ResultKind.GRADIENTS,
        worst="network.fc.weight",
        error=0.25,
        eager_error=1e-5,
        tolerance=1e-3,
        is_close=False,
    )
    verdict = Check(status=status, reason="gradients: network.fc.weight is off by 0.25", comparisons=(comparison,))
    outcome = msgspec.structs.replace(examples.compared(), check=verdict)
    return examples.record(outcome, backend=examples.INDUCTOR, model=model)


@pytest.mark.parametrize("status", [s for s in CheckStatus if s is not CheckStatus.CORRECT])
def test_reports_say_what_a_check_found(status: CheckStatus) -> None:
    from test_report import rendered

    said = "; ".join(figures.remarks(checked(status).outcome))  # type: ignore[arg-type]
    assert status.replace("_", " ") in said.lower().replace("_", " ")
    assert "network.fc.weight" in said
    table = rendered(case_table(checked(status)))
    assert "network.fc.weight" in table
    assert "0.25" in table


def test_a_wrong_results_speedup_is_not_counted() -> None:
    good, wrong = checked(CheckStatus.CORRECT, "a"), checked(CheckStatus.INCORRECT, "b")
    manifest = examples.manifest(cases=(good.case, wrong.case))
    assert "1 of them incorrect" in summary.counts(manifest, [good, wrong])
    both = summary.speedups(manifest, [good, wrong])
    alone = summary.speedups(manifest, [good])
    assert msgspec.json.encode(str(both)) == msgspec.json.encode(str(alone))
    assert figures.row(wrong).speedup is not None  # type: ignore[union-attr]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "run.py"), *arguments, "-d", "cpu", "--threads", "1", "--time-limit", "1"]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)


def test_the_command_line_says_so_and_its_status_is_1_for_an_incorrect_case(tmp_path: Path) -> None:
    good = tmp_path / "zoo" / "tiny"
    make_folder(good.parent, good.name)
    done = run("tiny", "--models-dir", str(good.parent), "--check", "--backend", "aot_eager", "-t", "train")
    assert done.returncode == 0, done.stderr
    assert "correct" in done.stdout
    wrong = (
        TINY.replace("nn.Flatten()", "Compiled(), nn.Flatten()")
        + '''

class Compiled(nn.Module):
    """Computes something else where it is compiled."""

    def forward(self, x):
        return x + 0.1 if torch.compiler.is_compiling() else x
'''
    )
    make_folder(good.parent, "wrong", wrong)
    done = run("wrong", "--models-dir", str(good.parent), "--check", "--backend", "aot_eager")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "incorrect" in done.stdout.lower()
