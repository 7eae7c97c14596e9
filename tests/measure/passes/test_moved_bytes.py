"""The bytes that operators move: what is read and written, each once, and nothing for views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from torchzoo.measure.passes.flops import count_work, moved_bytes

A = torch.ones(10, 10)  # 400 bytes
PAIR = [nn.Parameter(torch.ones(10)), nn.Parameter(torch.ones(10))]  # 40 bytes each
TABLE, WHICH = torch.ones(1000, 10), torch.tensor([1, 2])  # a row: 40 bytes; 16 bytes
BYTES = {
    "reads two, writes one": (lambda: A + TABLE[:10], 1200),
    "the same twice is read once": (lambda: A + A, 800),
    "in place": (lambda: A.add_(1), 800),
    "out=": (lambda: torch.add(A, 1, out=torch.empty(10, 10)), 800),
    "filled, not read": (A.zero_, 400),
    "copied": (lambda: A.copy_(TABLE[:10]), 800),
    "made like another": (lambda: torch.ones_like(A), 400),
    "allocated": (lambda: torch.empty(1000), 0),
    "views": (lambda: (A.t(), A.view(100), A.reshape(4, 25), A[2:5], A.detach(), A.unbind(), A.expand(3, 10, 10)), 0),
    "expanded": (lambda: A[:1].expand(10, 10) * 2, 440),
    "lookup": (lambda: F.embedding(WHICH, TABLE), 80 + 80 + 16),
    "indexed": (lambda: TABLE[WHICH], 80 + 80 + 16),
    "rows added to": (lambda: TABLE.index_add_(0, WHICH, A[:2]), 16 + 80 + 80 + 80),
    "of lists, in place": (lambda: torch._foreach_add_([p.detach() for p in PAIR], 1.0), 2 * 80),
    "of lists": (lambda: torch._foreach_mul([p.detach() for p in PAIR], 2.0), 2 * 80),
    "part of": (lambda: A[0].mul_(2), 80),
}


@pytest.mark.parametrize(("step", "count"), BYTES.values(), ids=BYTES.keys())
def test_bytes_moved(step: Callable[[], Any], count: int) -> None:
    assert count_work(step).bytes_moved == count


def test_an_optimizers_bytes_do_not_depend_on_how_it_is_written() -> None:
    def moved(**how: bool) -> int | None:
        parameters = [nn.Parameter(torch.ones(100))]
        parameters[0].grad = torch.ones(100)
        return count_work(torch.optim.SGD(parameters, lr=0.1, **how).step).bytes_moved

    assert moved(foreach=True) == moved(foreach=False) == 3 * 400  # weight and gradient read, weight written


def test_a_workspace_is_not_counted() -> None:
    """Its size is the library's affair, and differs between processors."""
    given, workspace = [torch.ones(10) for _ in range(7)], torch.ones(1000, dtype=torch.uint8)
    results = tuple(torch.ones(10) for _ in range(3))
    forward = torch.ops.aten.mkldnn_rnn_layer.default
    assert moved_bytes(forward, tuple(given), {}, (*results, workspace)) == (7 + 3) * 40
    backward = torch.ops.aten.mkldnn_rnn_layer_backward.default
    names = [argument.name for argument in backward._schema.arguments]
    operands = [workspace if name == "workspace" else given[0] for name in names]
    assert moved_bytes(backward, tuple(operands), {}, results) == (1 + 3) * 40


def test_a_sparse_gradient_counts_its_rows() -> None:
    table = nn.Embedding(1000, 10, sparse=True)
    work = count_work(lambda: table(WHICH).sum().backward())
    assert work.bytes_moved is not None
    assert work.bytes_moved < 1000 * 40
