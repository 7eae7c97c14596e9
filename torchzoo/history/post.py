"""Post an issue to GitHub by its own command line, `gh`.

The folder of the issue's file, `issue-1.md`, also has

    issue-1.mark    before gh is called: a random word, with which the posted text ends
    issue-1.url     after it: the issue's address

A mark without an address was left by a killed runner: the issue may be posted already, and is searched.
"""

from __future__ import annotations

import subprocess
import tempfile
import uuid
from pathlib import Path

import msgspec

from torchzoo.environments.parsing import clean_variables
from torchzoo.errors import TorchzooError, attempt, one_line
from torchzoo.store import write_whole

#: Seconds that gh may take.
PATIENCE_S = 120.0
#: An issue that a killed runner posted is searched among so many of the latest issues.
LATEST = 100


class _Posted(msgspec.Struct, frozen=True):
    """An issue, as `gh issue list` returns it."""

    url: str
    body: str


class _NotPosted(TorchzooError):
    """The reason why gh failed."""


def address_of(path: Path) -> str:
    """Return the address of the posted issue in the file at `path`; empty if it was not posted."""
    file = path.with_suffix(".url")
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def post(path: Path, title: str, repository: str | None) -> str:
    """Post an issue with `gh issue create`, unless it was posted.

    Args:
        path: of the whole issue. Its first line, the title, is no part of the body.
        title: of the issue.
        repository: OWNER/NAME; None: that of the current folder, as gh finds it.

    Returns:
        A line that says why the issue was not posted; empty if it was.
    """
    if address_of(path):
        return ""
    try:
        write_whole(path.with_suffix(".url"), _address(path, title, repository).encode())
    except _NotPosted as error:
        return str(error)
    return ""


def _address(path: Path, title: str, repository: str | None) -> str:
    """Return the address of the issue that a killed runner posted, if there is one, else of a new issue."""
    where = ["--repo", repository] if repository is not None else []
    mark_file = path.with_suffix(".mark")
    if mark_file.is_file():
        mark = mark_file.read_text(encoding="utf-8")
        listed = _gh(["issue", "list", *where, "--state", "all", "--limit", str(LATEST), "--json", "url,body"])
        issues = attempt(lambda: msgspec.json.decode(listed, type=list[_Posted]))
        if isinstance(issues, Exception):
            raise _NotPosted(f"gh's list of issues can't be read: {one_line(issues)}")
        for issue in issues:
            if mark in issue.body:
                return issue.url
    else:
        mark = f"<!-- torchzoo {uuid.uuid4().hex} -->"
        write_whole(mark_file, mark.encode())
    body = path.read_text(encoding="utf-8").partition("\n")[2].lstrip("\n")
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8") as file:
        file.write(f"{body}\n{mark}\n")
        file.flush()
        lines = _gh(["issue", "create", *where, "--title", title, "--body-file", file.name]).split()
    return lines[-1] if lines else "posted"


def _gh(words: list[str]) -> str:
    """Run gh, and return its output. Raise `_NotPosted` if gh is not installed, takes too long, or fails."""
    done = attempt(lambda: _finished(["gh", *words]))
    if isinstance(done, FileNotFoundError):
        raise _NotPosted("gh is not installed (https://cli.github.com)")
    if isinstance(done, subprocess.TimeoutExpired):
        raise _NotPosted(f"gh took longer than {PATIENCE_S:g} s")
    if isinstance(done, Exception):
        raise _NotPosted(f"gh can't be run: {one_line(done)}")
    if done.returncode != 0:
        raise _NotPosted(f"gh failed: {one_line(done.stderr) if done.stderr.strip() else f'status {done.returncode}'}")
    return done.stdout


def _finished(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  gh, with words of ours
        command,
        env={**clean_variables(), "GH_PROMPT_DISABLED": "1"},
        check=False,
        capture_output=True,
        encoding="utf-8",
        errors="backslashreplace",
        stdin=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
