"""The base of all errors that the command line shows as one line, and functions that make such lines."""

from __future__ import annotations

import difflib
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from typing import TypeVar

_Result = TypeVar("_Result")


class TorchzooError(ValueError):
    """An error of the input, of a file or of the machine. The message is one line that says what to do."""


class UsageError(TorchzooError, ArgumentTypeError):
    """A request for something that does not exist, or that contradicts itself. argparse shows its message."""


def nearest(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """`did you mean x or y?` with the known names most similar to `word`; `otherwise` if none is similar."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(by_lower[name] for name in near)}?" if near else otherwise


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """The message for an unknown word: `unknown mode 'trian': did you mean train? Known: train, eval`."""
    names = list(known)
    hint = nearest(word, names)
    return f"unknown {what} '{word}': {f'{hint} Known' if hint else 'known'}: {', '.join(names)}"


def one_line(error: object) -> str:
    """The message of an error, as one line of at most 300 characters; the name of its class if it has none."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def written(text: str) -> str:
    """`text` in a form that UTF-8 can encode. Lone surrogates, as of a file name that is not UTF-8, are escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def attempt(action: Callable[[], _Result]) -> _Result | Exception:
    """Run code of a model or a library, and return its result, or the error that it raises.

    This is the only broad `except` of the project, since foreign code may raise any error.
    """
    try:
        return action()
    except Exception as error:  # noqa: BLE001
        return error
