"""The arguments that several commands share. Each function parses one kind of argument, or raises a one-line error."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from torchzoo.errors import UsageError, unknown
from torchzoo.run import plan
from torchzoo.store import Run, StoreError, read_run
from torchzoo.zoo.suites import suite_names

_Choice = TypeVar("_Choice", bound=str)


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, --suite and --models-dir."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*'), a domain (nlp), or all")
    add_suite(parser)


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add --suite and --models-dir."""
    parser.add_argument("--suite", default="", metavar="S[,S]", help=f"{', '.join(suite_names())}, or a YAML file")
    parser.add_argument(
        "--models-dir", type=Path, action="append", default=[], metavar="DIR", help="more model folders"
    )


def chosen_models(arguments: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns and the suites that were given to the arguments of `add_models`.

    Raises:
        UsageError: none was given.
    """
    suites = words(arguments.suite)
    if not arguments.models and not suites:
        raise UsageError("name at least one MODEL, a glob, a domain, all or a --suite; see `torchzoo list`")
    return tuple(arguments.models), suites


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    value = int(text) if text.isascii() and text.isdigit() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, found '{text}'")
    return value


def positive_float(text: str) -> float:
    """A positive, finite number."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise argparse.ArgumentTypeError(f"expected a positive number of seconds, found '{text}'")


def indices(text: str) -> tuple[int, ...]:
    """Device numbers such as 0,1,2. Each is kept once."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        raise argparse.ArgumentTypeError(f"expected device numbers such as 0,1,2, found '{text}'")
    return tuple(dict.fromkeys(int(word) for word in words))


def size_in_bytes(text: str) -> int:
    """A number with or without KiB, MiB or GiB, in bytes."""
    for suffix, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("", 1)):
        number = text.removesuffix(suffix)
        if number.isascii() and number.isdigit() and int(number) > 0:
            return int(number) * factor
    raise argparse.ArgumentTypeError(f"expected a size such as 8GiB or 500MiB, found '{text}'")


def choices(text: str, kind: type[_Choice], what: str) -> tuple[_Choice, ...]:
    """A comma list as members of an enum. Each is kept once.

    Raises:
        UsageError: a word is no member, or there is no word.
    """
    members = {member.value: member for member in kind}  # type: ignore[attr-defined]
    chosen = []
    for word in filter(None, text.split(",")):
        if word not in members:
            raise UsageError(unknown(what, word, members))
        chosen.append(members[word])
    if not chosen:
        raise UsageError(f"no {what} given; known: {', '.join(members)}")
    return tuple(dict.fromkeys(chosen))


def words(text: str) -> tuple[str, ...]:
    """The words of a comma list. Each is kept once."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def batch_sizes(text: str | None) -> tuple[int | str | None, ...]:
    """Batch sizes: numbers, `smoke`, `default` or `auto`. Each is kept once. None stands for no batch size."""
    if text is None:
        return (None,)
    return tuple(_batch_size(word) for word in words(text)) or (_batch_size(text),)


def _batch_size(word: str) -> int | str:
    if word in (plan.SMOKE, plan.DEFAULT, plan.AUTO):
        return word
    if not (word.isascii() and word.isdigit()) or int(word) < 1:
        words = f"'{plan.DEFAULT}', '{plan.AUTO}' or '{plan.SMOKE}'"
        raise UsageError(f"the batch size must be a whole number of at least 1, {words}: found '{word}'")
    return int(word)


def devices_of(text: str) -> tuple[str, ...]:
    """A comma list of devices. Each is kept once."""
    devices = words(text)
    for device in devices:
        kind, colon, index = device.partition(":")
        if not kind.isalpha() or (colon and not (index.isascii() and index.isdigit())):
            raise UsageError(f"not a device: '{device}'; write cpu, cuda or cuda:1")
    if not devices:
        raise UsageError("no device given; write cpu, cuda or cuda:1")
    return devices


def folder(path: Path, option: str) -> Path:
    """The folder at `path`. It is made if it does not exist.

    Raises:
        UsageError: it can't be made.
    """
    folder = path.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: can't make the folder {folder}: {error.strerror}") from error
    return folder


def say(line: str) -> None:
    """Print a line that is no result, to standard error."""
    print(line, file=sys.stderr, flush=True)


def kept_run(path: Path) -> Run:
    """Read a run that has records. The number of lines that can't be read goes to standard error.

    Raises:
        StoreError: there is no run at `path`, or it has no records.
    """
    found = read_run(path)
    if found.damaged_lines:
        print(f"torchzoo: {found.damaged_lines} lines of {path} could not be read", file=sys.stderr)
    if not found.records:
        raise StoreError(f"{path} holds no records yet")
    return found


def write(text: str, path: Path | None) -> None:
    """Print the text, or write it to a file.

    Raises:
        UsageError: the file can't be written.
    """
    if path is None:
        print(text, end="")
        return
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't write {path}: {error.strerror}") from error


def check_given(
    arguments: argparse.Namespace, obeyed: Collection[str], why: str, written: Mapping[str, str] | None = None
) -> None:
    """Refuse arguments that would have no effect. `arguments.parser` is the parser that they come from.

    Args:
        arguments: what the parser returned.
        obeyed: the destinations of the arguments that have an effect.
        why: the reason, the beginning of the message.
        written: how an option is written if its destination does not tell.

    Raises:
        UsageError: another argument was given; the message names all of them.
    """
    defaults = arguments.parser.parse_args([])
    names = {"models": "MODEL", **(written or {})}
    given = [
        names.get(name, f"--{name.replace('_', '-')}")
        for name, value in vars(arguments).items()
        if name not in obeyed and value != getattr(defaults, name, None)
    ]
    if given:
        raise UsageError(f"{why}: leave out {', '.join(given)}")
