"""What pip installs works outside the checkout: the sdist makes the wheel, and the wheel has the models."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import torchzoo
from examples import ROOT
from torchzoo.record import Measured
from torchzoo.store import read_run

pytest.importorskip("hatchling", reason="hatchling is not installed: it builds the wheel")

#: Python runs it when it starts: what belongs to the checkout can't be imported.
WITHOUT_CHECKOUT = f"""
import sys
sys.path[:] = [path for path in sys.path if path != {str(ROOT)!r}]
sys.meta_path[:] = [finder for finder in sys.meta_path if "__editable__" not in getattr(finder, "__module__", "")]
"""


def call(*command: str, folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=300, cwd=folder, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist of this checkout, and the wheel that is made from it."""
    folder = tmp_path_factory.mktemp("built")
    call(sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder), folder=ROOT)
    (sdist,) = folder.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2, of Debian 12, has none
        archive.extractall(folder)
    unpacked = folder / sdist.name.removesuffix(".tar.gz")
    call(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder), folder=unpacked)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def test_the_wheel_has_every_file_of_the_models_and_of_the_package(built: tuple[Path, Path]) -> None:
    _, wheel = built
    assert wheel.name == f"torchzoo-{torchzoo.__version__}-py3-none-any.whl"
    places = {"torchzoo": "torchzoo"} | {
        folder: f"torchzoo/_bundled/{folder}" for folder in ("models", "collections", "userbenchmark")
    }
    wanted = {
        f"{place}/{path.relative_to(ROOT / folder)}"
        for folder, place in places.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert len(wanted) > 600
    names = set(zipfile.ZipFile(wheel).namelist())
    assert wanted - names == set()
    assert {name for name in names - wanted if "dist-info" not in name} == set()


@pytest.mark.usefixtures("temporary")
@pytest.mark.skipif("TORCHZOO_RELEASE_TESTS" not in os.environ, reason=".ci/run sets TORCHZOO_RELEASE_TESTS")
def test_what_is_installed_lists_makes_and_measures_models_without_the_checkout(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    target, empty, start = tmp_path / "target", tmp_path / "empty", tmp_path / "start"
    empty.mkdir()
    start.mkdir()
    (start / "sitecustomize.py").write_text(WITHOUT_CHECKOUT)
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    call(*pip, "--target", str(target), str(built[1]), folder=empty)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCHZOO_")}
    environment["PYTHONPATH"] = os.pathsep.join([str(target), str(start)])

    def python(*words: str) -> str:
        return call(sys.executable, *words, folder=empty, environment=environment)

    assert python("-c", "import torchzoo; print(torchzoo.__file__)") == f"{target / 'torchzoo' / '__init__.py'}\n"
    listed = python("-m", "torchzoo", "list", "--suite", "smoke", "--columns", "name,folder")
    assert f"{target}/torchzoo/_bundled/models/resnet18" in listed
    made = python("-m", "torchzoo", "new", "mine", "--like", "soft_actor_critic")  # it imports models/_shared
    assert made.startswith("made mine like soft_actor_critic")
    checked = python("-m", "torchzoo", "check-model", "mine", "--write")
    assert "mine keeps the contract: 5,278,727 parameters" in checked
    options = ("--models-dir", ".", "-d", "cpu", "--bs", "smoke", "--time-limit", "0.2", "--threads", "1")
    python("-m", "torchzoo", "run", "lennard_jones", "mine", *options, "-o", "run")
    records = read_run(empty / "run").records
    assert [record.case.model for record in records] == ["lennard_jones", "mine"]
    assert all(isinstance(record.outcome, Measured) for record in records), records
    report = python("-m", "torchzoo", "report", "run", "--format", "md")
    assert "\ntorchzoo run lennard_jones -d cpu" in report  # the command that measures it again: there is no run.py
