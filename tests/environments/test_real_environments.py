"""Environments that uv really makes, from made wheels and a made index."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from examples import ROOT
from made_packages import make_index, make_repository, make_wheel, packages
from torchzoo.environments import pins
from torchzoo.environments.make import EnvironmentNotMade, prepare
from torchzoo.environments.parsing import with_index

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture(autouse=True)
def _own_uv_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


def test_uv_makes_a_working_environment(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheels = tmp_path / "wheels"
    for version in ("2.0", "3.0", "4.0"):
        make_wheel(wheels, "tztorch", version, [f"tztriton=={version}"])
        make_wheel(wheels, "tztorch", f"{version}+cpu", [f"tztriton=={version}"])
        make_wheel(wheels, "tztriton", version)
        make_wheel(wheels, "tzvision", f"1.{version}", [f"tztorch=={version}"])
    for version in ("1.5", "1.6"):
        make_wheel(wheels, "tzbase", version)
    make_repository(tmp_path / "lib", ["1.0", "2.0", "3.0"])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    text = f"tztorch==3.0,tzlib@{tmp_path}/lib:HEAD~1,A=1"
    environment = prepare(text, cache)
    wanted = {"tztorch": "3.0", "tztriton": "3.0", "tzvision": "1.3.0", "tzbase": "1.5", "tzlib": "2.0"}
    assert packages(cache, environment) == wanted
    code = "import tzlib, tztorch, torchzoo.errors; print(tzlib.version, tztorch.version, torchzoo.__file__)"
    variables = os.environ | environment.variables
    done = subprocess.run([environment.python, "-c", code], env=variables, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["2.0", "3.0", str(ROOT / "torchzoo" / "__init__.py")]
    with pytest.raises(EnvironmentNotMade, match=r"tztorch==77.*the whole log"):
        prepare("tztorch==77", cache)


def test_a_nightly_comes_from_the_index_that_the_spec_names(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pins, "own_requirements", lambda: ["tzbase>=1", "tztorch>=1"])
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", make_index(tmp_path / "own", {"tzbase": "1.5", "tztorch": "2.0"}))
    for variable in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    nightly = make_index(tmp_path / "nightly", {"tztorch": "3.0.dev20261101"})
    with pytest.raises(EnvironmentNotMade, match="dev20261101"):
        prepare("tztorch==3.0.dev20261101", cache)
    environment = prepare(with_index("tztorch==3.0.dev20261101", nightly), cache)
    assert packages(cache, environment) == {"tzbase": "1.5", "tztorch": "3.0.dev20261101"}
