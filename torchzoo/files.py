"""Read files of a user or another program: return the content, or raise an error of one line that names the file.

A named pipe, a device or a folder is an error, and never waited for. A huge file, or YAML so deep that a parser would
crash, is an error, too.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from torchzoo.errors import TorchzooError, attempt, one_line, written

#: The most bytes of a YAML and of a Python file that are read. Typical files have a few KiB.
YAML_BYTES, PYTHON_BYTES = 64 * 2**10, 2**20
#: The most bytes of a JSON file. A bisection of a hundred thousand commits has some 10 MiB.
JSON_BYTES = 64 * 2**20

#: The most levels of YAML: libyaml's reader recurses, and crashes from some 20,000 levels on. Texts of at most so many
#: characters can't be deeper.
DEEPEST_YAML = 4096

#: The longest name that `safe_name` returns: a file name has at most 255 bytes, of which callers add some.
LONGEST_NAME = 200

_NEVER_WAIT = getattr(os, "O_NONBLOCK", 0)  # Windows has no such flag, and no named pipe among its files

_Kind = TypeVar("_Kind")


class FileError(TorchzooError):
    """A file can't be read, or has invalid content. The message is one line that begins with its path."""


def read_file(path: Path, most_bytes: int | None = None) -> bytes:
    """The content of a regular file. Opening never waits, as for a named pipe.

    Raises:
        FileError: the file does not exist, can't be read, or is larger than `most_bytes`.
    """
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | _NEVER_WAIT)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileError(f"{path}: a pipe or a device, not a file")
            content = file.read(-1 if most_bytes is None else most_bytes + 1)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror or error}") from error
    if most_bytes is not None and len(content) > most_bytes:
        raise FileError(f"{path}: larger than {most_bytes // 2**10} KiB")
    return content


def read_yaml(path: Path, kind: type[_Kind], most_bytes: int = YAML_BYTES) -> _Kind:
    """Read a YAML file as a `kind`, as `msgspec.convert` does. An empty file is an empty mapping.

    Raises:
        FileError: the file can't be read, is not UTF-8 or not YAML, or its content is no `kind`.
    """
    content = read_file(path, most_bytes)
    found = attempt(lambda: msgspec.convert(_load_yaml(content.decode()), kind))
    if not isinstance(found, Exception):
        return found
    if isinstance(found, msgspec.ValidationError):
        what = str(found)
    elif isinstance(found, UnicodeDecodeError):
        lines = content.count(b"\n", 0, found.start)
        what = f"not UTF-8 text in line {lines + 1}: {found.reason}"
    else:  # errors of yaml, or of Python, as of a number with 5,000 digits
        mark = getattr(found, "problem_mark", None)
        line = f" in line {mark.line + 1}" if mark else ""
        what = f"not valid YAML{line}: {getattr(found, 'problem', None) or found}"
    raise FileError(f"{path}: {one_line(what)}") from found


def _load_yaml(text: str) -> Any:
    import yaml

    depth = 0
    for event in yaml.parse(text, Loader=_yaml_loader()) if len(text) > DEEPEST_YAML else ():
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST_YAML:
            raise ValueError(f"nested deeper than {DEEPEST_YAML} levels")
    found = yaml.load(text, Loader=_yaml_loader())  # noqa: S506  a safe loader
    return {} if found is None else found


@functools.cache
def _yaml_loader() -> Any:
    """A loader of plain data. Merges (`<<`), with which a short text can grow to gigabytes, are refused."""
    import yaml

    fast = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return type("Loader", (fast,), {"flatten_mapping": lambda *_: None})


def safe_name(text: str) -> str:
    """`text` as a file name of ASCII letters, digits and `_.-`. Long names are cut, and stay distinct."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", text)
    if len(name) <= LONGEST_NAME:
        return name
    rest = hashlib.sha256(written(text).encode()).hexdigest()[:8]
    return f"{name[: LONGEST_NAME - len(rest) - 1]}-{rest}"


def parse_python(path: Path) -> ast.Module | None:
    """The syntax tree of a file; None if it can't be parsed, which its import will report."""
    tree = attempt(lambda: ast.parse(read_file(path, PYTHON_BYTES)))  # a MemoryError or RecursionError for deep code
    return None if isinstance(tree, Exception) else tree


def read_json(path: Path, kind: type[_Kind], most_bytes: int = JSON_BYTES) -> _Kind:
    """Read a JSON file that torchzoo wrote.

    Raises:
        FileError: the file can't be read, or its content is no `kind`.
    """
    content = read_file(path, most_bytes)
    found = attempt(lambda: msgspec.json.decode(content, type=kind))
    if isinstance(found, Exception):
        raise FileError(f"{path}: not written by this version of torchzoo: {one_line(found)}") from found
    return found


def to_json(value: Any) -> bytes:
    """`value` as JSON, with text that UTF-8 can't encode escaped (see `written`)."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_all_written(msgspec.to_builtins(value)))


def _all_written(value: Any) -> Any:
    if isinstance(value, str):
        return written(value)
    if isinstance(value, dict):
        return {_all_written(key): _all_written(one) for key, one in value.items()}
    return [_all_written(one) for one in value] if isinstance(value, list | tuple) else value
