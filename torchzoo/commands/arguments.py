"""Arguments that several commands share. Each function parses one kind of argument, or raises a one-line error."""

from __future__ import annotations

import argparse
import contextlib
import errno
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TypeVar

from torchzoo.case import Backend
from torchzoo.errors import UsageError, unknown, written
from torchzoo.report import terminal
from torchzoo.run import plan
from torchzoo.store import Run, StoreError, read_run
from torchzoo.zoo.suites import suite_names

_Choice = TypeVar("_Choice", bound=str)

MOST_PARTS = 1000
MOST_REPEATS = 1000
MOST_THREADS = 2**31 - 1  # PyTorch's type for their number
MOST_SAMPLES = 2**63 - 1  # PyTorch's type for sizes
MOST_BYTES = 2**63 - 1  # the kernel's type for limits
MOST_DEVICES = 1000
LEAST_SEED, MOST_SEED = -(2**63), 2**63 - 1  # PyTorch takes these seeds, and JSON keeps them
MOST_SECONDS = 1e9  # 30 years: no limit in effect


def add_models(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, --suite and --models-dir."""
    parser.add_argument("models", nargs="*", metavar="MODEL", help="a name, a glob ('hf_*'), a domain (nlp), or all")
    add_suite(parser)


def add_suite(parser: argparse.ArgumentParser) -> None:
    """Add --suite and --models-dir."""
    parser.add_argument("--suite", default="", metavar="S[,S]", help=f"{', '.join(suite_names())}, or a YAML file")
    parser.add_argument(
        "--models-dir", type=recorded_path, action="append", default=[], metavar="DIR", help="more model folders"
    )


def chosen_models(arguments: argparse.Namespace) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The patterns and suites in the arguments of `add_models`.

    Raises:
        UsageError: neither a pattern nor a suite was given.
    """
    suites = words(arguments.suite)
    if not arguments.models and not suites:
        raise UsageError("name at least one MODEL, a glob, a domain, all or a --suite; see `torchzoo list`")
    return tuple(word for one in arguments.models for word in words(one)), suites


def whole_number(text: str, least: int, most: int) -> int | None:
    """Parse a number in plain digits; None if the text is no number, or is out of bounds."""
    digits = text.removeprefix("-") if least < 0 else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(most)):  # Python reads 4,300 digits at most
        return None
    value = int(text)
    return value if least <= value <= most else None


def part(text: str) -> tuple[int, int]:
    """`2/4` as 2 and 4."""
    number, slash, count = text.partition("/")
    found = (whole_number(number, 1, MOST_PARTS), whole_number(count, 1, MOST_PARTS))
    if not slash or found[0] is None or found[1] is None or found[0] > found[1]:
        raise argparse.ArgumentTypeError(f"expected a part such as 1/4, found '{text}'")
    return found[0], found[1]


def positive_int(text: str, most: int = MOST_THREADS) -> int:
    """A whole number from 1 to `most`."""
    value = whole_number(text, 1, most)
    if value is None:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1 and at most {most}, found '{text}'")
    return value


def repeat_count(text: str) -> int:
    """A number of processes, from 1 to `MOST_REPEATS`."""
    return positive_int(text, MOST_REPEATS)


def seed(text: str) -> int:
    """A seed, from -2**63 to 2**63 - 1."""
    value = whole_number(text, LEAST_SEED, MOST_SEED)
    if value is None:
        raise argparse.ArgumentTypeError(f"expected a whole number from -2**63 to 2**63 - 1, found '{text}'")
    return value


def seconds(text: str) -> float:
    """A positive number of seconds, at most `MOST_SECONDS`."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return min(float(text), MOST_SECONDS)
    raise argparse.ArgumentTypeError(f"expected a positive number of seconds, found '{text}'")


def share_of(text: str) -> float:
    """A share: `7%`, `7` or `0.07`."""
    try:
        number = float(text.removesuffix("%"))
        share = number / 100 if text.endswith("%") or number >= 1 else number
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(f"expected a percentage such as 7% or 7, found '{text}'")
    return share


def indices(text: str) -> tuple[int, ...]:
    """Device numbers such as 0,1,2, without duplicates."""
    found = [whole_number(word, 0, MOST_DEVICES) for word in text.split(",")]
    if None in found:
        raise argparse.ArgumentTypeError(f"expected device numbers such as 0,1,2, found '{text}'")
    return tuple(dict.fromkeys(number for number in found if number is not None))


def counts(text: str) -> tuple[int, ...]:
    """Numbers of ranks such as 1,2,4, without duplicates."""
    found = [whole_number(word, 1, MOST_DEVICES) for word in text.split(",")]
    if None in found:
        raise argparse.ArgumentTypeError(f"expected numbers from 1 on such as 1,2,4, found '{text}'")
    return tuple(dict.fromkeys(number for number in found if number is not None))


def size_in_bytes(text: str) -> int:
    """A number with or without KiB, MiB or GiB, in bytes: from 1 to 2**63 - 1."""
    for suffix, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("", 1)):
        number = whole_number(text.removesuffix(suffix), 1, MOST_BYTES // factor)
        if number is not None:
            return number * factor
    raise argparse.ArgumentTypeError(f"expected a size such as 8GiB or 500MiB, below 8,589,934,592GiB, found '{text}'")


def usable_path(text: str) -> Path:
    """A path that the system accepts. Its user checks what must be there."""
    if not text:
        raise argparse.ArgumentTypeError("expected a path, found ''")
    path = Path(text)
    try:
        path.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTDIR):
            raise argparse.ArgumentTypeError(f"can't use the path '{text}': {error.strerror}") from error
    return path


def spec_text(text: str) -> str:
    """The SPEC of an environment. An empty one, as from an unset variable, is refused."""
    if not text.strip():
        raise argparse.ArgumentTypeError("expected a SPEC, found '': is a variable not set? (`this`: this environment)")
    return text


def recorded_path(text: str) -> Path:
    """A path that can be stored in the run's JSON, where `--resume` reads it."""
    path = usable_path(text)
    if written(str(path)) != str(path):
        raise argparse.ArgumentTypeError(f"the path '{text}' has bytes that are not UTF-8: name another")
    return path


def choices(text: str, kind: type[_Choice], what: str) -> tuple[_Choice, ...]:
    """The members of an enum in a comma list, without duplicates.

    Raises:
        UsageError: a word is no member, or the list is empty.
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
    """The words of a comma list, without duplicates."""
    return tuple(dict.fromkeys(filter(None, text.split(","))))


def batch_sizes(text: str | None) -> tuple[int | str | None, ...]:
    """Batch sizes: numbers, or words such as `smoke`, without duplicates. None stands for no batch size."""
    if text is None:
        return (None,)
    return tuple(_batch_size(word) for word in words(text)) or (_batch_size(text),)


def _batch_size(word: str) -> int | str:
    if word in plan.BATCH_WORDS:
        return word
    size = whole_number(word, 1, MOST_SAMPLES)
    if size is None:
        kinds = f"a whole number of at least 1 (below 2**63) or one of {', '.join(plan.BATCH_WORDS)}"
        raise UsageError(f"the batch size must be {kinds}: found '{word}'")
    return size


def devices_of(text: str) -> tuple[str, ...]:
    """The devices of a comma list in their recorded form (`cpu`, `cuda`, `cuda:1`), without duplicates."""
    devices = tuple(dict.fromkeys(map(_device, words(text))))
    if not devices:
        raise UsageError("no device given; write cpu, cuda or cuda:1")
    return devices


def _device(word: str) -> str:
    kind, colon, digits = word.partition(":")
    index = whole_number(digits, 0, MOST_DEVICES)
    if not kind.isalpha() or (colon and index is None):
        raise UsageError(f"not a device: '{word}'; write cpu, cuda or cuda:1")
    return f"{kind}:{index}" if colon and (kind, index) != ("cpu", 0) else kind  # cpu:0 is PyTorch's other name for cpu


def backends_of(text: str) -> tuple[Backend, ...]:
    """Return the backends of a comma list, each once.

    Raises:
        UsageError: a listed backend does not have that mode, or the list is empty.
    """
    chosen = words(text)
    if not chosen or any(word.startswith(":") for word in chosen):
        raise UsageError(f"not a backend: '{text}'; write eager, inductor or inductor:max-autotune")
    return tuple(dict.fromkeys(map(plan.parse_backend, chosen)))


def folder(path: Path, option: str) -> Path:
    """Return the folder at `path`, and make it if it does not exist.

    Raises:
        UsageError: the folder can't be made.
    """
    folder = path.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: can't make the folder {folder}: {error.strerror}") from error
    return folder


def kept_run(path: Path) -> Run:
    """Read a run that has records, and print the number of unreadable lines to standard error.

    Raises:
        StoreError: there is no run at `path`, or it has no records.
    """
    found = read_run(path)
    if found.damage:
        terminal.say(f"torchzoo: {found.damage}")
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
    """Refuse arguments that have no effect. `arguments.parser` is their parser.

    Args:
        arguments: what the parser returned.
        obeyed: the destinations of arguments that have an effect.
        why: the reason, the beginning of the message.
        written: the spelling of options whose destination differs.

    Raises:
        UsageError: another argument was given; the message names all of them.
    """
    defaults = arguments.parser.parse_args([])
    names = {"models": "MODEL", **(written or {})}
    given = [
        names.get(name, f"--{name.replace('_', '-')}")
        for name, value in vars(arguments).items()
        if name not in obeyed and value != getattr(defaults, name, value)
    ]
    if given:
        raise UsageError(f"{why}: leave out {', '.join(given)}")


def check_retries(arguments: argparse.Namespace) -> None:
    """Raise UsageError if --retry-failed is given without --resume."""
    if arguments.retry_failed:
        raise UsageError("--retry-failed goes with --resume RUN")
