"""An issue posted to GitHub by its own command line, `gh`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from torchzoo.errors import attempt, one_line
from torchzoo.history.installers import clean_variables

#: Seconds that gh may take.
PATIENCE_S = 120.0


def post(path: Path, title: str, repository: str | None) -> tuple[str, str]:
    """Post an issue with `gh issue create`.

    Args:
        path: of the whole issue. Its first line, the title, is no part of the body.
        title: of the issue.
        repository: OWNER/NAME; None: that of the current folder, as gh finds it.

    Returns:
        The issue's address, and a line that says why it was not posted. One of them is empty.
    """
    body = path.read_text(encoding="utf-8").partition("\n")[2].lstrip("\n")
    where = ["--repo", repository] if repository is not None else []
    with tempfile.NamedTemporaryFile("w", suffix=".md", encoding="utf-8") as file:
        file.write(body)
        file.flush()
        command = ["gh", "issue", "create", *where, "--title", title, "--body-file", file.name]
        done = attempt(lambda: _finished(command))
    if isinstance(done, FileNotFoundError):
        return "", "gh is not installed (https://cli.github.com)"
    if isinstance(done, subprocess.TimeoutExpired):
        return "", f"gh took longer than {PATIENCE_S:g} s"
    if isinstance(done, Exception):
        return "", f"gh can't be run: {one_line(done)}"
    if done.returncode != 0:
        return "", f"gh failed: {one_line(done.stderr) if done.stderr.strip() else f'status {done.returncode}'}"
    lines = done.stdout.split()
    return (lines[-1] if lines else "posted"), ""


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
