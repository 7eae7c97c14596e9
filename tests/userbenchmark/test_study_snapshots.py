"""Snapshots of the documents of studies and userbenchmarks of committed runs.

`pytest --snapshot-update tests/userbenchmark/test_study_snapshots.py` writes them again. Review their diff like code.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from benchmark_runs import figures
from syrupy.assertion import SnapshotAssertion

from examples import ROOT
from in_this_process import torchzoo
from svg_dots import dots, texts

STUDIES, RESULTS = ROOT / "docs/studies", ROOT / "docs/results"
PARTS = RESULTS / "2026-11-26-h200-pt2-parts"
OF_STUDIES = {
    "gpt2_modes": [STUDIES / "gpt2_modes"],
    "nanogpt": [STUDIES / "nanogpt"],
    "paper_api": [STUDIES / "paper_api", STUDIES / "paper_api/newer"],
    "paper_breakdown": [STUDIES / "paper_breakdown"],
    "paper_compilers": [STUDIES / "paper_compilers", STUDIES / "paper_compilers/eval"],
    "paper_devices": [STUDIES / "paper_devices/h100", RESULTS / "2026-11-27-h200-two-machines/second"],
    "paper_optimizations": [
        STUDIES / "paper_optimizations",
        *(STUDIES / "paper_optimizations" / name for name in ("train", "eval", "rsqrt")),
    ],
    "pt2_claim": [PARTS / name for name in ("one", "two", "three")],
    "resnets": [STUDIES / "resnets", STUDIES / "resnets/loaded"],
}
OF_USERBENCHMARKS = {
    "dynamic_shapes": RESULTS / "2026-11-28-h100-x2-dynamic-shapes",
    "optim": RESULTS / "2026-11-21-h200-optim",
    "power_values": RESULTS / "2026-11-29-h200-values/power_values",
    "warm_start": RESULTS / "2026-11-28-h100-x4-warm-start",
}
WITH_PICTURE = {"paper_breakdown", "paper_compilers", "paper_devices", "paper_optimizations", "pt2_claim"}


def brief(text: str) -> str:
    """The figures of a document, of long tables only the first rows and the last one."""
    kept: list[str] = []
    for is_table, some in groupby(figures(text).splitlines(), lambda line: line.startswith("| ")):
        lines = [line for line in some if not line.startswith("- command:")]  # names the checkout of its day
        kept += [*lines[:5], lines[-1]] if is_table and len(lines) > 6 else lines
    return "\n".join([*kept, ""]).replace(str(ROOT), "")


@pytest.mark.parametrize("name", OF_STUDIES)
def test_study(name: str, tmp_path: Path, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path))
    assert torchzoo("study", name, "--from", *OF_STUDIES[name], "-o", tmp_path).returncode == 0
    assert brief((tmp_path / f"{name}.md").read_text(encoding="utf-8")) == snapshot
    pictures = list(tmp_path.glob("*.svg"))
    assert {path.stem for path in pictures} == WITH_PICTURE & {name}
    for path in pictures:
        picture = ET.fromstring(path.read_text(encoding="utf-8"))
        places = dots(picture)
        shown = [text for text in texts(picture) if text not in dict(places)]
        assert "\n".join([*shown, *map(str, places[:20]), f"{len(places)} dots", ""]) == snapshot(name="picture")


@pytest.mark.parametrize("name", OF_USERBENCHMARKS)
def test_userbenchmark(name: str, snapshot: SnapshotAssertion) -> None:
    done = torchzoo("userbenchmark", name, "--from", OF_USERBENCHMARKS[name])
    assert done.returncode == 0
    assert brief(done.stdout) == snapshot
