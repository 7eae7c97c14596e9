"""What a user is told to type: scripts in a checkout, and what pip installed elsewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchzoo
from torchzoo.run.resources import missing
from torchzoo.zoo.programs import install_words, run_words
from torchzoo.zoo.spec import read_spec
from user_models import METADATA, make_folder


@pytest.mark.parametrize(
    ("inside", "run", "install"),
    [(".", "python run.py", "python install.py"), ("_bundled", "torchzoo run", "torchzoo install")],
)
def test_there_is_no_script_outside_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inside: str, run: str, install: str
) -> None:
    package = tmp_path / "torchzoo"
    (package / inside).mkdir(parents=True)
    monkeypatch.setattr(torchzoo, "__file__", str(package / "__init__.py"))
    assert " ".join(run_words()) == run
    assert " ".join(install_words()) == install
    lacks = METADATA.replace("requirements: []", "requirements: [no-such-library-7]")
    spec = read_spec(make_folder(tmp_path, "mine", metadata=lacks))
    assert missing([spec], [])["mine"].endswith(f": {install} mine")
