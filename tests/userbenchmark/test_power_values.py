"""Other values of weights beside a model's own: how they are drawn, that they come and go, and the report."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch
from benchmark_runs import report, run_of, table
from torch import Tensor, nn

from examples import compared, record
from torchzoo import backends
from torchzoo.backends import NotRunnable
from torchzoo.case import Backend, Case, Mode
from torchzoo.measure.measure_case import Assignment, measure_case
from torchzoo.record import DeviceState, Measured, Record
from torchzoo.run.plan import skip_reason
from torchzoo.settings import Settings
from torchzoo.zoo.catalog import find_models
from user_models import make_folder

other_values = backends.module_of("power_values/values")
ALPHA, SPARSITY, Trained = other_values.ALPHA, other_values.SPARSITY, other_values.Trained
ZEROS = Backend("power_values/values", "zeros")


def exponent(matrix: Tensor) -> float:
    """Hill's estimate of the exponent of the tail of the eigenvalues' density."""
    eigenvalues = torch.linalg.svdvals(matrix.float()).square().sort(descending=True).values
    top = eigenvalues.numel() // 8
    return 1 + 1 / float((eigenvalues[:top] / eigenvalues[top]).log().mean())


@pytest.mark.parametrize("shape", [(256, 256), (512, 256), (256, 512), (256, 64, 3, 3)])
def test_weights_like_trained_ones_have_their_spectrum_and_the_shape_and_norm_of_the_own(
    shape: tuple[int, ...],
) -> None:
    own = 0.02 * torch.randn(shape, generator=torch.Generator().manual_seed(1))
    made = Trained(torch.device("cpu")).like(own)
    assert (made.shape, made.dtype) == (own.shape, own.dtype)
    assert float(made.norm()) == pytest.approx(float(own.norm()), rel=1e-3)
    assert 2 <= exponent(made.flatten(1)) <= 4.5
    assert exponent(own.flatten(1)) > exponent(made.flatten(1)) + 1  # a random matrix has no such tail
    assert 2 <= ALPHA <= 4


def test_a_pruned_matrix_is_mostly_zeros_and_keeps_its_largest_values() -> None:
    own = torch.randn(128, 96, generator=torch.Generator().manual_seed(1))
    whole, pruned = Trained(torch.device("cpu")).like(own), Trained(torch.device("cpu")).pruned(own)
    assert float((pruned == 0).float().mean()) == pytest.approx(SPARSITY, abs=0.001)
    is_kept = pruned != 0
    assert torch.equal(pruned[is_kept], whole[is_kept])
    assert whole[~is_kept].abs().max() <= whole[is_kept].abs().min()


class Looked(nn.Module):
    """An embedding whose weights are also those of the last layer, and one more layer."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(8, 4)
        self.layer, self.last = nn.Linear(4, 4), nn.Linear(4, 8, bias=False)
        self.last.weight = self.table.weight


class FakeModel:
    device = torch.device("cpu")

    def __init__(self, network: nn.Module) -> None:
        self.network = network

    def networks(self) -> dict[str, nn.Module]:
        return {"network": self.network}


def test_other_values_are_there_in_the_step_alone_and_embeddings_stay() -> None:
    network = Looked()
    model = FakeModel(network)
    assert other_values.matrices(model) == [network.layer.weight]
    own, table = network.layer.weight.clone(), network.table.weight.clone()
    step = other_values.changed_step(model, lambda: (network.layer.weight.clone(), network.table.weight.clone()), ZEROS)
    seen, seen_table = step()
    assert not seen.any()
    assert torch.equal(seen_table, table)
    assert torch.equal(network.layer.weight, own)


def test_a_step_that_fails_leaves_the_own_values() -> None:
    network = nn.Linear(4, 4)
    own = network.weight.clone()

    def fails() -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        other_values.changed_step(FakeModel(network), fails, ZEROS)()
    assert torch.equal(network.weight, own)
    with pytest.raises(NotRunnable, match="no matrices"):
        other_values.changed_step(FakeModel(nn.LayerNorm(4)), fails, ZEROS)


def test_a_tiny_model_is_measured_with_other_values(tmp_path: Path) -> None:
    make_folder(tmp_path, "tiny")
    spec = find_models([tmp_path]).spec("tiny")
    case = Case(
        model="tiny", mode=Mode.EVAL, device="cpu", backend=Backend("power_values/values", "trained"), batch_size=2
    )
    assert skip_reason(case, spec, {}) is None
    settings = Settings(time_limit_s=0.05, min_time_s=0.02)
    found = measure_case(Assignment(case=case, spec=spec, device="cpu", settings=settings))
    assert isinstance(found, Measured)
    assert set(found.variants) == {"eager", "candidate"}
    assert len(found.blocks) >= 12
    training = msgspec.structs.replace(case, mode=Mode.TRAIN)
    assert skip_reason(training, spec, {}) is not None


def at_limit(ratio: float, limited_s: float | None) -> Measured:
    blocks = tuple(
        msgspec.structs.replace(
            block, samples_s=tuple(s if block.variant == "eager" else 0.2 * ratio for s in block.samples_s)
        )
        for block in compared().blocks
    )
    states = [
        DeviceState(throttled_s={} if limited_s is None else {"software power cap": at})
        for at in (1.0, 1.0 + (limited_s or 0.0))
    ]
    return msgspec.structs.replace(
        compared(), blocks=blocks, device_state_before=states[0], device_state_after=states[1]
    )


def of(model: str, values: str, outcome: Measured) -> Record:
    return record(outcome, model=model, backend=Backend("power_values/values", values))


def test_the_report_has_a_ratio_for_each_kind_of_values_and_means_of_those_at_the_limit() -> None:
    records = [of(name, "zeros", at_limit(0.9, 3.2)) for name in "abcd"]
    records += [of("a", "trained", at_limit(1.02, 640.0)), of("e", "zeros", at_limit(0.5, 0.0))]
    records += [of("f", "zeros", at_limit(1.0, None))]
    records.append(of("b", "pruned", at_limit(0.95, 3.2)))
    rows = {row[0].split()[0]: row for row in table(report("power_values", run_of(records)), "case")}
    assert rows["a"][2:] == ["1.020x [1.020, 1.020]", "", "0.900x [0.900, 0.900]", "100%"]
    assert rows["b"][2:4] == ["", "0.950x [0.950, 0.950]"]
    assert (rows["e"][5], rows["f"][5]) == ("0%", "not known")
    mean = rows["geometric"]
    assert mean[0] == "geometric mean of 4 at the limit"
    assert mean[4].startswith("0.900x [")  # without e and f
    assert mean[2].endswith("(1 model: too few for an interval)")
