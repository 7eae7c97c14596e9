"""The shared folder between a controller and its nodes, and what is found there when the controller was killed."""

from __future__ import annotations

from pathlib import Path

import msgspec
from fake_nodes import outcome

from examples import CASE, manifest
from torchzoo.case import Case
from torchzoo.run.spread import protocol
from torchzoo.run.spread.mailbox import Hello, Inbox, Outbox, line_of_hello, recovered
from torchzoo.run.spread.relay import node_environment
from torchzoo.store import RunStore, read_run


def case(name: str) -> Case:
    return msgspec.structs.replace(CASE, model=name)


def test_only_whole_lines_are_read_and_each_once(tmp_path: Path) -> None:
    inbox, outbox = Inbox(tmp_path / "box"), Outbox(tmp_path / "box")
    assert inbox.lines() == []
    outbox.write(b"one\ntwo\nthr")
    assert inbox.lines() == [b"one\n", b"two\n"]
    assert inbox.lines() == []
    outbox.write(b"ee\n")
    assert inbox.lines() == [b"three\n"]


def test_what_nodes_told_nobody_is_found_once_and_only_for_cases_without_a_row(tmp_path: Path) -> None:
    path = tmp_path / "run"
    with RunStore(path) as store:
        store.begin(manifest(cases=(case("a"), case("b"), case("c"))))
        store.append(outcome(case("a"), "first"))
    boxes = path / "nodes" / "1"
    boxes.mkdir(parents=True)
    told = [protocol.line_of(protocol.Finished(record=outcome(case(name), "node"), log="")) for name in "abbx"]
    Outbox(boxes / "0.0.out").write(line_of_hello(Hello(host="n1")) + b"".join(told) + told[1][:20])
    found = list(recovered(path))
    assert [record.case.model for record in found] == ["b"]
    with RunStore(path, resume=True) as store:
        for record in found:
            store.append(record)
    assert {one.case.model for one in read_run(path).records} == {"a", "b"}
    assert list(recovered(path)) == []


def test_a_run_without_nodes_has_nothing_to_find(tmp_path: Path) -> None:
    assert list(recovered(tmp_path)) == []


def test_a_nodes_variables_are_the_controllers_where_they_change_how_torch_computes(tmp_path: Path) -> None:
    here = {"PATH": "/bin", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "2,3", "CUDA_LAUNCH_BLOCKING": "1"}
    controllers = {"PATH": "/other", "OMP_NUM_THREADS": "8", "CUDA_VISIBLE_DEVICES": "0", "TORCH_LOGS": "x"}
    found = node_environment(here, controllers, ("OMP_", "CUDA_", "TORCH"), str(tmp_path))
    assert found == {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "8",
        "CUDA_VISIBLE_DEVICES": "2,3",
        "TORCH_LOGS": "x",
        "PYTHONPATH": str(tmp_path),
    }
    assert "PYTHONPATH" not in node_environment(here, {}, (), "/not/there")
