"""A fresh process of the server (`torchzoo.run.server`): a new interpreter, for which nothing was imported or compiled.

    python -c "from torchzoo.run.fresh import main; main()" FUNCTION CONNECTION BEGAN_NS

`CONNECTION` is a file descriptor, and `BEGAN_NS` the time (of `time.monotonic_ns`) at which the server started Python.
Imports of this module are part of every turn's time, so they are few.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import sys
import traceback
from pathlib import Path

import msgspec

from torchzoo.backends import SCRATCH_VARIABLE, NotRunnable, cache_variables
from torchzoo.errors import attempt, written
from torchzoo.files import to_json
from torchzoo.machine import process
from torchzoo.machine.process import with_room
from torchzoo.measure.fresh_turns import Ask, Fresh
from torchzoo.record import Failed, Skipped, Took
from torchzoo.run.failures import STACKS_SIGNAL, failure
from torchzoo.run.lines import function_named, write_line
from torchzoo.run.process_tree import end_with_parent
from torchzoo.settings import Stage


@with_room
def main() -> None:
    """Call the function that is named, with the line that the server sends and the connection, as a fork does."""
    end_with_parent()
    connection = socket.socket(fileno=int(sys.argv[2]))
    connection.set_inheritable(False)
    with connection.makefile("rb") as lines:
        argument = lines.readline()
    function_named(sys.argv[1])(argument, connection)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the handlers of libraries


def work(argument: bytes, connection: socket.socket) -> None:
    """Run a turn: send each stage as it begins, then the outcome. `argument` is an `Ask`."""
    faulthandler.enable()
    faulthandler.register(STACKS_SIGNAL)
    process.keep_freed()
    ask = msgspec.json.decode(argument, type=Ask)
    os.environ.update(cache_variables(Path(ask.caches)), **{SCRATCH_VARIABLE: ask.scratch})
    if ask.cores:
        os.sched_setaffinity(0, ask.cores)
    stage = Stage.START

    def tell(new: Stage) -> None:
        nonlocal stage
        stage = new
        write_line(connection.fileno(), to_json(new) + b"\n")

    found = attempt(lambda: _called(Fresh(ask=ask, began_ns=int(sys.argv[3]), tell=tell)))
    line = attempt(lambda: to_json(_outcome(found, stage, ask.log)))
    if isinstance(line, Exception):
        line = to_json(_outcome(line, stage, ask.log))
    write_line(connection.fileno(), line + b"\n")


def _called(fresh: Fresh) -> Took:
    return Took(result=msgspec.to_builtins(function_named(fresh.ask.function)(fresh)))


def _outcome(found: Took | Exception, stage: Stage, log: str) -> Took | Skipped | Failed:
    if isinstance(found, Took):
        return found
    if isinstance(found, NotRunnable):
        return Skipped(reason=written(str(found)))
    traceback.print_exception(found)
    return failure(found, stage, log)
