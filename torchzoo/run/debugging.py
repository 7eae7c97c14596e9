"""What `--debug DIR` keeps of a case: a folder of its own, and in it a script that reproduces what went wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torchzoo
from torchzoo.case import AXES, Case
from torchzoo.files import safe_name
from torchzoo.record import Checked, Failed, FailureKind, Manifest, Measured, Record
from torchzoo.store import RunStore, write_whole

SCRIPT = "reproduce.py"

#: Training that was not finite may have been so after many steps.
STEPS_UNTIL_NOT_FINITE = 2_000

_HEAD = '''"""{about}

This takes the same steps once more in this process, without measuring them. It should stop with the same error:

    python reproduce.py
{options}"""

import sys

sys.path.append({root!r})  # where torchzoo was; an installed one comes first
'''

_ALONE = """from torchzoo.measure.reproduce import reproduce

reproduce(
{arguments})
print("no error this time")
"""

_RANKS = """import torchzoo

found = torchzoo.run(
{arguments})
print(found.to_json(orient="records", indent=2))
sys.exit(int((found["outcome"] != "measured").any() or (found["check_status"] == "incorrect").any()))
"""

_MINIFY = """    python reproduce.py --minify    # Dynamo also writes a script that minimises the graph that fails
"""


def case_folder(debug_dir: str, case: Case) -> Path:
    """The folder of one case."""
    return Path(debug_dir) / safe_name(case.label())


def kept(run_store: RunStore, record: Record, manifest: Manifest) -> Record:
    """Store the record, and then the script if the run has `--debug`, and the case failed or its results are wrong.

    The record counts: a script that can't be written (a full disk) does not end the run.
    """
    stored = run_store.append(record)
    with contextlib.suppress(OSError):
        keep_reproduction(stored, manifest)
    return stored


def keep_reproduction(record: Record, manifest: Manifest) -> None:
    """Write the script where there should be one.

    Raises:
        OSError: it can't be written.
    """
    debug_dir, about = manifest.settings.debug_dir, _what_happened(record)
    if debug_dir is None or about is None or record.case.batch_size is None:
        return
    folder = case_folder(debug_dir, record.case)
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / SCRIPT, script(record, manifest, about).encode())


def _what_happened(record: Record) -> str | None:
    """In words, with the error; None if all is well."""
    outcome = record.outcome
    if isinstance(outcome, Failed):
        return f"torchzoo: {record.case.label()} failed ({outcome.kind} in {outcome.stage}): {outcome.message}"
    if isinstance(outcome, Measured | Checked) and outcome.is_incorrect:
        assert outcome.check is not None
        return f"torchzoo: {record.case.label()} gives wrong results: {outcome.check.reason}"
    return None


def script(record: Record, manifest: Manifest, about: str) -> str:
    """The text of the script. Words of others are in it as literals that can't end where they should not."""
    case, outcome, settings = record.case, record.outcome, manifest.settings
    is_wrong = isinstance(outcome, Measured | Checked)
    arguments: dict[str, object] = {"models" if case.world > 1 else "model": case.model}
    arguments |= {axis.name: axis.text(case) for axis in AXES if axis.of(case) is not None}
    arguments["check"] = is_wrong
    if case.world == 1:
        arguments = {name: value for name, value in arguments.items() if name not in ("world", "parallel")}
        if isinstance(outcome, Failed) and outcome.kind is FailureKind.NOT_FINITE:
            arguments["steps"] = STEPS_UNTIL_NOT_FINITE
    arguments |= {"threads": settings.threads, "models_dir": list(manifest.models_dirs)}
    if settings.host_memory_limit_bytes is not None:
        arguments["host_memory_limit"] = settings.host_memory_limit_bytes
    lines = [f"    {name}={value!r},\n" for name, value in arguments.items()]
    if case.world == 1:
        lines.append('    minify_to=sys.path[0] if "--minify" in sys.argv else None,\n')
    head = _HEAD.format(
        about=_in_docstring(about),
        options=_MINIFY if case.world == 1 else "",
        root=str(Path(torchzoo.__file__).resolve().parents[1]),
    )
    return head + (_ALONE if case.world == 1 else _RANKS).format(arguments="".join(lines))


def _in_docstring(text: str) -> str:
    """The text as it may stand in a docstring: no backslash, quote or character that can't be seen."""
    shown = text.encode("ascii", "backslashreplace").decode()
    return "".join(one if one.isprintable() and one not in '\\"' else " " if one != '"' else "'" for one in shown)
