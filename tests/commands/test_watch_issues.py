"""The issues of `torchzoo watch`, posted by gh."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from watched_suite import Watching

from torchzoo.history import watch

GH = """#!/bin/sh
echo "$@" >> {log}
for word; do case $word in *.md) cat "$word" >> {log};; esac; done
{end}
"""


def fake_gh(folder: Path, monkeypatch: pytest.MonkeyPatch, end: str) -> Path:
    """A program `gh` before all others on the path; the file that it writes its words to."""
    folder.mkdir(exist_ok=True)
    (folder / "gh").write_text(GH.format(log=folder / "log", end=end))
    (folder / "gh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder / "log"


def test_an_issue_is_posted_once(watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = fake_gh(tmp_path / "bin", monkeypatch, "echo https://github.com/o/n/issues/7")
    suite = watching("slower")
    with monkeypatch.context() as patch:
        patch.setattr(watch, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert suite.night(15, "--issue", "github", "--repo", "o/n") == 130
    assert suite.night(15, "--issue", "github", "--repo", "o/n") == 1
    text = log.read_text()
    assert text.count("issue create --repo o/n --title slower eval cpu eager bs4: latency 1.10x since timm") == 1
    assert "# slower" not in text
    assert "First bad version" in text
    assert suite.last.issues == ("https://github.com/o/n/issues/7",)
    assert "1 issue posted" in suite.shown


@pytest.mark.parametrize(
    ("end", "message"),
    [("echo 'HTTP 401: Bad credentials' >&2; exit 1", "gh failed: HTTP 401: Bad credentials"), ("", "not installed")],
)
def test_gh_that_fails_or_is_missing_costs_one_line(
    end: str, message: str, watching: Watching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = watching("slower")
    if end:
        fake_gh(tmp_path / "bin", monkeypatch, end)
    else:
        (tmp_path / "bin").mkdir()
        git = next(Path(one, "git") for one in os.environ["PATH"].split(os.pathsep) if Path(one, "git").exists())
        (tmp_path / "bin" / "git").symlink_to(git)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert suite.night(15, "--issue", "github") == 1
    (line,) = [line for line in suite.shown.splitlines() if "was not posted" in line]
    assert message in line
    assert suite.last.issues == ("issue-1.md",)
    assert (suite.folder / "issue-1.md").is_file()
