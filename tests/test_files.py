"""Files that users and other programs made are read, or refused in one line that names the file; nothing waits."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from deep_yaml import said_of_depth
from torchzoo import files
from torchzoo.files import FileError, parse_python, read_file, read_yaml, to_json


def loop(path: Path) -> None:
    path.symlink_to(path.name)


#: What may stand where a file should be, and what is said of it.
NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "nothing": (lambda _: None, "No such file or directory"),
    "a folder": (Path.mkdir, "Is a directory"),
    "a loop of links": (loop, "symbolic links"),
    "a link to nothing": (lambda path: path.symlink_to("nowhere"), "No such file or directory"),
    "a device without an end": (lambda path: path.symlink_to("/dev/zero"), "a pipe or a device, not a file"),
    "a pipe that nobody writes to": (os.mkfifo, "a pipe or a device, not a file"),
    "a page too many": (lambda path: path.write_bytes(b"x" * 2049), "larger than 2 KiB"),
}


@pytest.mark.parametrize("name", NO_FILES)
def test_what_is_no_file_is_refused_in_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    make, words = NO_FILES[name]
    path = tmp_path / "file"
    make(path)
    with pytest.raises(FileError) as error:
        read_file(path, most_bytes=2048)
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2048)
    (tmp_path / "link").symlink_to("file")
    assert len(read_file(tmp_path / "link", most_bytes=2048)) == 2048
    assert len(read_file(tmp_path / "link")) == 2048


#: YAML for a mapping of names to numbers, and what is said of it.
BAD_YAML: dict[str, tuple[str | bytes, str]] = {
    "an unclosed list": ("a: 1\nb: [}", "not valid YAML in line 2: "),
    "a tab": ("a: 1\n\tb: 2", "not valid YAML in line 2: "),
    "control characters": ("a: \0", "not valid YAML: "),
    "bytes": (b"a: 1\n\xff\xfe", "not UTF-8 text in line 2: "),
    "two documents": ("a: 1\n---\na: 1", "not valid YAML in line 2: "),
    "a list": ("[1]", "Expected `object`, got `array`"),
    "a text for a number": ("a: x", "Expected `int`, got `str`"),
    "a number of 5,000 digits": (f"a: {'9' * 5000}", "not valid YAML: "),
    "no month": ("a: 2026-13-01", "not valid YAML: "),
    "an empty number": ("a: !!int ''", "not valid YAML: "),
    "code": ("a: !!python/object/apply:os.system [exit]", "not valid YAML in line 1: "),
    "half a character": ('a: "\\ud800"', "not valid YAML in line 1: "),
    "merges": (
        "a: &a {x: 1}\n"
        + "".join(f"{chr(n + 1)}: &{chr(n + 1)} {{<<: [{f'*{chr(n)}, ' * 9}]}}\n" for n in range(97, 121)),
        "not valid YAML in line 2: could not determine a constructor for the tag 'tag:yaml.org,2002:merge'",
    ),
    "an alias to itself": ("a: &a [*a]", "Expected `int`, got `array`"),
    "lists 3,000 deep": (f"a: {'[' * 3000}{']' * 3000}", said_of_depth("Expected `int`, got `array`")),
    "lists 30,000 deep": (f"a: {'[' * 30_000}{']' * 30_000}", said_of_depth("nested deeper than 4096 levels")),
    "maps 10,000 deep": (f"a: {'{a: ' * 10_000}{'}' * 10_000}", said_of_depth("nested deeper than 4096 levels")),
    "a key 3,000 deep": (f"? {'[' * 3000}{']' * 3000}\n: 1", "not valid YAML"),
}


@pytest.mark.parametrize("name", BAD_YAML)
def test_bad_yaml_is_one_line_with_the_file_and_where_known_its_line(tmp_path: Path, name: str) -> None:
    text, words = BAD_YAML[name]
    path = tmp_path / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileError) as error:
        read_yaml(path, dict[str, int])
    assert str(error.value).startswith(f"{path}: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500


def test_long_yaml_that_is_not_deep_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text("".join(f"a{number}: {{b: [{number}]}}\n" for number in range(1000)))
    assert path.stat().st_size > files.DEEPEST_YAML
    assert read_yaml(path, dict[str, dict[str, list[int]]])["a999"] == {"b": [999]}


def test_an_empty_yaml_file_is_an_empty_mapping(tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text("# nothing yet\n")
    assert read_yaml(tmp_path / "file.yaml", dict[str, int]) == {}


@pytest.mark.parametrize(
    "code",
    [
        "def (:",
        "x = 1\0",
        "x = " + "-" * 100_000 + "1",
        "x = " + "f(" * 3000 + ")" * 3000,
        "x = " + "+".join(["1"] * 100_000),
        "x = a" + ".b" * 50_000,
        "x = 1\n" * 200_000,
    ],
    ids=["no Python", "a null", "minus signs", "calls", "terms", "attributes", "a long file"],
)
def test_code_that_has_no_tree_is_none(tmp_path: Path, code: str) -> None:
    (tmp_path / "code.py").write_text(code)
    assert parse_python(tmp_path / "code.py") is None


def test_names_of_files_are_short_and_differ_where_only_their_ends_do() -> None:
    assert files.safe_name("tiny train cuda:0 inductor:max-autotune") == "tiny-train-cuda-0-inductor-max-autotune"
    names = {files.safe_name("ä/\x1b" * 100 + mode) for mode in ("train", "eval", "\ud800")}
    assert len(names) == 3
    assert all(len(name.encode()) == files.LONGEST_NAME for name in names)


def test_json_has_the_escape_of_half_a_character() -> None:
    assert to_json({"a": ["gr\xfc\xdfe"]}) == '{"a":["gr\xfc\xdfe"]}'.encode()
    assert to_json({"\udcff": ("x\udcfe", 1, None)}) == b'{"\\\\udcff":["x\\\\udcfe",1,null]}'
