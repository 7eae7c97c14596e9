"""The base of all errors that the command line shows as one line, and what makes such lines: hints, and plain text."""

from __future__ import annotations

import difflib
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from typing import TypeVar

_Result = TypeVar("_Result")


class TorchzooError(ValueError):
    """Bad input, or a file or a machine that can't be used. The message is one line that says what to do."""


class UsageError(TorchzooError, ArgumentTypeError):
    """The user asked for something that does not exist or does not go together. argparse shows its message."""


def nearest(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """`did you mean x or y?` with the known names that are most like `word`; `otherwise` if no name is like it."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(by_lower[name] for name in near)}?" if near else otherwise


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """The message for a word that is not known: `unknown mode 'trian': did you mean train? Known: train, eval`."""
    names = list(known)
    hint = nearest(word, names)
    return f"unknown {what} '{word}': {f'{hint} Known' if hint else 'known'}: {', '.join(names)}"


def one_line(error: object) -> str:
    """What an error says, as one line of at most 300 characters; the name of its class where it says nothing."""
    return " ".join(str(error).split())[:300] or type(error).__name__


def written(text: str) -> str:
    """`text` as UTF-8 can write it. A lone surrogate, such as a byte of a file name that is not UTF-8, is escaped."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def attempt(action: Callable[[], _Result]) -> _Result | Exception:
    """Run code of a model or a library. If it raises an error, return the error.

    This is the only broad `except` of the project. Foreign code may raise anything, and for the caller the error is a
    result.
    """
    try:
        return action()
    except Exception as error:  # noqa: BLE001
        return error
