"""The base of all errors that the command line shows as one line, and the hint that says what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import TypeVar

_Result = TypeVar("_Result")


class TorchzooError(ValueError):
    """Bad input, or a file or a machine that can't be used. The message is one line that says what to do."""


class UsageError(TorchzooError):
    """The user asked for something that does not exist or does not go together."""


def nearest(word: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """`did you mean x or y?` with the known names that look most like `word`; `otherwise` where none does."""
    by_lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), by_lower, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(by_lower[name] for name in near)}?" if near else otherwise


def unknown(what: str, word: str, known: Iterable[str]) -> str:
    """The message for a word that is none of the known ones: `unknown mode 'trian': did you mean train? Known: ...`."""
    names = list(known)
    hint = nearest(word, names)
    return f"unknown {what} '{word}': {f'{hint} Known' if hint else 'known'}: {', '.join(names)}"


def attempt(action: Callable[[], _Result]) -> _Result | Exception:
    """Run code that is not torchzoo's (a model's, a library's) and return what it raises instead of raising it.

    This is the one broad `except` of the project. What such code raises is a result: the caller says what it means.
    """
    try:
        return action()
    except Exception as error:  # noqa: BLE001
        return error
