"""Models of collections on the command line: a colon in a name does no harm to what is measured, kept and shown."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from in_this_process import torchzoo
from torchzoo.cli import main
from torchzoo.record import Measured
from torchzoo.store import read_run
from user_models import make_collection

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("run")]  # with the other tests that start runs

NAMES = ["tiny:narrow", "tiny:deep:2"]


@pytest.fixture(scope="module", autouse=True)
def collections(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The collection `tiny`, found by this process and by those that it starts."""
    root = tmp_path_factory.mktemp("collections")
    make_collection(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHZOO_COLLECTIONS_PATH", str(root))
        yield root


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two models of the collection."""
    path = tmp_path_factory.mktemp("kept") / "run"
    options = ["--bs", "smoke", "-d", "cpu", "--time-limit", "0.2", "--threads", "1", "-q"]
    assert main(["run", "tiny:*e*", *options, "-o", str(path.parent / "other")]) == 0
    assert main(["run", *NAMES, *options, "-t", "train,eval", "-o", str(path)]) == 0
    return path


def test_models_of_a_collection_are_measured_under_their_names(kept: Path) -> None:
    run = read_run(kept)
    assert [(one.case.model, one.case.mode.value) for one in run.records] == [
        (name, mode) for name in NAMES for mode in ("train", "eval")
    ]
    assert all(isinstance(one.outcome, Measured) for one in run.records)
    assert {one.case.batch_size for one in run.records} == {2}
    assert [one.outcome.parameters for one in run.records] == [38, 38, 74, 74]  # type: ignore[union-attr]
    assert set(run.manifest.domains) == set(NAMES)


def test_a_run_cut_short_goes_on(kept: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(kept, cut)
    records = cut / "records.jsonl"
    lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join(lines[:-1]))
    assert main(["run", "--resume", str(cut), "-q"]) == 0
    assert [one.case for one in read_run(cut).records] == [one.case for one in read_run(kept).records]


def test_a_run_whose_collection_has_lost_a_model_says_so(
    kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(kept, cut)
    (cut / "records.jsonl").write_text("")
    make_collection(tmp_path / "new", table="name,parameters\nnarrow,38\n")
    monkeypatch.setenv("TORCHZOO_COLLECTIONS_PATH", str(tmp_path / "new"))
    assert main(["run", "--resume", str(cut), "-q"]) == 2
    assert "needs models that are no longer there: tiny:deep:2" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        *(["report", "--format", form] for form in ("table", "md", "csv", "json", "html")),
        ["compare", "{kept}", "--format", "json"],
        ["export", "--format", "hud-v3"],
    ],
    ids=" ".join,
)
def test_commands_show_the_names(kept: Path, words: list[str]) -> None:
    command, *options = (word.format(kept=kept) for word in words)
    done = torchzoo(command, kept, *options)
    assert done.returncode == 0
    assert all(name in done.stdout for name in NAMES)


def test_list_shows_models_of_a_collection_where_they_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "tiny:*", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["parameters"]) for one in listed] == [
        ("tiny:narrow", 38),
        ("tiny:wide", 146),
        ("tiny:deep:2", 74),
    ]
    assert main(["list"]) == 0
    shown = capsys.readouterr()
    assert "tiny:wide" not in shown.out
    assert "and 3 models of the collection tiny: torchzoo list 'tiny:*'" in shown.err


def test_a_collection_that_can_not_be_used_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_collection(tmp_path, "odd", table="name\nwide\n")
    monkeypatch.setenv("TORCHZOO_COLLECTIONS_PATH", str(tmp_path))
    assert main(["list", "dcgan"]) == 0
    assert main(["list"]) == 0
    assert "left out: " in capsys.readouterr().err
    for arguments in (["list", "odd:wide"], ["run", "odd:*", "-d", "cpu"]):
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert "odd/models.csv: line 2: Object missing required field `parameters`" in line
