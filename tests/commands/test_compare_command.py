"""`torchzoo compare`: exit statuses, files, runs cut short."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples import CASE, environment, manifest
from repeated_runs import STEADY, records, times
from torchzoo.cli import main
from torchzoo.record import Manifest, Record
from torchzoo.store import RunStore


def keep(path: Path, found: list[Record], **changes: Any) -> str:
    with RunStore(path) as run_store:
        run_store.begin(made(found, **changes))
        for one in found:
            run_store.append(one)
    return str(path)


def made(found: list[Record], **changes: Any) -> Manifest:
    return manifest(cases=tuple(one.case for one in found), **changes)


def test_exit_statuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = keep(tmp_path / "base", records(STEADY))
    slow = keep(tmp_path / "slow", records(times(1.1)))
    other = keep(tmp_path / "other", records(STEADY), environment=environment(torch="2.16.0"))
    assert main(["compare", base, base]) == 0
    assert main(["compare", base, slow]) == 1
    lines = capsys.readouterr().out.splitlines()
    figures = lines[lines.index("tiny eval cpu eager bs4, latency") + 1]
    assert figures.split()[:6] == ["slower", "100.0", "ms", "110", "ms", "1.100x"]
    assert main(["compare", slow, base]) == 0
    assert main(["compare", base, slow, "--threshold", "20%"]) == 0
    assert main(["compare", base, slow, "--metric", "host_memory"]) == 0
    assert main(["compare", base, other]) == 2
    assert "torch 2.15.0 / 2.16.0" in capsys.readouterr().err
    assert main(["compare", base, other, "--across=torch"]) == 0
    assert main(["compare", base, other, "--across"]) == 0
    assert main(["compare", base, str(tmp_path / "none")]) == 2
    assert main(["compare", base, base, "--metric", "latancy"]) == 2
    assert "did you mean latency?" in capsys.readouterr().err
    assert main(["compare", base, slow, "--threshold", "7"]) == main(["compare", base, slow, "--threshold", "7%"]) == 1
    for wrong in ("-7", "0%", "100", "much"):
        with pytest.raises(SystemExit, match="2"):
            main(["compare", base, base, "--threshold", wrong])
    assert "expected a percentage such as 7% or 7" in capsys.readouterr().err


def test_the_sides_of_an_ab_were_measured_in_turns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, candidate = (keep(tmp_path / "out" / side, records(STEADY)) for side in ("base", "candidate"))
    other = keep(tmp_path / "out" / "other", records(STEADY))

    def is_in_turns(*runs: str) -> bool:
        assert main(["compare", *runs, "--format", "md"]) == 0
        return "measured in turns" in capsys.readouterr().out

    assert not is_in_turns(base, candidate)
    (tmp_path / "out" / "ab.json").write_text("{}")
    assert is_in_turns(base, candidate)
    assert is_in_turns(candidate, base)
    assert not is_in_turns(base, other)
    assert not is_in_turns(base, base)


def test_new_torch_keeps_its_verdicts(tmp_path: Path) -> None:
    base = keep(tmp_path / "base", records(STEADY))
    slow = keep(tmp_path / "slow", records(times(1.1)), environment=environment(torch="2.16.0"))
    assert main(["compare", base, slow, "--across=torch", "--format", "json", "-o", str(tmp_path / "out.json")]) == 1
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["has_regression"] is True
    assert found["differences"] == [{"kind": "torch", "name": "torch", "base": "2.15.0", "candidate": "2.16.0"}]
    [latency] = [one for one in found["findings"] if one["metric"] == "latency"]
    assert latency["verdict"] == "slower"
    assert latency["ratio"]["value"] == pytest.approx(1.1)
    assert latency["case"]["model"] == CASE.model


def test_a_run_cut_short_is_compared_as_far_as_it_goes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = keep(tmp_path / "base", records(STEADY))
    with (tmp_path / "base" / "records.jsonl").open("a") as file:
        file.write('{"case": {"mod')
    assert main(["compare", base, base]) == 0
    assert "records.jsonl: line 6 could not be read" in capsys.readouterr().err
    empty = keep(tmp_path / "empty", [])
    assert main(["compare", base, empty]) == 2
    assert "holds no records yet" in capsys.readouterr().err
