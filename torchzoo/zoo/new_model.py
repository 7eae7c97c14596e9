"""Make a new model folder as a copy of another model's, without the facts that hold only for that model."""

from __future__ import annotations

import ast
import keyword
import shutil
from datetime import UTC, date, datetime
from pathlib import Path

from torchzoo.case import Domain
from torchzoo.errors import UsageError
from torchzoo.files import FileError, parse_python, read_file
from torchzoo.zoo.catalog import Catalog
from torchzoo.zoo.metadata_text import FILL_IN, with_lines, without
from torchzoo.zoo.spec import ModelSpec

#: Fields of metadata that hold only for the other model: its figures, and how exact its results are.
OF_THE_OTHER = (
    "parameters",
    "batch_size",
    "serving_batch_size",
    "gflop_per_step",
    "device_memory_gib",
    "tolerances",
)


def make_folder(name: str, like: str, parent: Path, catalog: Catalog) -> Path:
    """Write the folder of a model of this name into `parent`, which exists.

    The folder has the files of the model `like`, with a docstring and a `metadata.yaml` to fill in, and keeps the
    contract from the start.

    Returns:
        The folder's path.

    Raises:
        UsageError: the name is invalid or in use, or `like` is not a model folder.
        TorchzooError: a file of `like` can't be read. Then `parent` is unchanged.
    """
    _check_name(name, parent, catalog)
    spec = _other(like, catalog)
    files = _files(Path(spec.folder), name, like, datetime.now(UTC).date())
    folder = parent / name
    try:
        folder.mkdir()
    except FileExistsError as error:
        raise UsageError(f"{folder} exists already: choose another name") from error
    try:
        for path, content in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
    except OSError:
        shutil.rmtree(folder, ignore_errors=True)  # made above
        raise
    return folder


def _check_name(name: str, parent: Path, catalog: Catalog) -> None:
    if not (name.isascii() and name.isidentifier()) or keyword.iskeyword(name) or name.startswith("_"):
        raise UsageError(
            f"'{name}' can't be the name of a model: use letters, digits and _, and begin with a letter, as in resnet18"
        )
    if name == "all" or name in tuple(Domain):
        raise UsageError(f"'{name}' can't be the name of a model: on the command line it chooses many models")
    if (parent / name).exists():
        raise UsageError(f"{parent / name} exists already: choose another name")
    if name in catalog.folders:
        raise UsageError(f"there is a model '{name}' already, in {catalog.folders[name]}: choose another name")


def _other(like: str, catalog: Catalog) -> ModelSpec:
    (*chosen,) = catalog.select([like])
    if chosen != [like]:
        raise UsageError(f"--like needs the name of one model, such as resnet18; found '{like}'")
    spec = catalog.spec(like)
    if spec.collection:
        raise UsageError(f"--like {like}: a model of a collection has no folder; name a model of `torchzoo list`")
    return spec


def _files(folder: Path, name: str, like: str, today: date) -> dict[Path, bytes]:
    """The new folder's files, by their paths in it."""
    found: dict[Path, bytes] = {}
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and "__pycache__" not in inside.parts:
            found[inside] = read_file(path)
    init, metadata = Path("__init__.py"), Path("metadata.yaml")
    if init not in found:
        raise FileError(f"{folder / init}: there is no such file")
    code = found[init].decode(errors="surrogateescape")  # another encoding is kept as it is
    new = _with_docstring(folder / init, code, _docstring(name, like, today))
    found[init] = new.encode(errors="surrogateescape")
    found[metadata] = _metadata(found[metadata].decode(), name, like).encode()
    return found


def _docstring(name: str, like: str, today: date) -> str:
    return (
        f'"""{FILL_IN}: what {name} is (authors, year, link to the paper), and what one step of it does.\n\n'
        f"Begun as a copy of torchzoo's {like}, {today:%Y-%m-%d}.\n"
        '"""'
    )


def _with_docstring(path: Path, code: str, docstring: str) -> str:
    """The code with the module's docstring replaced, or added above it."""
    tree = parse_python(path)
    if tree is None:
        raise FileError(f"{path}: no Python that can be parsed")
    if ast.get_docstring(tree) is None:
        return f"{docstring}\n\n{code}"
    lines, old = code.splitlines(keepends=True), tree.body[0]
    assert old.end_lineno is not None
    return "".join([*lines[: old.lineno - 1], f"{docstring}\n", *lines[old.end_lineno :]])


def _metadata(text: str, name: str, like: str) -> str:
    lines = {
        "paper": f"paper: https://example.org  # {FILL_IN}: the link to the paper",
        "source": f'source: unknown  # {FILL_IN}: the library that has {name}, or "written here after <paper>"',
    }
    head = (
        f"# Begun as a copy of {like}, without its figures. `torchzoo check-model` says what is missing, and\n"
        "# --write fills in parameters, batch_size and gflop_per_step. torchzoo/zoo/spec.py explains all fields.\n"
    )
    return head + with_lines(without(text, OF_THE_OTHER), lines)
