"""Room for the frames of Python functions, so that no process is slow by chance.

CPython keeps the frames of functions that run in chunks of 16 KiB. Where a frame does not fit into what is left of a
chunk, the call gets a new one from the system, and gives it back when it returns. If a function that stands at the end
of a chunk calls others, each of these calls costs 100 times as much: 6.5 microseconds instead of 0.06 on an AMD EPYC
(Python 3.11 to 3.13), and more on a virtual machine. Which function that is depends on how deep the stack is below it:
in some processes it is none that matters. The code that inductor generates for a GPU is most at risk. Its frame is
large, since it has a variable for each buffer, and it calls a Python function for each kernel.

So the processes that measure begin with one large chunk, into which the frames of a step fit. The backward pass on an
accelerator runs in a thread of PyTorch's. There Python begins at the bottom of a chunk each time, as it does for users.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, ParamSpec, TypeVar

#: The entries of 8 bytes that the first frame asks for. The chunk has 1 MiB, the next power of two: 470 KiB are free.
_ENTRIES = 70_000

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def _call(function: Callable[..., Any], arguments: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    return function(*arguments, **keywords)


_call_with_room = FunctionType(_call.__code__.replace(co_stacksize=_ENTRIES), globals())


def with_room(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A decorator: the frames of all that the function calls, in its own thread, fit into one chunk."""

    @functools.wraps(function)
    def wrapper(*arguments: _Arguments.args, **keywords: _Arguments.kwargs) -> _Result:
        result: _Result = _call_with_room(function, arguments, keywords)
        return result

    return wrapper
