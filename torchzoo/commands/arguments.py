"""Arguments that several commands share. Each function parses one kind of argument, or raises a one-line error."""

from __future__ import annotations

import argparse
import contextlib
import errno
from collections.abc import Callable, Collection, Iterable, Mapping
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
_SECONDS_OF = {"s": 1.0, "m": 60.0, "h": 3600.0}


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
    """The patterns and suites in the arguments of `add_models`."""
    patterns, suites = tuple(word for one in arguments.models for word in words(one)), words(arguments.suite)
    if not patterns and not suites:
        raise UsageError("name at least one MODEL, a glob, a domain, all or a --suite; see `torchzoo list`")
    return patterns, suites


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


def whole(least: int, most: int) -> Callable[[str], int]:
    """A parser of whole numbers within these bounds."""

    def read(text: str) -> int:
        value = whole_number(text, least, most)
        if value is None:
            what = f"expected a whole number of at least {least} and at most {most}"
            raise argparse.ArgumentTypeError(f"{what}, found '{text}'")
        return value

    return read


positive_int = whole(1, MOST_THREADS)
repeat_count = whole(1, MOST_REPEATS)
seed = whole(LEAST_SEED, MOST_SEED)


def seconds(text: str) -> float:
    """A positive number of seconds, at most `MOST_SECONDS`."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return min(float(text), MOST_SECONDS)
    raise argparse.ArgumentTypeError(f"expected a positive number of seconds, found '{text}'")


def budget(text: str) -> float | str:
    """A time in seconds, or `auto`: `90`, `90s`, `15m`, `1h`."""
    if text == plan.AUTO:
        return text
    unit = text[-1:] if text[-1:] in _SECONDS_OF else "s"
    with contextlib.suppress(argparse.ArgumentTypeError):
        return min(seconds(text.removesuffix(unit)) * _SECONDS_OF[unit], MOST_SECONDS)
    raise argparse.ArgumentTypeError(f"expected a time such as 90s, 15m or 1h, or {plan.AUTO}, found '{text}'")


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


def _numbers(least: int, example: str) -> Callable[[str], tuple[int, ...]]:
    def read(text: str) -> tuple[int, ...]:
        found = [whole_number(word, least, MOST_DEVICES) for word in text.split(",")]
        if None in found:
            raise argparse.ArgumentTypeError(f"expected numbers from {least} on such as {example}, found '{text}'")
        return tuple(dict.fromkeys(number for number in found if number is not None))

    return read


#: Parsers of lists of devices and of numbers of ranks, without duplicates.
indices, counts = _numbers(0, "0,1,2"), _numbers(1, "1,2,4")


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


def choices(text: str, known: Iterable[_Choice], what: str) -> tuple[_Choice, ...]:
    """The members of an enum in a comma list, without duplicates."""
    members = {str(member): member for member in known}
    chosen = words(text)
    for word in chosen:
        if word not in members:
            raise UsageError(unknown(what, word, members))
    if not chosen:
        raise UsageError(f"no {what} given; known: {', '.join(members)}")
    return tuple(members[word] for word in chosen)


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
    """Return the backends of a comma list, each once."""
    chosen = words(text)
    if not chosen or any(word.startswith(":") for word in chosen):
        raise UsageError(f"not a backend: '{text}'; write eager, inductor or inductor:max-autotune")
    return tuple(dict.fromkeys(map(plan.parse_backend, chosen)))


def folder(path: Path, option: str) -> Path:
    """Return the folder at `path`, and make it if it does not exist."""
    folder = path.resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{option}: can't make the folder {folder}: {error.strerror}") from error
    return folder


def say_damage(run: Run) -> None:
    """Print the number of unreadable lines of a run, if any, to standard error."""
    if run.damage:
        terminal.say(f"torchzoo: {run.damage}")


def kept_run(path: Path) -> Run:
    """Read a run that has records, and print the number of unreadable lines to standard error."""
    found = read_run(path)
    say_damage(found)
    if not found.records:
        raise StoreError(f"{path} holds no records yet")
    return found


def write(text: str, path: Path | None) -> None:
    """Print the text, or write it to a file."""
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
    """Refuse arguments whose destinations are not in `obeyed`, for the reason `why`; `written` spells those that
    differ.
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
