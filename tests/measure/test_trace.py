"""The structured trace: what compiling did is in it, steps write nothing more, and the record says that it was on."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
import torch
from torch import nn

from torchzoo.case import Backend, Case, Mode
from torchzoo.measure.compilation import count_compiled, watch_compilation
from torchzoo.measure.trace import StructuredTrace, is_traced

CASE = Case(model="tiny", mode=Mode.EVAL, device="cpu", backend=Backend("aot_eager"), batch_size=2)


def entries(path: Path) -> list[dict[str, object]]:
    """What stands behind the header of each entry, as tlparse reads it. Payloads are indented lines."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = [re.match(r"[A-Z]\d{4} [\d:.]+ \d+ \S+\] (\{.*)", line) for line in lines]
    return [json.loads(match[1]) for match in found if match is not None]


def test_compiling_is_traced_steps_are_not_and_the_record_says_so(tmp_path: Path) -> None:
    network, x = nn.Sequential(nn.Linear(4, 3), nn.ReLU()), torch.randn(2, 4)

    def step(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = network(x)
        return result

    assert not is_traced()
    trace = StructuredTrace(tmp_path / "a case")
    trace.start()
    watch = watch_compilation()
    compiled = torch.compile(step, backend="aot_eager")
    assert not trace.path.exists()
    compiled(x)
    counts = count_compiled(watch, CASE, None)
    written = trace.path.read_bytes()
    for _ in range(3):
        compiled(x)
    assert trace.path.read_bytes() == written, "a compiled step writes to the trace, which is in its time then"
    trace.stop()

    assert counts is not None
    assert counts.traced
    assert not is_traced()
    kinds = {name for entry in entries(trace.path) for name in entry}
    assert kinds >= {"dynamo_start", "dynamo_output_graph", "compilation_metrics"}
    torch._dynamo.reset()
    compiled(x)
    assert trace.path.read_bytes() == written, "it was stopped"


def test_the_minifier_writes_to_the_same_folder_where_it_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._dynamo.config, "debug_dir_root", "elsewhere")
    for asked, folder in ((None, "elsewhere"), ("aot", str(tmp_path))):
        monkeypatch.setattr(torch._dynamo.config, "repro_after", asked)
        trace = StructuredTrace(tmp_path)
        trace.start()
        trace.stop()
        assert torch._dynamo.config.debug_dir_root == folder


def test_pytorchs_own_trace_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    own = logging.NullHandler()
    own.root_dir = "/traces"  # type: ignore[attr-defined]  # as TORCH_TRACE makes PyTorch's
    monkeypatch.setattr(logging.getLogger("torch.__trace"), "handlers", [own])
    assert is_traced()
    own.root_dir = None  # type: ignore[attr-defined]
    assert not is_traced()
