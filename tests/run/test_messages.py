"""What comes from a worker: whole lines are messages, half a line waits, and nonsense ends the conversation."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing.connection import Connection

import pytest

from examples import measured
from torchzoo.record import Failed, FailureKind, Skipped
from torchzoo.run import messages
from torchzoo.run.failures import failure
from torchzoo.run.messages import Reader
from torchzoo.run.workers import Garbled
from torchzoo.settings import Stage


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    runner, worker = multiprocessing.Pipe()
    with runner, worker:
        yield runner, worker


def test_stages_and_outcomes_arrive_as_they_were_sent(pipe: tuple[Connection, Connection]) -> None:
    runner, worker = pipe
    reader = Reader(runner)
    sent = [Stage.BUILD, Skipped(reason="no int8 here"), measured()]
    for message in sent:
        messages.send(worker, messages.encode(message))
    assert reader.read() == sent
    assert reader.read() == []
    worker.close()
    assert reader.read() == []
    assert not reader.is_open


def test_half_a_line_is_kept_until_the_rest_comes(pipe: tuple[Connection, Connection]) -> None:
    runner, worker = pipe
    reader = Reader(runner)
    line = messages.encode(measured())
    os.write(worker.fileno(), line[:100])
    assert reader.read() == []
    os.write(worker.fileno(), line[100:] + messages.encode(Stage.EXAMINE)[:3])
    assert reader.read() == [measured()]
    assert reader.is_open


@pytest.mark.parametrize(
    "garbage", [b"\x80\x04\x95\xff\xff\n", b"\xff\xff\xff\xff\n", b'{"type": "measured"}\n', b"[" * 100_000 + b"\n"]
)
def test_after_garbage_nothing_is_read(pipe: tuple[Connection, Connection], garbage: bytes) -> None:
    runner, worker = pipe
    reader = Reader(runner)
    os.write(worker.fileno(), messages.encode(Stage.BUILD) + garbage + messages.encode(Stage.COMPILE))
    first, second = reader.read()
    assert first is Stage.BUILD
    assert isinstance(second, Garbled)
    assert reader.read() == []
    assert not reader.is_open


def test_bytes_without_end_are_no_message(pipe: tuple[Connection, Connection], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "LONGEST_LINE", 1000)
    runner, worker = pipe
    reader = Reader(runner)
    os.write(worker.fileno(), b"x" * 2000)
    (garbled,) = reader.read()
    assert isinstance(garbled, Garbled)
    assert not reader.is_open


@pytest.mark.parametrize(("field", "value"), [("sample_unit", None), ("samples_per_step", 4.5)])
def test_what_could_not_be_read_again_is_not_sent(field: str, value: object) -> None:
    with pytest.raises(ValueError, match=field):
        messages.encode(measured(**{field: value}))


def test_a_failure_can_be_sent_whatever_its_message_is() -> None:
    failed = failure(RuntimeError("half a pair \ud800"), Stage.BUILD, "a.log")
    assert failed == messages._decoder.decode(messages.encode(failed))
    assert isinstance(failed, Failed)
    assert failed.kind is FailureKind.ERROR
    assert failed.message == r"RuntimeError: half a pair \ud800"
