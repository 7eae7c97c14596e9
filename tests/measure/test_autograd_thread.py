"""Functions that run in the thread of PyTorch's backward pass."""

from __future__ import annotations

import threading

import pytest
import torch

from torchzoo.measure.case_rank import AutogradThread


def test_a_function_runs_and_its_result_comes_back() -> None:
    run = AutogradThread(torch.device("cpu"))
    with torch.no_grad():
        assert [run(lambda: 1), run(lambda: "two")] == [1, "two"]
    assert run(threading.get_ident) == threading.get_ident()  # on the CPU, backward runs in the thread that calls


@pytest.mark.gpu
def test_it_is_the_thread_in_which_steps_of_a_device_run_backward() -> None:
    device = torch.device(torch.accelerator.current_accelerator())  # type: ignore[arg-type]
    found = []
    weight = torch.ones(2, device=device, requires_grad=True)
    weight.register_hook(lambda _: found.append(threading.get_ident()))
    weight.sum().backward()
    thread = AutogradThread(device)(threading.get_ident)
    assert [thread] == found
    assert thread != threading.get_ident()
