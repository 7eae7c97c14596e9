"""Operations and bytes of a step against values computed by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from measuring import measure
from torch import Tensor, distributed, nn
from torch._prims.rng_prims import run_with_rng_state
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torch.testing._internal.distributed.fake_pg import FakeStore

from torchzoo.case import Mode
from torchzoo.measure.passes.flops import computes_much, count_work
from torchzoo.settings import Pass


def by_operator(step: Callable[[], Any]) -> dict[str, int]:
    return {name: sum(by_dtype.values()) for name, by_dtype in count_work(step).by_operator.items()}


@torch.no_grad()
def test_resnet18_at_224_is_363_gflop_an_image() -> None:
    models = pytest.importorskip("torchvision.models")
    with torch.device("meta"):
        network, images = models.resnet18().eval(), torch.zeros(1, 3, 224, 224)
    work = count_work(lambda: network(images))
    assert work.total / 1e9 == pytest.approx(3.63, abs=0.005)
    assert sum(sum(each.values()) for each in work.by_operator.values()) == work.total
    assert work.without_formula == {}


def test_a_gpt_block_by_hand() -> None:
    batch, length, width, heads = 2, 8, 16, 4
    project, attend_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
    widen, narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    x = torch.randn(batch, length, width)

    def block() -> Tensor:
        q, k, v = (
            part.view(batch, length, heads, width // heads).transpose(1, 2) for part in project(x).chunk(3, dim=-1)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return narrow(F.gelu(widen(attend_out(attended.transpose(1, 2).reshape(x.shape)))))

    tokens = batch * length
    products = 2 * tokens * width * (3 * width + width + 4 * width + 4 * width)
    attention = 2 * 2 * batch * length * length * width  # scores, and their sum over values; the masked half too
    with torch.no_grad():
        assert count_work(block).total == products + attention
    # backward has two products for each product of forward, but only one for the first, whose input needs no gradient.
    # Attention has five for its two, since it computes the scores again.
    backward = 2 * products - 2 * tokens * width * 3 * width + 5 * attention // 2
    assert count_work(lambda: block().sum().backward()).total == products + attention + backward


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("transposed", [False, True])
def test_each_gradient_of_a_convolution_costs_its_forward_pass(groups: int, *, transposed: bool) -> None:
    """PyTorch's own formula counts the weight's gradient `groups` times over."""
    kind = nn.ConvTranspose2d if transposed else nn.Conv2d
    layer = kind(8, 16, 3, groups=groups)
    x = torch.randn(2, 8, 10, 10, requires_grad=True)
    positions = 10 * 10 if transposed else 8 * 8
    forward = 2 * 2 * positions * 8 * 16 * 9 // groups
    assert by_operator(lambda: layer(x).sum().backward()) == {
        "aten::convolution": forward,
        "aten::convolution_backward": 2 * forward,
    }
    assert by_operator(lambda: layer(x.detach()).sum().backward())["aten::convolution_backward"] == forward


@pytest.mark.parametrize(("layer", "gates"), [(nn.LSTM, 4), (nn.GRU, 3), (nn.RNN, 1)], ids=["lstm", "gru", "rnn"])
def test_recurrent_layers_count_each_matrix_at_each_step(layer: type[nn.RNNBase], gates: int) -> None:
    steps, batch, inputs, hidden = 5, 3, 16, 32
    network = layer(inputs, hidden, num_layers=2, bidirectional=True)
    x = torch.randn(steps, batch, inputs, requires_grad=True)
    first, second = inputs + hidden, 2 * hidden + hidden
    forward = 2 * steps * batch * 2 * gates * hidden * (first + second)
    with torch.no_grad():
        assert count_work(lambda: network(x)).total == forward
    assert count_work(lambda: network(x)[0].sum().backward()).total == pytest.approx(3 * forward, rel=0.1)


def test_cudnns_recurrent_layers_are_counted_by_their_weights() -> None:
    """The operator runs on NVIDIA only; its formulas need shapes alone."""
    from torchzoo.measure.passes.flop_formulas import FORMULAS

    network = nn.LSTM(16, 32, num_layers=2)
    weights = list(network.parameters())
    x = torch.empty(5, 3, 16)
    forward = 2 * 5 * 3 * 4 * 32 * (16 + 32 + 32 + 32)
    assert FORMULAS[torch.ops.aten._cudnn_rnn](x, weights, 4, None, out_val=None) == forward
    backward = FORMULAS[torch.ops.aten._cudnn_rnn_backward]
    assert backward(x, weights, 4, [True, True, True, True], out_val=None) == 2 * forward
    assert backward(x, weights, 4, [True, True, True, False], out_val=None) == forward
    packed = torch.empty(11, 16)  # 11 of the 5 x 3 time steps: some sequences are shorter
    assert FORMULAS[torch.ops.aten._cudnn_rnn](packed, weights, 4, None, out_val=None) == forward * 11 // 15


@pytest.mark.gpu
def test_an_lstm_on_the_gpu_has_the_operations_of_the_one_on_the_cpu() -> None:
    network, x = nn.LSTM(16, 32, num_layers=2).cuda(), torch.randn(5, 3, 16, device="cuda")
    work = count_work(lambda: network(x)[0].sum().backward())
    forward = 2 * 5 * 3 * 4 * 32 * (16 + 32 + 32 + 32)
    assert {name: each["float32"] for name, each in work.by_operator.items()} == {
        "aten::_cudnn_rnn": forward,
        "aten::_cudnn_rnn_backward": 2 * forward,
    }


MATRIX, VECTOR = torch.randn(6, 7), torch.randn(7)
PRODUCTS = [
    (lambda: torch.mv(MATRIX, VECTOR), 2 * 6 * 7),
    (lambda: torch.addmv(torch.randn(6), MATRIX, VECTOR), 2 * 6 * 7),
    (lambda: torch.dot(VECTOR, VECTOR), 2 * 7),
    (lambda: torch.addbmm(torch.randn(6, 5), torch.randn(3, 6, 7), torch.randn(3, 7, 5)), 2 * 3 * 6 * 7 * 5),
    (lambda: torch.randn(6, 5).addmm_(MATRIX, torch.randn(7, 5)), 2 * 6 * 7 * 5),
    (lambda: torch.ops.aten._addmm_activation(torch.randn(5), MATRIX, torch.randn(7, 5)), 2 * 6 * 7 * 5),
    (lambda: F.bilinear(torch.randn(9, 3), torch.randn(9, 4), torch.randn(5, 3, 4)), 3 * 9 * 5 * 3 * 4),
]


@pytest.mark.parametrize(("step", "operations"), PRODUCTS)
def test_smaller_products(step: Callable[[], Tensor], operations: int) -> None:
    assert count_work(step).total == operations


def test_a_grouped_product_counts_each_row_once_whatever_the_number_of_groups() -> None:
    rows, inputs, outputs, groups = 12, 16, 8, 3
    x = torch.randn(rows, inputs, requires_grad=True)
    weights = torch.randn(groups, inputs, outputs, requires_grad=True)
    ends = torch.tensor([4, 4, 12], dtype=torch.int32)  # one group is empty

    def step() -> None:
        F.grouped_mm(x, weights, offs=ends).backward(torch.ones(rows, outputs))

    assert by_operator(step) == {"aten::_grouped_mm": 3 * 2 * rows * inputs * outputs}  # and the two gradients
    three, two = torch.randn(groups, 4, inputs), torch.randn(inputs, rows)
    assert by_operator(lambda: F.grouped_mm(three, two, offs=ends)) == {"aten::_grouped_mm": 2 * 4 * inputs * rows}


@pytest.mark.parametrize("unitriangular", [False, True])
def test_a_triangular_system_takes_half_of_a_product(*, unitriangular: bool) -> None:
    a, b = torch.eye(16).expand(5, 16, 16), torch.randn(5, 16, 7)
    work = by_operator(lambda: torch.linalg.solve_triangular(a, b, upper=False, unitriangular=unitriangular))
    assert work == {"aten::linalg_solve_triangular": 5 * 7 * 16 * (15 if unitriangular else 16)}


def test_distances_between_all_rows_are_a_product() -> None:
    work = by_operator(lambda: torch.cdist(torch.randn(3, 40, 6), torch.randn(3, 50, 6)))
    assert work == {"aten::_euclidean_dist": 3 * 2 * 40 * 50 * (6 + 2)}


def test_a_deformable_convolution() -> None:
    ops = pytest.importorskip("torchvision.ops")
    layer = ops.DeformConv2d(4, 6, 3)
    x, offset = torch.randn(2, 4, 9, 9, requires_grad=True), torch.randn(2, 18, 7, 7)
    forward = 2 * 2 * 6 * 7 * 7 * 4 * 9
    assert by_operator(lambda: layer(x, offset).sum().backward()) == {
        "torchvision::deform_conv2d": forward,
        "torchvision::_deform_conv2d_backward": 2 * forward,
    }


@pytest.mark.filterwarnings("ignore")
def test_quantized_layers_count_as_what_they_stand_for() -> None:
    network = nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5)).eval()
    x = torch.randn(2, 4, 8, 8)
    plain = count_work(lambda: network(x)).total
    network = nn.Sequential(torch.ao.quantization.QuantStub(), *network, torch.ao.quantization.DeQuantStub()).eval()
    network.qconfig = torch.ao.quantization.get_default_qconfig("onednn")
    torch.ao.quantization.prepare(network, inplace=True)(x)
    torch.ao.quantization.convert(network, inplace=True)
    work = count_work(lambda: network(x))
    assert work.total == plain
    assert {dtype for each in work.by_operator.values() for dtype in each} == {"quint8"}


def test_what_has_no_formula_is_named() -> None:
    work = count_work(lambda: torch.linalg.inv(torch.fft.rfft(torch.randn(3, 4, 6)).real))
    assert work.total == 0
    assert work.without_formula == {"aten::_fft_r2c": 1, "aten::linalg_inv_ex": 1}


def test_a_custom_operator_may_compute_anything() -> None:
    @torch.library.custom_op("torchzoo_tests::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    work = count_work(lambda: twice(twice(torch.ones(3))))
    assert work.without_formula == {"torchzoo_tests::twice": 2}
    assert work.bytes_moved == 12 + 2 * 24


@pytest.mark.parametrize(
    ("name", "much"),
    [
        ("aten::_grouped_mm", True),
        ("aten::_scaled_dot_product_fused_attention_overrideable", True),
        ("aten::linalg_solve_ex", True),
        ("aten::miopen_convolution", True),
        ("quantized::conv2d_add_relu", True),
        ("some_library::anything", True),
        ("aten::add", False),
        ("aten::native_batch_norm", False),
        ("aten::linalg_vector_norm", False),
        ("aten::_thnn_fused_lstm_cell", False),
        ("aten::_weight_norm_interface", False),
        ("torchvision::nms", False),
        ("quantized::conv2d_prepack", False),
    ],
)
def test_which_operators_compute_much(name: str, much: bool) -> None:  # noqa: FBT001
    assert computes_much(name) is much


def test_second_derivatives_and_vmap_are_counted() -> None:
    weight = torch.randn(4, 4, requires_grad=True)

    def second() -> Tensor:
        (gradient,) = torch.autograd.grad((torch.ones(3, 4) @ weight).pow(3).sum(), weight, create_graph=True)
        (second,) = torch.autograd.grad(gradient.sum(), weight)
        return second

    assert count_work(second).total == 4 * 2 * 3 * 4 * 4  # forward, backward, and backward through each
    many = torch.func.vmap(lambda x: x @ MATRIX)
    assert count_work(lambda: many(torch.randn(3, 2, 6))).total == 2 * 3 * 2 * 6 * 7


def test_attention_counts_the_heads_of_queries_that_share_keys() -> None:
    query = torch.randn(2, 8, 5, 4, requires_grad=True)
    key, value = (torch.randn(2, 2, 7, 4, requires_grad=True) for _ in range(2))

    def step() -> None:
        F.scaled_dot_product_attention(query, key, value, enable_gqa=True).sum().backward()

    work = count_work(step)
    assert not work.without_formula
    assert work.total == 2 * (2 + 5) * (2 * 8 * 5 * 7 * 4)  # two products, and five in the backward pass
    assert work.attention == {
        "scaled_dot_product_flash_attention_for_cpu (query 2x8x5x4, key 2x2x7x4, value 2x2x7x4, not causal)": 1
    }


def test_an_operator_that_runs_with_saved_random_numbers_is_seen() -> None:
    """As recomputation in compiled code runs it, attention included."""
    q = torch.randn(1, 2, 3, 4)
    attention = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    work = count_work(lambda: run_with_rng_state(torch.get_rng_state(), attention, q, q, q))
    assert not work.without_formula
    assert work.total == 2 * 2 * (2 * 3 * 3 * 4)
    assert sum(work.attention.values()) == 1


def test_under_autocast_operations_are_of_the_dtype_that_it_chose() -> None:
    layer, x = nn.Linear(7, 6), torch.randn(5, 7)

    def step() -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x)

    assert count_work(step).by_operator == {"aten::addmm": {"bfloat16": 2 * 5 * 6 * 7}}


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Of two ranks. There is only one: a collective returns at once."""
    distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    yield init_device_mesh("cpu", (2,))
    distributed.destroy_process_group()


def test_a_rank_counts_its_own_part_of_a_layer(mesh: DeviceMesh) -> None:
    """The first layer's columns and the second one's rows are divided between two ranks."""
    network = nn.Sequential(nn.Linear(8, 16, bias=False), nn.Linear(16, 8, bias=False), nn.Linear(8, 3, bias=False))
    whole = count_work(lambda: network(torch.ones(4, 8)).sum().backward())
    parallelize_module(network, mesh, {"0": ColwiseParallel(), "1": RowwiseParallel()})
    own = count_work(lambda: network(torch.ones(4, 8)).sum().backward())
    shared, alone = 2 * 4 * 8 * 16, 2 * 4 * 8 * 3
    assert whole.total == (2 + 3) * shared + 3 * alone  # the first layer's data needs no gradient
    assert own.total == (2 + 3) * shared // 2 + 3 * alone
    assert own.without_formula == {}


@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.EVAL])
def test_a_case_counts_its_step_in_eager(tmp_path: Path, mode: Mode) -> None:
    flops = measure(tmp_path, mode=mode, ask=(Pass.FLOPS,)).flops
    assert flops is not None
    convolution, linear = 2 * 4 * (2 * 2 * 2) * (3 * 9), 2 * 4 * 8 * 2
    expected = {Mode.EVAL: convolution + linear, Mode.TRAIN: 2 * convolution + 3 * linear}
    assert flops.total == expected[mode]
