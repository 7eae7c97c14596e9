"""`torchzoo check-model`: check that a model folder keeps the contract. `--write` fills in its figures.

Missing fields of metadata.yaml are computed first where possible, so that one call finds as many faults as possible.
This command imports torch and the folder's code.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.case import Domain, Mode
from torchzoo.commands.arguments import usable_path
from torchzoo.commands.new import shown
from torchzoo.errors import TorchzooError, UsageError, attempt, nearest, one_line
from torchzoo.files import FileError, read_yaml
from torchzoo.report import terminal
from torchzoo.zoo.catalog import NEEDS_DATA, find_models, load_model_class
from torchzoo.zoo.folders import bundled
from torchzoo.zoo.metadata_text import FILL_IN, to_fill_in, with_lines
from torchzoo.zoo.requirements import unsatisfied
from torchzoo.zoo.spec import COMPUTED, ModelSpec, completed

# --- the fields of `metadata.yaml` ---

#: The fields that every model has, and their meanings.
MEANING = {
    "domain": f"one of {', '.join(Domain)}",
    "task": "what the model does, in a word such as image_classification",
    "paper": "the link to the paper, which begins with https://",
    "source": "the library that has the model, or 'written here after <paper>'",
    "requirements": "a list of the libraries that pip must install beyond torch; [] if there are none",
    "parameters": "how many elements the parameters of all networks have",
    "batch_size": "the batch of each mode in the original code, as in {train: 16, eval: 8}",
    "smoke_batch_size": "a small batch, for tests on the CPU",
}


def wrong_fields(given: Mapping[str, Any]) -> list[str]:
    """The faults of the fields: missing ones that only a person can fill in, unknown ones, and wrong values."""
    kinds = {field.name: field.type for field in msgspec.structs.fields(ModelSpec)}
    wrong = [f"has no {name}: {MEANING[name]}" for name in MEANING if name not in given and name not in COMPUTED]
    for name, value in given.items():
        if name not in kinds:
            wrong.append(f"has {name}, which is no field: {nearest(str(name), kinds, otherwise='leave it out')}")
        else:
            wrong += _wrong_value(name, value, kinds[name])
    return [f"metadata.yaml {what}" for what in wrong]


def _wrong_value(name: str, value: Any, kind: Any) -> list[str]:
    error = attempt(lambda: msgspec.convert(value, kind))
    if not isinstance(error, msgspec.ValidationError):
        return []
    what, _, place = one_line(error).partition(" - at `$")
    meaning = f" ({MEANING[name]})" if name in MEANING else ""
    return [f"has a wrong {name}{place.rstrip('`')}{meaning}: {what[:1].lower()}{what[1:]}"]


KEEPS, BREAKS = 0, 1

SMOKE_BATCH = 2
#: The default batch, in smoke batches, until a person writes the batch of the original code.
FIRST_BATCH = 8

#: Counts of operations are equal up to this share, since metadata.yaml has four digits.
SAME_GFLOP = 1e-3

#: Lines for metadata.yaml, by field.
Lines = dict[str, str]


class FolderCheck(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking a folder."""

    parameters: int = 0
    modes: tuple[Mode, ...] = ()
    broken: tuple[str, ...] = ()  # reasons why it does not keep the contract
    lines: Lines = {}  # missing or wrong lines of metadata.yaml that can be computed
    notes: tuple[str, ...] = ()


def add_parser(commands: Any) -> None:
    """Add `check-model` to argparse's subcommands."""
    parser = commands.add_parser(
        "check-model",
        help="say what a model folder lacks to keep the contract",
        description="Build the model of a folder at its smoke batch size, take a step in each mode, and say what is "
        "missing or breaks the contract, and where a step depends on the ones before it or writes into its data. This "
        "runs the folder's code. Exit status: 0 it keeps the contract, 1 it does not, 2 wrong usage.",
    )
    parser.add_argument("folder", type=usable_path, metavar="DIR", help="a model folder, or the name of a model")
    parser.add_argument(
        "--write",
        action="store_true",
        help="if all else is right, put parameters, batches and operations of a step into metadata.yaml where it has "
        "none",
    )
    parser.set_defaults(command=run)


def run(arguments: argparse.Namespace) -> int:
    """Check the folder, show the result, and write lines into metadata.yaml if asked."""
    folder = _folder(arguments.folder)
    with contextlib.redirect_stdout(sys.stderr):  # output of libraries is not part of the result
        found = check(folder, writes=arguments.write)
    if found.broken:
        terminal.show_line(f"{shown(folder)} does not keep the contract:")
        for line in found.broken:
            terminal.show_line(f"- {line}")
        if arguments.write:
            terminal.say("nothing was written: correct this first")
        return BREAKS
    if found.lines and arguments.write:
        write(folder / "metadata.yaml", found.lines)
        terminal.show_line(f"written into {shown(folder / 'metadata.yaml')}:")
        for line in found.lines.values():
            terminal.show_line(f"  {line}")
    modes = ", ".join(found.modes)
    terminal.show_line(f"{shown(folder)} keeps the contract: {found.parameters:,} parameters, steps: {modes}")
    for line in (*found.notes, *_left_to_fill_in(folder)):
        terminal.say(line)
    terminal.say(f"next: {_next_command(folder, found.modes)}")
    return KEEPS


def _folder(given: Path) -> Path:
    folders = {} if given.is_dir() else find_models().folders
    if not given.is_dir() and str(given) not in folders:
        hint = nearest(str(given), folders, otherwise="`torchzoo new NAME --like resnet18` makes one")
        raise UsageError(f"no model folder {given}: {hint}")
    return folders.get(str(given), given).resolve()


def _left_to_fill_in(folder: Path) -> list[str]:
    places = []
    for path in [folder / "metadata.yaml", *sorted(folder.rglob("*.py"))]:
        numbers = to_fill_in(path.read_text(encoding="utf-8", errors="replace"))
        places += [f"{path.relative_to(folder)} line {number}" for number in numbers]
    return [f"still to write, where it says {FILL_IN}: {', '.join(places)}"] if places else []


def _next_command(folder: Path, modes: tuple[Mode, ...]) -> str:
    words = ["torchzoo", "run", folder.name]
    if folder.parent != bundled("models").resolve():
        words += ["--models-dir", shown(folder.parent)]
    return shlex.join([*words, "-t", ",".join(modes), "--backend", "inductor"])


def check(folder: Path, *, writes: bool) -> FolderCheck:
    """Check a folder. Without `writes`, lines that metadata.yaml lacks break the contract."""
    path = folder / "metadata.yaml"
    try:
        given = read_yaml(path, dict[str, Any])
    except FileError as error:
        return FolderCheck(broken=(f"{error} (`torchzoo new NAME --like resnet18` writes a metadata.yaml)",))
    if wrong := wrong_fields(given):
        return FolderCheck(broken=tuple(wrong))
    spec = _for_now(given, folder)
    if lacking := [reason for requirement in spec.requirements if (reason := unsatisfied(requirement))]:
        command = shlex.join(["pip", "install", *spec.requirements])
        return FolderCheck(broken=(f"a library of its requirements is missing: {', '.join(lacking)}: {command}",))
    found = attempt(lambda: _check_code(spec, given, path, writes=writes))
    return FolderCheck(broken=(told(found, folder),)) if isinstance(found, Exception) else found


def _for_now(given: Mapping[str, Any], folder: Path) -> ModelSpec:
    filled = {"parameters": 0, "batch_size": {}, "smoke_batch_size": SMOKE_BATCH, **given}
    spec = msgspec.convert(filled, ModelSpec)
    return msgspec.structs.replace(spec, name=folder.name, folder=str(folder), collection="")


def _check_code(spec: ModelSpec, given: Mapping[str, Any], path: Path, *, writes: bool) -> FolderCheck:
    """Import the folder, build its model and take its steps. Errors of its code propagate."""
    from torchzoo.measure.repeated_step import step_notes
    from torchzoo.zoo import contract

    steps = _steps(spec)
    lines: Lines = {}
    if "smoke_batch_size" not in given:
        lines["smoke_batch_size"] = f"smoke_batch_size: {SMOKE_BATCH}"
    if not spec.batch_size:
        spec = msgspec.structs.replace(spec, batch_size=dict.fromkeys(steps, FIRST_BATCH * spec.smoke_batch_size))
        batches = ", ".join(f"{mode}: {batch}" for mode, batch in spec.batch_size.items())
        lines["batch_size"] = f"batch_size: {{{batches}}}  # {FILL_IN}: the batches of the original code"
    if strange := [mode for mode in spec.batch_size if mode not in steps]:
        what = ", ".join(f"{mode}_step" for mode in strange)
        return FolderCheck(broken=(f"batch_size has {', '.join(strange)}, but the class Model has no {what}",))
    if "parameters" not in given:
        spec = msgspec.structs.replace(spec, parameters=_parameters(spec))
        lines["parameters"] = f"parameters: {spec.parameters}"
    spec = completed(spec, path)
    broken = contract.check_model(spec)
    notes = [f"its steps had no values: metadata.yaml says that {spec.large}"] if spec.large else []
    if not broken:
        notes += step_notes(spec)
        counted, not_counted = _count(spec)
        notes += not_counted
        if any(abs(new - spec.gflop_per_step.get(mode, -1.0)) > SAME_GFLOP * new for mode, new in counted.items()):
            lines["gflop_per_step"] = _gflop_line(spec.gflop_per_step | counted)
    if not writes:
        fault = {name: f"has another {name} than was counted" for name in given}
        fault |= {name: f"has no {name} ({meaning})" for name, meaning in MEANING.items()}
        broken += [f"metadata.yaml {fault[name]}: --write puts in `{lines[name]}`" for name in lines if name in fault]
    return FolderCheck(
        parameters=spec.parameters, modes=spec.modes(), broken=tuple(broken), lines=lines, notes=tuple(notes)
    )


def _steps(spec: ModelSpec) -> list[Mode]:
    """The modes for which the model's class has a step, without those that an entry of skips leaves out."""
    from torchzoo.model import Model

    model_class = load_model_class(spec)
    return [
        mode
        for mode in Mode
        if getattr(model_class, f"{mode}_step") is not getattr(Model, f"{mode}_step")
        and (spec.tokens is not None or not mode.generates)
        and not any(rule.holds_for_all(mode) for rule in spec.skips)
    ]


def _parameters(spec: ModelSpec) -> int:
    """The number of parameters of all networks in training, or in the model's first mode."""
    from torchzoo.zoo.contract import build_cheaply

    mode = Mode.TRAIN if Mode.TRAIN in spec.batch_size else spec.modes()[0]
    networks = build_cheaply(spec, mode, spec.smoke_batch_size).networks().values()
    return sum(parameter.numel() for network in networks for parameter in network.parameters())


def _count(spec: ModelSpec) -> tuple[dict[Mode, float], list[str]]:
    """The GFLOP of a step of each mode at the default batch, and the reasons why some are missing."""
    from torchzoo.measure.passes.flops import count_work
    from torchzoo.measure.without_data import true_answers

    counted: dict[Mode, float] = {}
    notes = []
    for mode, batch_size in spec.batch_size.items():
        try:
            with true_answers(spec, mode):
                work = count_work(load_model_class(spec)(mode, "meta", batch_size).measured_step)
        except NEEDS_DATA:
            notes.append(f"FLOPs of {mode} are not counted: the step needs data; `torchzoo run --flops` counts them")
            continue
        if work.without_formula:
            notes.append(f"FLOPs of {mode} are not counted: no formula for {', '.join(sorted(work.without_formula))}")
        else:
            counted[mode] = work.total / 1e9
    return counted, notes


def _gflop_line(gflop: Mapping[Mode, float]) -> str:
    """The line, its values with four digits and no exponent, which YAML parses in its own way."""
    cells = ", ".join(f"{mode}: {Decimal(f'{value:.4g}'):f}" for mode, value in gflop.items())
    return f"gflop_per_step: {{{cells}}}"


def told(error: Exception, folder: Path) -> str:
    """An error of a folder's code in one line, with the last place in the folder on its traceback."""
    if isinstance(error, TorchzooError):
        return one_line(error)
    frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).is_relative_to(folder)]
    where = [f"{Path(one.filename).relative_to(folder)} line {one.lineno}, in {one.name}" for one in frames[-1:]]
    what = f"{type(error).__name__}: {one_line(error)}"
    if isinstance(error, ModuleNotFoundError):
        what += "; name its library in metadata.yaml's requirements, and install it"
    return "; ".join([what, *where])


def write(path: Path, lines: Lines) -> None:
    """Put lines into a `metadata.yaml`. The file is replaced atomically, and only by a readable one."""
    path = path.resolve()
    text = with_lines(path.read_text(encoding="utf-8"), lines)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".check-model-") as scratch:
        new = Path(scratch) / path.name
        new.write_text(text, encoding="utf-8")
        try:
            read_yaml(new, ModelSpec)
        except FileError as error:
            raise UsageError(f"{path}: can't put in {'; '.join(lines.values())}: write this yourself") from error
        shutil.copymode(path, new)
        new.replace(path)
