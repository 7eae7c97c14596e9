"""Write the commands that measure a case, or a whole run, again."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable
from pathlib import PurePath

import msgspec

from torchzoo.case import AXES, Case, Parallel
from torchzoo.record import Failed, FailureKind, Manifest, Record
from torchzoo.settings import CacheMode, Settings
from torchzoo.zoo.programs import run_words


def command(case: Case, manifest: Manifest, *, repeats: int = 1, failed: Record | None = None) -> str:
    """`python run.py resnet18 -d cuda -t train --backend inductor --bs 16 ...`, quoted for a shell.

    Outside a checkout, the command begins with `torchzoo run`. The command has the settings that are not the defaults,
    and the time limits if the case exceeded a limit.
    """
    return shell_line([*run_words(), *words(case, manifest, repeats=repeats, failed=failed)])


def words(case: Case, manifest: Manifest, *, repeats: int = 1, failed: Record | None = None) -> list[str]:
    """The arguments of `python run.py`, or of `torchzoo ab --base A --candidate B`. See `command`."""
    found = [case.model, "-d", case.device, "-t", str(case.mode)]
    for axis in AXES:
        if axis.name not in ("mode", "device") and axis.of(case) is not None and not axis.is_default(case):
            found += [axis.options[0], axis.text(case)]
    if repeats != 1:
        found += ["--repeats", str(repeats)]
    found += _settings(manifest.settings)
    if failed is not None and isinstance(failed.outcome, Failed) and failed.outcome.kind is FailureKind.TIMEOUT:
        limits = manifest.settings.limits
        for name in ("build", "compile", "measure"):
            found += [f"--{name}-timeout", f"{getattr(limits, f'{name}_s'):g}"]
    for folder in manifest.models_dirs:
        found += ["--models-dir", folder]
    if case.model.startswith("-"):  # not an option
        found = [*found[1:], "--", case.model]
    return found


def again(cases: Iterable[Case], manifest: Manifest, *, time_limit_s: float) -> str:
    """Return the command that measures these cases of a run again, each with its own time limit.

    Each option has the values of all these cases. So other combinations of them are measured, too.
    """
    some = list(cases)
    models, options = list(dict.fromkeys(case.model for case in some)), list[str]()
    for axis in AXES:
        values = dict.fromkeys(axis.text(case) for case in some if axis.of(case) is not None)
        if axis.name == "parallel":
            values.pop(Parallel.NONE, None)  # the command says it by `--world 1`
        if axis.name == "batch_size" and len(values) > 1:
            values = dict.fromkeys(filter(None, [_given(manifest, axis.options)]))  # else each model's own
        if values and not all(axis.is_default(case) for case in some):
            options += [axis.options[0], ",".join(values)]
    repeats = 1 + max(case.repeat for case in manifest.cases)
    options += ["--repeats", str(repeats)] if repeats > 1 else []
    options += ["--devices", ",".join(map(str, manifest.device_indices))] if manifest.device_indices else []
    options += ["--time-limit", f"{time_limit_s:g}"]
    options += _settings(msgspec.structs.replace(manifest.settings, time_limit_s=Settings().time_limit_s))
    for folder in manifest.models_dirs:
        options += ["--models-dir", folder]
    has_option = any(model.startswith("-") for model in models)
    return shell_line([*run_words(), *([*options, "--", *models] if has_option else [*models, *options])])


def _given(manifest: Manifest, options: Collection[str]) -> str | None:
    """The word that one of these options had in the command that made a run, or None."""
    line = shlex.split(" ".join(manifest.command))
    for word, after in zip(line, [*line[1:], None], strict=True):
        option, is_joined, value = word.partition("=")
        if option in options:
            return value if is_joined else after
    return None


def of_run(manifest: Manifest) -> str:
    """The command that made a run, as a user types it: `torchzoo study nanogpt -d cuda`.

    The manifest has the command's words, quoted for a shell, with the full path of torchzoo's own programs.
    """
    program, *rest = manifest.command or ("",)
    path = PurePath(program.strip("'"))
    if path.parts[-2:] == ("torchzoo", "__main__.py") or path.name == "torchzoo":
        program = "torchzoo"
    elif path.name == "run.py":
        program = "torchzoo run"
    elif path.suffix == ".py":
        program = f"python {program}"
    return " ".join([program, *rest])


def shell_line(some: Iterable[str]) -> str:
    """The words as a command line for a shell."""
    return " ".join(map(_quoted, some))


def _quoted(word: str) -> str:
    """The word, quoted for a shell, with control characters as escapes, which are harmless in a terminal."""
    if word.isprintable():
        return shlex.quote(word)
    escapes = (
        f"\\x{byte:02x}" if byte < 0x20 or byte >= 0x7F or byte in b"'\\" else chr(byte) for byte in os.fsencode(word)
    )
    return f"$'{''.join(escapes)}'"


def _settings(settings: Settings) -> list[str]:
    words, defaults = [], Settings()
    if settings.time_limit_s != defaults.time_limit_s:
        words += ["--time-limit", f"{settings.time_limit_s:g}"]
    if settings.threads is not None:
        words += ["--threads", str(settings.threads)]
    if settings.host_memory_limit_bytes is not None:
        words += ["--host-memory-limit", str(settings.host_memory_limit_bytes)]
    if settings.cache is not CacheMode.COLD:
        words += ["--cache", settings.cache_dir or settings.cache]
    return words + [f"--{one.replace('_', '-')}" for one in settings.passes]
