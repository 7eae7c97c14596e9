"""The settings that reach uv, and the line of its messages that says what went wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchzoo.environments import make
from torchzoo.environments.make import essential_line, installer_variables, is_conflict, uv
from torchzoo.errors import TorchzooError


def test_settings_of_pip_reach_uv_unless_uv_has_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://a/simple\nextra-index-url = https://b https://c\ntrusted-host = a b\n"
        "[install]\nfind-links = /x\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_INDEX_URL", "https://d/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    for name in [name for name in os.environ if name.startswith("UV_")]:
        monkeypatch.delenv(name)
    found = installer_variables({"SSL_CERT_FILE": "/mine", "PIP_PRE": "true"})
    assert found["UV_DEFAULT_INDEX"] == "https://d/simple"
    assert found["UV_INDEX"] == "https://b https://c"
    assert found["UV_FIND_LINKS"] == "/x"
    assert found["UV_INSECURE_HOST"] == "a b"
    assert found["UV_INDEX_STRATEGY"] == "unsafe-best-match"
    assert found["UV_PRERELEASE"] == "allow"
    assert found["SSL_CERT_FILE"] == "/mine"
    own = installer_variables({"UV_INDEX_URL": "https://mine"})
    assert "UV_DEFAULT_INDEX" not in own
    assert "UV_INDEX" not in own


def test_without_uv_the_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(make.shutil, "which", lambda *_, **__: None)
    with pytest.raises(TorchzooError, match="pip install uv"):
        uv()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("error: No solution found\n  cause: Because there is no a==9\n", "Because there is no a==9"),
        (
            "  x No solution found:\n  ╰─▶ Because there is no a and you\n      require it, no.\n\nhint: x\n",
            "Because there is no a and you require it, no.",
        ),
        ("error: x\n  Caused by: y\n  Caused by: z\n", "z"),
        (
            "ERROR: Could not install: [Errno 28] No space left on device: '/x'\nmore\n",
            "ERROR: Could not install: [Errno 28] No space left on device: '/x'",
        ),
        ("fatal: no such commit\n", "fatal: no such commit"),
        ("", "exit status 1"),
    ],
)
def test_the_line_that_says_what_went_wrong(output: str, line: str) -> None:
    assert essential_line(output, 1) == line


def test_a_version_that_does_not_exist_is_no_conflict() -> None:
    missing = "  x No solution found when resolving dependencies:\n  `-> Because there is no version of\n"
    assert not is_conflict(missing + "      torch==9.9.9 and you require torch==9.9.9, we can conclude ...")
    other = "  x No solution found when resolving dependencies:\n  `-> Because there is no version of\n"
    assert is_conflict(other + "      triton==3.0 and torch==2.13.0 depends on triton==3.0, we can conclude ...")
