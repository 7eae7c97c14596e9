"""Collections: what is known of their models without a library, how they are named, and tables that can't be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchzoo.case import Case, Mode
from torchzoo.zoo.catalog import find_models, library_imports, load_model_class
from torchzoo.zoo.collections import UNUSED, Collection, find_collections
from torchzoo.zoo.folders import CatalogError
from torchzoo.zoo.spec import SpecError
from user_models import COLLECTION, FACTORY, TABLE, make_collection, make_folder

NAMES = ["tiny:narrow", "tiny:wide", "tiny:deep:2"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A collection that is found, whose code can't be imported."""
    monkeypatch.setenv("TORCHZOO_COLLECTIONS_PATH", str(tmp_path / "collections"))
    return make_collection(tmp_path / "collections", code='raise ImportError("nobody asked for a model")\n')


def test_all_that_a_plan_needs_is_known_before_anything_is_imported(folder: Path) -> None:
    narrow, wide, deep = map(find_models().spec, NAMES)
    assert [spec.name for spec in (narrow, wide, deep)] == NAMES
    assert (narrow.parameters, wide.parameters, deep.parameters) == (38, 146, 74)
    assert narrow.batch_size == {Mode.TRAIN: 4, Mode.EVAL: 8}
    assert wide.batch_size == {Mode.TRAIN: 4, Mode.EVAL: 2}
    assert deep.batch_size == {Mode.TRAIN: 16, Mode.EVAL: 8}
    assert (narrow.task, wide.task) == ("testing", "testing more")
    assert narrow.folder == wide.folder == str(folder)
    assert narrow.large is None
    with pytest.raises(ImportError, match="nobody asked"):
        load_model_class(wide)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("pattern", "chosen"),
    [
        ("tiny:*", NAMES),
        ("tiny:*e*", NAMES[1:]),
        ("*:wide", ["tiny:wide"]),
        ("tiny:deep:2", ["tiny:deep:2"]),
        ("tiny:[nw]*", NAMES[:2]),
    ],
)
def test_models_of_a_collection_are_chosen_by_names_and_globs(pattern: str, chosen: list[str]) -> None:
    assert find_models().select([pattern]) == chosen


@pytest.mark.usefixtures("folder")
def test_all_and_domains_are_the_model_folders() -> None:
    catalog = find_models()
    for pattern in ("all", "other", "*", "computer_vision", "nlp"):
        assert not [name for name in catalog.select([pattern]) if ":" in name]
    assert "tiny:wide" in catalog
    assert "tiny:none" not in catalog
    assert catalog.select(["tiny:wide", "all", "tiny:*"])[:1] == ["tiny:wide"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("tiny:wid", "no model 'tiny:wid': did you mean tiny:wide"),
        ("tiny:qqqqqqqqqqqqqqqqqqqq", "see `torchzoo list 'tiny:*'`"),
        ("tinny:wide", "no collection 'tinny': did you mean tiny"),
        ("qq:wide", "no collection 'qq': there are "),
        ("narrow", "no model, domain or glob 'narrow': did you mean tiny:narrow?"),
        ("tiny:w?", "no model 'tiny:w?'"),
        ("tiny:", "no model 'tiny:'"),
        (":wide", "no collection ''"),
    ],
)
def test_a_wrong_name_is_one_line_with_names_that_are_like_it(pattern: str, words: str) -> None:
    with pytest.raises(CatalogError) as error:
        find_models().select([pattern])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("folder")
def test_a_wrong_name_in_a_suite_is_one_line_that_names_the_suite(tmp_path: Path) -> None:
    suite = tmp_path / "mine.yaml"
    suite.write_text("description: mine\nmodels: ['tiny:wide', dcgan, 'tiny:wid']\n")
    with pytest.raises(CatalogError, match=r"^suite .*mine.yaml: no model 'tiny:wid': did you mean tiny:wide"):
        find_models().select([], [str(suite)])
    suite.write_text("description: mine\nmodels: ['tiny:wide', dcgan]\n")
    assert find_models().select([], [str(suite)]) == ["tiny:wide", "dcgan"]


def test_a_folder_of_the_same_name_comes_first(folder: Path, tmp_path: Path) -> None:
    make_folder(tmp_path / "mine", "tiny:wide")
    catalog = find_models([tmp_path / "mine"])
    assert catalog.spec("tiny:wide").folder == str(tmp_path / "mine" / "tiny:wide")
    assert catalog.spec("tiny:narrow").folder == str(folder)


def test_the_factory_makes_the_class_of_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHZOO_COLLECTIONS_PATH", str(tmp_path))
    make_collection(tmp_path)
    catalog = find_models()
    for name in NAMES:
        model = load_model_class(catalog.spec(name))(Mode.EVAL, "cpu", 2)
        assert sum(one.numel() for one in model.networks()["network"].parameters()) == catalog.spec(name).parameters


@pytest.mark.parametrize("code", ["", "model_class = 3\n", "def model_class(name):\n    return name\n"])
def test_a_factory_that_makes_no_model_is_an_error_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setenv("TORCHZOO_COLLECTIONS_PATH", str(tmp_path))
    make_collection(tmp_path, code=code)
    with pytest.raises(ImportError, match=r"tiny/__init__.py has no model_class\(name\) .* of 'tiny:wide'"):
        load_model_class(find_models().spec("tiny:wide"))


def collection(tmp_path: Path, table: str = TABLE, metadata: str = COLLECTION, code: str = FACTORY) -> Collection:
    return Collection("tiny", make_collection(tmp_path, table=table, metadata=metadata, code=code))


def test_differences_hold_for_the_names_that_they_match(tmp_path: Path) -> None:
    metadata = f"""{COLLECTION}
differences:
  - names: [wide, "deep:*"]
    skips: [{{device: [cuda], reason: too wide}}]
    unchanged_parameters: {{network.*.bias: it is a bias}}
    limits: [static_cache_autocast]
  - names: [w*]
    paper: https://example.org/wide
    syncs: {{eval: it looks at its width}}
"""
    found = collection(tmp_path, metadata=metadata)
    narrow, wide, deep = (found.spec(name) for name in ("narrow", "wide", "deep:2"))
    assert (narrow.skips, narrow.syncs, narrow.unchanged_parameters) == ((), {}, {})
    assert wide.skips[0].reason == deep.skips[0].reason == "too wide"
    assert "static cache" in wide.skips[1].reason
    assert (wide.paper, deep.paper) == ("https://example.org/wide", "https://example.org")
    assert (wide.syncs, deep.syncs) == ({Mode.EVAL: "it looks at its width"}, {})
    assert wide.unchanged_parameters == {"network.*.bias": "it is a bias"}


def test_the_table_says_what_a_model_needs_and_lacks(tmp_path: Path) -> None:
    columns = "name,parameters,no_train,eval_gib,train_gib,train,unused,waits,prefill,decode,prompt,cache"
    rows = [
        "small,1000000,,1,2,8,,,,,,",
        "big,300000000,,12.5,40,8,a.b c.*,eval,,,,",
        "hungry,1000000,,1,40,8,,,,,,",
        "huge,6000000000,it takes 96 GB,25,,,,,,,,",
        "speaker,1000000,,,,,,,2,4,100,300",
    ]
    found = collection(tmp_path, table="\n".join([columns, *rows, ""]))
    small, big, hungry, huge, speaker = map(found.spec, found.members)
    assert (small.device_memory_gib, small.large, small.unchanged_parameters, small.syncs) == ({}, None, {}, {})
    assert big.device_memory_gib == {Mode.TRAIN: 40.0, Mode.EVAL: 12.5}
    assert big.large == "a training step takes 14 GB of host memory"  # a quarter of 35.5 GiB is activations
    assert big.unchanged_parameters == {"network.a.b": UNUSED, "network.c.*": UNUSED}
    assert list(big.syncs) == [Mode.EVAL]
    assert hungry.large == "a training step takes 11 GB of host memory"  # of activations alone
    assert huge.modes() == (Mode.EVAL,)
    assert huge.skips[0].matches(Case(model="huge", mode=Mode.TRAIN, device="cuda", batch_size=None))
    assert huge.skips[0].reason == "it takes 96 GB"
    assert speaker.modes() == (Mode.TRAIN, Mode.EVAL, Mode.PREFILL, Mode.DECODE)
    assert speaker.tokens is not None
    assert (speaker.tokens.prompt, speaker.tokens.cache) == (100, 300)


def test_what_a_collection_imports_is_preloaded(tmp_path: Path) -> None:
    code = "import no_such_library\n"
    found = collection(tmp_path, metadata=f'{COLLECTION}preload: ["{{class}}", "library:{{class}}"]\n', code=code)
    assert library_imports(found.spec("deep:2")) == ["no_such_library", "deep", "library:deep"]


BAD = {
    "no parameters": ("name,task\nwide,x\n", "line 2: Object missing required field `parameters`"),
    "a word for a number": ("name,parameters\nwide,many\n", "line 2: Expected `int`, got `str` - at `$.parameters`"),
    "less than nothing": ("name,parameters\nwide,-1\n", "line 2: Expected `int` >= 0"),
    "no name": ("name,parameters\nnarrow,1\n,1\n", "line 3: Object missing required field `name`"),
    "twice the same": ("name,parameters\nwide,1\nwide,2\n", "line 3: a second model of the name 'wide'"),
    "no batch": ("name,parameters,train\nwide,1,0\n", "line 2: Expected `int` >= 1 - at `$.train`"),
    "memory without end": ("name,parameters,eval_gib\nwide,1,nan\n", "line 2: Expected `float` "),
    "another domain": ("name,parameters,domain\nwide,1,cooking\n", "line 2: Invalid enum value 'cooking'"),
    "an open quote": ('name,parameters\n"wide,1\n', "unexpected end of data"),
    "a prompt without a cache": ("name,parameters,prefill,prompt\nwide,1,2,5\n", "prompt and cache"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_table_that_can_not_be_used_is_one_line_that_names_the_file(tmp_path: Path, name: str) -> None:
    table, words = BAD[name]
    found = collection(tmp_path, table=table)
    with pytest.raises(SpecError) as error:
        found.spec("wide")
    assert str(error.value).startswith(f"{found.folder / 'models.csv'}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_file_is_one_line_that_names_it(tmp_path: Path) -> None:
    found = collection(tmp_path)
    (found.folder / "metadata.yaml").unlink()
    with pytest.raises(SpecError, match=r"metadata.yaml: No such file"):
        found.spec("wide")
    (found.folder / "models.csv").unlink()
    with pytest.raises(SpecError, match=r"models.csv: No such file"):
        _ = Collection("tiny", found.folder).members


def test_the_tables_of_the_zoo_can_be_used() -> None:
    for name, one in find_collections().items():
        specs = [one.spec(member) for member in one.members]
        assert len(specs) > 100, name
        assert all(spec.parameters > 0 for spec in specs)
        assert all(spec.name.startswith(f"{name}:") for spec in specs)
        left_out = Path(one.folder / "left_out.csv").read_text(encoding="utf-8").splitlines()[1:]
        assert not {line.partition(",")[0] for line in left_out} & set(one.members)
