"""The issues of `torchzoo watch`: written without a bisection, and posted by gh."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from watched_suite import Planted, Suite

from fake_lab import FakeLab, Repository
from torchzoo.history import post, watch

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


def test_without_bisecting_the_issue_names_both_ends(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeLab(Planted(repository)).install(monkeypatch)
    suite = Suite(tmp_path, repository, "slower")
    suite.quiet(4)
    assert suite.night(15, "--no-bisect") == 1
    assert suite.last.blamed == ()
    issue = (suite.folder / "issue-1.md").read_text()
    assert "The first bad version is not known. The change lies between" in issue
    assert repository.spec(3) in issue
    assert repository.spec(15) in issue


def test_an_issue_is_posted_once(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    FakeLab(Planted(repository)).install(monkeypatch)
    log = fake_gh(tmp_path / "bin", monkeypatch, "echo https://github.com/o/n/issues/7")
    suite = Suite(tmp_path / "w", repository, "slower")
    suite.quiet(4)
    with monkeypatch.context() as patch:
        patch.setattr(watch, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert suite.night(15, "--issue", "github", "--repo", "o/n") == 130
    assert suite.night(15, "--issue", "github", "--repo", "o/n") == 1
    text = log.read_text()
    assert text.count("issue create --repo o/n --title slower eval cpu eager bs4: latency 1.10x since timm") == 1
    assert "# slower" not in text
    assert "First bad version" in text
    assert suite.last.issues == ("https://github.com/o/n/issues/7",)
    assert "1 issue posted" in capsys.readouterr().out


def test_an_issue_that_was_posted_just_before_a_kill_is_found(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FakeLab(Planted(repository)).install(monkeypatch)
    log = fake_gh(tmp_path / "bin", monkeypatch, "exec sleep 9")  # after the issue was taken, before its address
    suite = Suite(tmp_path / "w", repository, "slower")
    suite.quiet(4)
    with monkeypatch.context() as patch:
        patch.setattr(post, "PATIENCE_S", 0.5)
        patch.setattr(watch, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert suite.night(15, "--issue", "github", "--repo", "o/n") == 130
    (mark,) = [line for line in log.read_text().splitlines() if line.startswith("<!-- torchzoo")]
    listed = json.dumps([{"url": "https://example.org/6", "body": "x"}, {"url": "https://example.org/7", "body": mark}])
    fake_gh(tmp_path / "bin", monkeypatch, f"echo '{listed}'")
    assert suite.night(15, "--issue", "github", "--repo", "o/n") == 1
    assert log.read_text().count("issue create") == 1
    assert "issue list --repo o/n --state all" in log.read_text()
    assert suite.last.issues == ("https://example.org/7",)


@pytest.mark.parametrize(
    ("end", "message"),
    [("echo 'HTTP 401: Bad credentials' >&2; exit 1", "gh failed: HTTP 401: Bad credentials"), ("", "not installed")],
)
def test_gh_that_fails_or_is_missing_costs_one_line(
    end: str,
    message: str,
    repository: Repository,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    FakeLab(Planted(repository)).install(monkeypatch)
    suite = Suite(tmp_path / "w", repository, "slower")
    suite.quiet(4)
    if end:
        fake_gh(tmp_path / "bin", monkeypatch, end)
    else:
        (tmp_path / "bin").mkdir()
        git = next(Path(one, "git") for one in os.environ["PATH"].split(os.pathsep) if Path(one, "git").exists())
        (tmp_path / "bin" / "git").symlink_to(git)
        monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    capsys.readouterr()
    assert suite.night(15, "--issue", "github") == 1
    shown = capsys.readouterr()
    (line,) = [line for line in shown.out.splitlines() if "was not posted" in line]
    assert message in line
    assert suite.last.issues == ("issue-1.md",)
    assert (suite.folder / "issue-1.md").is_file()
