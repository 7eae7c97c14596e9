"""Everything that reading commands print of a few committed runs, held still by snapshots.

`pytest --snapshot-update tests/report/test_snapshots.py` writes them again. Review their diff like code.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from examples import ROOT
from in_this_process import torchzoo

RESULTS = Path("docs/results")
RUNS = {
    "backends": RESULTS / "2026-11-21-h200-compile-modes",
    "failures": RESULTS / "2026-11-25-h200-new-models-5",  # and skips, checks and cases that were not run
    "generation": RESULTS / "2026-11-23-h200-new-models-4/serving",
    "ranks": RESULTS / "2026-11-22-h200-x2-parallel/gpt2-xl",
    "repeats": RESULTS / "2026-11-24-cpu-releases-inductor/lennard-2.14.1-2.15.0/base",
}
PAIR = [RESULTS / "2026-11-23-cpu-releases-eager/confirm-2.11.0-2.15.0" / side for side in ("base", "candidate")]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("TORCHZOO_CACHE", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


def printed(*words: object) -> str:
    """What a command prints, its exit status if that is not 0, and its messages."""
    done = torchzoo(*words)
    status = f"\n--- status {done.returncode}\n" if done.returncode else ""
    return done.stdout + status + (f"\n--- messages\n{done.stderr}" if done.stderr else "")


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("run", RUNS)
def test_table(run: str, width: int, snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    assert printed("report", RUNS[run]) == snapshot


@pytest.mark.parametrize("form", ["md", "csv"])
@pytest.mark.parametrize("run", RUNS)
def test_format(run: str, form: str, snapshot: SnapshotAssertion) -> None:
    assert printed("report", RUNS[run], "--format", form) == snapshot


@pytest.mark.parametrize("run", ["failures", "repeats"])
def test_json(run: str, snapshot: SnapshotAssertion) -> None:
    assert printed("report", RUNS[run], "--format", "json") == snapshot


def test_tables_of_html(snapshot: SnapshotAssertion) -> None:
    page = printed("report", RUNS["failures"], "--format", "html")
    page = re.sub(r"<(script|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    assert "\n\n".join(re.findall(r"<table.*?</table>", page, re.DOTALL)) == snapshot


CASES = {
    "backends": "hf_GPT2 eval inductor",
    "failures": "sam2_video eval",
    "ranks": "fsdp2",
    "repeats": "lennard_jones",
}


@pytest.mark.parametrize("run", CASES)
def test_case(run: str, snapshot: SnapshotAssertion) -> None:
    assert printed("show", RUNS[run], *CASES[run].split()) == snapshot


@pytest.mark.parametrize("form", ["table", "md", "json", "github-issue"])
def test_comparison(form: str, snapshot: SnapshotAssertion) -> None:
    assert printed("compare", *PAIR, "--across", "--format", form) == snapshot


@pytest.mark.parametrize("form", ["table", "md"])
def test_noise(form: str, snapshot: SnapshotAssertion) -> None:
    assert printed("report", RUNS["repeats"], "--noise", "--format", form) == snapshot


def test_dynamo_csv_export(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert torchzoo("export", RUNS["failures"], "--format", "dynamo-csv", "-o", tmp_path / "csv").returncode == 0
    files = sorted((tmp_path / "csv").iterdir())
    assert "\n".join(f"--- {file.name}\n{file.read_text(encoding='utf-8')}" for file in files) == snapshot


def test_hud_export(snapshot: SnapshotAssertion) -> None:
    assert printed("export", RUNS["ranks"], "--format", "hud-v3") == snapshot
