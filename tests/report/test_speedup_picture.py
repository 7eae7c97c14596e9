"""The picture of a run's speedups: it shows what the records say, and foreign text in it is only text."""

from __future__ import annotations

import html
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from examples import INDUCTOR, ROOT, measured, record
from kept_runs import SCRIPT, against_eager, everything, failed, keep
from svg_dots import dots as all_dots
from svg_dots import texts
from torchzoo import cli
from torchzoo.case import Backend, Domain, Mode
from torchzoo.record import Record

MADE_FROM = "docs/results/2026-11-21-h200-zoo-inductor"
DOCUMENT = "docs/results/2026-11-21-h200-zoo.md"


def drawn(tmp_path: Path, *runs: Path) -> ET.Element:
    file = tmp_path / "picture.svg"
    assert cli.main(["report", *map(str, runs), "--format", "svg", "-o", str(file)]) == 0
    return ET.fromstring(file.read_text(encoding="utf-8"))


def of(tmp_path: Path, *records: Record) -> ET.Element:
    domains = {"a": Domain.NLP, "b": Domain.NLP, "c": Domain.SPEECH}
    return drawn(tmp_path, keep(tmp_path / f"run{len(list(tmp_path.iterdir()))}", records, domains=domains))


def case(model: str, speedup: float, mode: Mode = Mode.EVAL, backend: Backend = INDUCTOR) -> Record:
    return record(against_eager(speedup), model=model, mode=mode, backend=backend)


def dots(picture: ET.Element) -> dict[str, float]:
    """Where the dot of each case stands, by what it says."""
    return dict(all_dots(picture))


def test_what_is_beyond_the_scale_stands_at_its_edge_and_is_said(tmp_path: Path) -> None:
    picture = of(tmp_path, case("a", 1e9), case("b", 60.0), case("c", 1.0))
    second, first, third = dots(picture).values()
    assert first == 572 > second > third
    assert "1 of the dots are beyond the scale, and stand at its edge" in texts(picture)


def test_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    run = everything(tmp_path / "run")
    picture = drawn(tmp_path, run)
    assert any(text.startswith(f"{SCRIPT} ") for text in dots(picture))
    written = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    assert SCRIPT not in written
    assert html.escape(SCRIPT) in written


def test_a_run_without_speedups_is_refused_in_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = keep(tmp_path / "run", [record(measured(), model="a"), record(failed(), model="b", backend=INDUCTOR)])
    target = tmp_path / "picture.svg"
    assert cli.main(["report", str(run), "--format", "svg", "-o", str(target)]) == 2
    assert "no speedups to draw" in capsys.readouterr().err
    assert not target.exists()


def test_the_readmes_picture_is_made_from_its_run(tmp_path: Path) -> None:
    drawn(tmp_path, ROOT / MADE_FROM)
    made = (tmp_path / "picture.svg").read_text(encoding="utf-8")
    again = f"run `torchzoo report {MADE_FROM} --format svg -o docs/pictures/speedups.svg`"
    assert (ROOT / "docs/pictures/speedups.svg").read_text(encoding="utf-8") == made, again


def test_the_document_beside_the_readmes_picture_is_made_from_the_same_records(tmp_path: Path) -> None:
    """So that both have the same means: those of the document were once of an older formula."""
    runs = (MADE_FROM.replace("inductor", "eager"), MADE_FROM)
    assert cli.main(["report", *(str(ROOT / run) for run in runs), "-o", str(tmp_path / "zoo.md")]) == 0
    made = (tmp_path / "zoo.md").read_text(encoding="utf-8")
    _, _, kept = (ROOT / DOCUMENT).read_text(encoding="utf-8").partition("- command: ")
    again = f"put what `torchzoo report {' '.join(runs)} --format md` prints into {DOCUMENT}, from its first command on"
    assert kept == made.partition("- command: ")[2], again
    picture = (ROOT / "docs/pictures/speedups.svg").read_text(encoding="utf-8")
    mean = next(line for line in made.splitlines() if line.startswith("| mode train |")).split(" | ")[3]
    assert f">{mean} (" in picture
