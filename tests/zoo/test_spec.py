"""Model folders that can't be used: each costs one line that names its file, and no other model."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deep_yaml import said_of_depth
from torchzoo.case import Backend, Case, Mode
from torchzoo.zoo.catalog import find_models, library_imports
from torchzoo.zoo.folders import CatalogError, find_folders, import_folder
from torchzoo.zoo.rules import SkipRule
from torchzoo.zoo.spec import SpecError, read_spec
from torchzoo.zoo.suites import read_suite
from user_models import METADATA, TINY, make_folder


def with_field(name: str, value: str) -> str:
    """The metadata with another value of a field."""
    kept = [line for line in METADATA.strip().splitlines() if not line.startswith(f"{name}:")]
    return "\n".join([*kept, f"{name}: {value}", ""])


BATCH, LAUGHS = "batch_size", "a: &a [x, x, x, x, x, x, x, x, x]\n"
#: `metadata.yaml` that can't be used, and what is said of it.
BAD: dict[str, tuple[str | bytes, str]] = {
    "no fields": ("", "missing required field `domain`"),
    "what check-model counts": (METADATA.replace("parameters:", "#"), "bad --write` fills it in"),
    "a list": ("- 1", "Expected `object`, got `array`"),
    "bytes": (bytes(range(256)), "not UTF-8 text"),
    "an unknown field": (METADATA + "colour: red\n", "unknown field `colour`"),
    "no batch": (with_field(BATCH, "{train: 0, eval: 4}"), "Expected `int` >= 1 - at `$.batch_size"),
    "a batch that no tensor has": (with_field(BATCH, f"{{train: {10**30}, eval: 4}}"), "Expected `int` <= 2147483647"),
    "a batch of 5,000 digits": (with_field(BATCH, f"{{train: {'9' * 5000}, eval: 4}}"), "not valid YAML: "),
    "a batch without end": (with_field(BATCH, "{train: .inf, eval: .nan}"), "Expected `int`, got `float`"),
    "too many parameters": (with_field("parameters", str(10**400)), "`$.parameters`"),
    "less than no parameters": (with_field("parameters", "-1"), "Expected `int` >= 0 - at `$.parameters`"),
    "memory without end": (METADATA + "device_memory_gib: {eval: .inf}\n", "Expected `float` <= "),
    "a reason as long as a book": (METADATA + f"large: {'x' * 1001}\n", "`str` of length <= 1000 - at `$.large`"),
    "thousands of requirements": (with_field("requirements", f"[{'x, ' * 5000}]"), "of length <= 100"),
    "laughs": (
        LAUGHS
        + "".join(f"{b}: &{b} [{', '.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
        "unknown field `a`",
    ),
    "lists 30,000 deep": ("a: " + "[" * 30_000, said_of_depth("nested deeper than 4096 levels")),
    "a novel": (METADATA + "# word\n" * 10_000, "larger than 64 KiB"),
    "versions that are none": (
        METADATA + "skips: [{torch: new, reason: slow}]\n",
        "versions of torch such as '>=2.11,<2.16'",
    ),
    "a mode without a batch": (with_field(BATCH, "{eval: 4}"), "batch_size has no 'train', and no entry of skips says"),
}


@pytest.mark.parametrize(
    ("versions", "skips"), [(None, True), (">=2.11", True), (">=2.11,<2.11.0.1", False), ("<2", False)]
)
def test_a_case_is_skipped_only_with_the_versions_of_torch_that_the_rule_is_about(
    monkeypatch: pytest.MonkeyPatch, versions: str | None, *, skips: bool
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "2.16.0.dev20261122+cu130")
    case = Case(model="one", mode=Mode.EVAL, device="cpu", backend=Backend("inductor"), batch_size=1)
    rule = SkipRule(reason="a fault of the compiler", backend=("inductor",), torch=versions)
    assert rule.matches(case) is skips
    assert not rule.holds_for_all(Mode.EVAL)


@pytest.mark.parametrize("name", BAD)
def test_metadata_that_can_not_be_used_is_one_line_that_names_the_file(tmp_path: Path, name: str) -> None:
    text, words = BAD[name]
    folder = make_folder(tmp_path, "bad")
    (folder / "metadata.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(SpecError) as error:
        read_spec(folder)
    assert str(error.value).startswith(f"{folder / 'metadata.yaml'}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    "make",
    [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to(path.name)],
    ids=["a pipe", "a folder", "a device", "a loop"],
)
@pytest.mark.parametrize("file", ["metadata.yaml", "__init__.py", "network.py"])
def test_one_bad_file_costs_its_own_model_only(tmp_path: Path, make: Callable[[Path], None], file: str) -> None:
    for name in ("bad", "good"):
        make_folder(tmp_path, name, TINY + "import no_such_library\n")
    path = tmp_path / "bad" / file
    path.unlink(missing_ok=True)
    make(path)
    catalog = find_models([tmp_path])
    _, errors = catalog.specs()
    assert len(errors) == (file == "metadata.yaml")
    assert library_imports(catalog.spec("good")) == ["no_such_library"]
    if not errors:  # what is wrong with the code is told by the process that imports it
        assert library_imports(catalog.spec("bad")) == (["no_such_library"] if file == "network.py" else [])


def test_imports_of_code_that_has_no_tree_are_those_of_the_other_files(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "deep", "x = " + "-" * 100_000 + "1")
    (folder / "network.py").write_text("import no_such_library")
    assert library_imports(read_spec(folder)) == ["no_such_library"]


@pytest.mark.parametrize("code", ["x = " + "-" * 100_000 + "1", "x = a" + ".b" * 50_000])
def test_code_that_is_too_deep_is_no_lack_of_memory(tmp_path: Path, code: str) -> None:
    folder = make_folder(tmp_path, "deep", code)
    with pytest.raises(ImportError, match=r"deep/__init__.py is nested deeper than Python can parse") as error:
        import_folder(folder, "torchzoo_models.deep")
    assert error.value.__context__ is None  # a MemoryError there would be reported as the cause


def test_a_link_is_the_model_of_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "zoo").mkdir()
    (tmp_path / "zoo" / "alias").symlink_to(make_folder(tmp_path, "elsewhere"))
    (tmp_path / "zoo" / "loop").symlink_to("loop")
    (tmp_path / "zoo" / "file").write_text("")
    catalog = find_models([tmp_path / "zoo"])
    assert catalog.spec("alias").name == "alias"
    assert not {"elsewhere", "loop", "file"} & set(catalog.names)


def test_a_name_that_is_not_utf_8_is_escaped(tmp_path: Path) -> None:
    name = os.fsdecode(b"bad\xff")
    make_folder(tmp_path, name)
    catalog = find_models([tmp_path])
    assert catalog.select([name]) == catalog.select(["bad*"]) == ["bad\\udcff"]
    spec = catalog.spec("bad\\udcff")
    assert spec.name == "bad\\udcff"
    assert spec.batch_size[Mode.EVAL] == 4


def test_a_folder_of_models_that_can_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", denied)
    with pytest.raises(CatalogError, match=r"can't read the models folder .*: Permission denied"):
        find_folders("models", "TORCHZOO_PATH", [tmp_path])


@pytest.mark.parametrize(
    "text",
    ["", "\0", "[1]", "description: x\nmodels: 3\n", 'description: "\\ud800"\nmodels: []\n', "a: " + "[" * 100_000],
)
def test_a_suite_that_can_not_be_used_is_one_line_that_names_the_file(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(CatalogError) as error:
        read_suite(str(path))
    assert str(error.value).startswith(f"can't read the suite {path}: ")
    assert "\n" not in str(error.value)
