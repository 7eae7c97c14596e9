"""`torchzoo new` and `torchzoo check-model`: a new folder keeps the contract, and a broken one is told in words."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from examples import ROOT
from in_this_process import refused, torchzoo
from torchzoo.commands.check_model import wrong_fields
from torchzoo.files import parse_python, read_yaml
from torchzoo.zoo import new_model
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.metadata_text import FILL_IN, with_lines, without
from torchzoo.zoo.spec import read_spec
from user_models import METADATA, TINY, make_folder

GOOD = METADATA.replace("parameters: 72", "parameters: 74")


def checked(folder: Path, *more: str) -> tuple[int, list[str], str]:
    """The exit status of `check-model`, the lines that it printed, and its messages."""
    done = torchzoo("check-model", folder, *more)
    return done.returncode, done.stdout.splitlines(), done.stderr


def test_a_new_folder_keeps_the_contract_when_its_figures_are_filled_in(tmp_path: Path) -> None:
    done = torchzoo("new", "mine", "--like", "lennard_jones", "--models-dir", tmp_path)
    folder = tmp_path / "mine"
    assert (done.returncode, f"torchzoo check-model {folder} --write" in done.stderr) == (0, True)
    assert sorted(path.name for path in folder.iterdir()) == ["__init__.py", "metadata.yaml", "network.py"]
    before = (folder / "metadata.yaml").read_text()
    assert "865" not in before
    assert "batch_size: {" not in before

    status, lines, _ = checked(folder)
    assert status == 1
    assert [line.partition(" (")[0] for line in lines[1:]] == [
        "- metadata.yaml has no batch_size",
        "- metadata.yaml has no parameters",
    ]
    assert (folder / "metadata.yaml").read_text() == before

    status, lines, messages = checked(folder, "--write")
    assert status == 0
    assert lines[-1] == f"{folder} keeps the contract: 865 parameters, steps: train, eval"
    for place in ("metadata.yaml line 5", "metadata.yaml line 6", "__init__.py line 1"):
        assert place in messages  # what a person must still write
    assert f"torchzoo run mine --models-dir {tmp_path} -t train,eval" in messages
    assert (folder / "metadata.yaml").read_text().startswith(before)

    other, spec = find_models().spec("lennard_jones"), read_spec(folder)
    assert spec.parameters == other.parameters
    assert spec.batch_size == dict.fromkeys(other.batch_size, 8 * other.smoke_batch_size)
    per_sample = [gflop / spec.batch_size[mode] for mode, gflop in spec.gflop_per_step.items()]
    row = next(line for line in (ROOT / "docs/models.md").read_text().splitlines() if "| lennard_jones |" in line)
    in_table = [float(cell) for cell in row.removesuffix(" |").rpartition("| ")[2].split("; ")]
    assert [1000 * gflop for gflop in per_sample] == pytest.approx(in_table, rel=2e-3)
    assert checked(folder)[0] == 0


@pytest.mark.parametrize(
    ("name", "like", "words"),
    [
        ("mine", "lennard_jones", "mine exists already"),
        ("resnet18", "lennard_jones", "there is a model 'resnet18' already"),
        ("my-model", "lennard_jones", "'my-model' can't be the name of a model: use letters"),
        ("../mine", "lennard_jones", "'../mine' can't be the name"),
        ("class", "lennard_jones", "'class' can't be the name"),
        ("nlp", "lennard_jones", "on the command line it chooses many models"),
        ("fresh", "lennard_jonse", "did you mean lennard_jones?"),
        ("fresh", "hf_*", "--like needs the name of one model"),
        ("fresh", "timm:resnet18", "a model of a collection has no folder"),
    ],
)
def test_a_name_that_cannot_be_used_is_one_line_and_nothing_is_lost(
    tmp_path: Path, name: str, like: str, words: str
) -> None:
    make_folder(tmp_path, "mine")
    assert words in refused("new", name, "--like", like, "--models-dir", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert (tmp_path / "mine" / "__init__.py").read_text() == TINY


def test_outside_a_checkout_it_is_written_into_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("torchzoo.commands.new.checkout", lambda: None)
    assert torchzoo("new", "mine", "--like", "resnet18").stdout.startswith("made mine like resnet18")
    code = (tmp_path / "mine" / "__init__.py").read_text()
    assert code.startswith(f'"""{FILL_IN}: what mine is')
    assert code.partition('"""\n')[2] == (ROOT / "models/resnet18/__init__.py").read_text().partition('"""\n')[2]


@pytest.mark.parametrize(
    ("code", "metadata", "told"),
    [
        (TINY, "", "metadata.yaml has no domain: one of computer_vision, "),
        (TINY, GOOD.replace("task: testing\n", ""), "metadata.yaml has no task: what the model does"),
        (TINY, GOOD.replace("task", "tsak"), "metadata.yaml has tsak, which is no field: did you mean task"),
        (TINY, GOOD.replace("eval: 4", "eval: 0"), "metadata.yaml has a wrong batch_size[...] (the batch of each mode"),
        (TINY, METADATA, "train: 74 parameters; metadata.yaml says 72: correct it"),
        (
            TINY.replace("SupervisedModel", "NetworkModel"),
            GOOD,
            "batch_size has train, but the class Model has no train_step",
        ),
        (
            TINY.replace("return Batch(", "raise OSError('no\\ndata')\n        return Batch("),
            GOOD,
            "OSError: no data; __init__.py line 17, in build_batch",
        ),
        (
            TINY.replace("import time", "import nothing_like_it"),
            GOOD,
            "name its library in metadata.yaml's requirements",
        ),
        (TINY.replace("class Model(", "class Net("), GOOD, "has no class Model(torchzoo.model.Model)"),
        (
            TINY,
            GOOD.replace("[]", "[no-such-library-7]"),
            "no-such-library-7 not installed: pip install no-such-library-7",
        ),
        (
            TINY,
            GOOD + "gflop_per_step: {train: 1, eval: 1}\n",
            "metadata.yaml has another gflop_per_step than was counted",
        ),
    ],
)
def test_a_broken_folder_is_told_in_words_and_left_alone(tmp_path: Path, code: str, metadata: str, told: str) -> None:
    folder = make_folder(tmp_path, "tiny", code, metadata)
    status, lines, _ = checked(folder)
    assert status == 1
    assert lines[0] == f"{folder} does not keep the contract:"
    assert any(line.startswith("- ") and told in line for line in lines[1:]), lines
    assert (folder / "metadata.yaml").read_text() == metadata


def test_a_broken_folder_is_not_written_to(tmp_path: Path) -> None:
    metadata = GOOD.replace("parameters: 74\n", "").replace("https", "http")
    folder = make_folder(tmp_path, "tiny", metadata=metadata)
    status, _, messages = checked(folder, "--write")
    assert (status, messages) == (1, "nothing was written: correct this first\n")
    assert (folder / "metadata.yaml").read_text() == metadata
    assert {path.name for path in folder.iterdir()} <= {"__init__.py", "metadata.yaml", "__pycache__"}


def test_operations_that_are_no_longer_true_are_counted_again(tmp_path: Path) -> None:
    metadata = GOOD + "gflop_per_step: {train: 1, eval: 1}\nlimits: []  # stays\n"
    folder = make_folder(tmp_path, "tiny", metadata=metadata)
    assert checked(folder, "--write")[0] == 0
    text = (folder / "metadata.yaml").read_text()
    operations = 2 * 4 * 8 * (3 * 9) + 2 * 4 * 8 * 2  # evaluation: a convolution and a product, batch 4
    assert f"eval: {operations / 1e9:.9f}" in text
    assert text.splitlines()[-1] == "limits: []  # stays"
    assert checked(folder)[0] == 0


def test_metadata_in_one_pair_of_brackets_is_left_alone(tmp_path: Path) -> None:
    metadata = "{" + GOOD.replace("parameters: 74\n", "").strip().replace("\n", ", ") + "}\n"
    folder = make_folder(tmp_path, "tiny", metadata=metadata)
    status, _, messages = checked(folder, "--write")
    assert status == 2
    assert "write this yourself" in messages
    assert (folder / "metadata.yaml").read_text() == metadata


def test_fields_are_changed_and_comments_stay() -> None:
    text = "# head\na: 1  # one\n# of b\nb:\n- x\n  # y\n# of c\nc: {d: 1}"
    assert without(text, ["b"]) == "# head\na: 1  # one\n# of c\nc: {d: 1}"
    replaced = with_lines(text, {"b": "b: 2", "e": "e: 3"})
    assert replaced == "# head\na: 1  # one\n# of b\nb: 2\n# of c\nc: {d: 1}\ne: 3\n"
    assert with_lines("", {"e": "e: 3"}) == "e: 3\n"


def test_nothing_is_left_to_fill_in_in_the_zoo() -> None:
    files = [path for path in (ROOT / "models").rglob("*") if path.suffix in (".py", ".yaml")]
    assert len(files) > 250
    assert [str(path) for path in files if FILL_IN in path.read_text(encoding="utf-8")] == []


def test_every_model_of_the_zoo_can_be_the_beginning_of_another(tmp_path: Path) -> None:
    catalog = find_models()
    for like in catalog.names:
        folder = new_model.make_folder(f"{like}_2", like, tmp_path, catalog)
        given = read_yaml(folder / "metadata.yaml", dict[str, Any])
        assert wrong_fields(given) == [], like
        assert {"parameters", "batch_size"}.isdisjoint(given)
        tree = parse_python(folder / "__init__.py")
        assert tree is not None
        assert (ast.get_docstring(tree) or "").startswith(FILL_IN), like
