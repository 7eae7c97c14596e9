"""The runs of studies: several are joined, moved or cut short, and which of their cases a study counts."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from benchmark_runs import beside, run_of
from study_records import of_plan, study_table

from examples import compared, environment
from examples import record as example
from kept_runs import keep
from torchzoo import cli
from torchzoo.case import EAGER, Case, Mode, Precision
from torchzoo.machine.differences import machine_kind
from torchzoo.record import Skipped
from torchzoo.settings import Settings
from torchzoo.store import Run, RunStore, StoreError, read_run
from torchzoo.studies import study
from torchzoo.zoo.catalog import find_models

# --- runs ---


def test_runs_of_one_machine_are_joined(tmp_path: Path) -> None:
    first = keep(tmp_path / "first", [example(model="one")])
    second = keep(tmp_path / "second", [example(model="two"), example(model="one", mode=Mode.TRAIN)])
    (run,) = study.read_runs(study.load("paper_breakdown"), [first, second])
    assert [(record.case.model, record.case.mode) for record in run.records] == [
        ("one", "eval"),
        ("two", "eval"),
        ("one", "train"),
    ]
    assert len(run.manifest.cases) == 3


@pytest.mark.parametrize(
    ("name", "model"), [("resnets", "timm_resnet18_images"), ("nanogpt", "nanogpt_gpt2_iteration")]
)
def test_a_run_that_was_moved_finds_its_models(name: str, model: str, tmp_path: Path) -> None:
    path = keep(tmp_path / "moved", [example(model=model)], models_dirs=("/no/such/models",))
    found = study.at_home(study.load(name), read_run(path))
    assert model in find_models(map(Path, found.manifest.models_dirs))
    untouched = read_run(keep(tmp_path / "other", [example(model=model)], models_dirs=(str(tmp_path),)))
    assert study.at_home(study.load(name), untouched) is untouched


def test_the_document_has_the_commands_that_made_its_runs(tmp_path: Path) -> None:
    """Parts, models and options as they were given; not the plain command, which would make another run."""
    part = "torchzoo study paper_breakdown --part 1/2 --time-limit 3 -o p1"
    commands = (part.replace("torchzoo", "/tmp/repo/torchzoo/__main__.py"), "run.py 'resnet*' -d cuda --breakdown")
    paths = [
        keep(tmp_path / f"{number} of 2", [example(model=f"model_{number}")], command=tuple(command.split()))
        for number, command in enumerate(commands)
    ]
    one = study.load("paper_breakdown")
    text = study.document(one, study.read_runs(one, paths)).text
    first, second, joined = text.partition("## Do it again\n\n```sh\n")[2].partition("\n```")[0].splitlines()
    assert (first, second) == (part, "torchzoo run 'resnet*' -d cuda --breakdown")
    assert shlex.split(joined, comments=True) == ["torchzoo", "study", "paper_breakdown", "--from", *map(str, paths)]
    assert all(f"- command: `{command}`" in text for command in commands)


def test_a_run_that_is_not_finished_goes_on_as_the_study(tmp_path: Path) -> None:
    done, left = example(model="alexnet"), example(model="vgg16")
    first = keep(tmp_path / "first", [done])
    second = keep(tmp_path / "second", [example(model="resnet18")], cases=(example(model="resnet18").case, left.case))
    one = study.load("paper_breakdown")
    text = study.document(one, study.read_runs(one, [first, second])).text
    assert f"1 not run yet: go on with `torchzoo study paper_breakdown --resume {second}`" in text


def test_an_interrupted_study_says_how_to_go_on_although_it_is_quiet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    manifest = SimpleNamespace(cases=(), settings=Settings())
    experiment = SimpleNamespace(workers=nullcontext(), run=interrupted, lanes=(), manifest=manifest, done=(), left=())
    monkeypatch.setattr("torchzoo.commands.study.ready", lambda *_: experiment)
    assert cli.main(["study", "paper_breakdown", "alexnet", "-q", "-o", str(tmp_path)]) == 130
    path = tmp_path / "paper_breakdown"
    assert f"measure the rest with: torchzoo study paper_breakdown --resume {path}\n" in capsys.readouterr().err


def test_runs_of_two_machines_are_for_the_study_of_devices_alone(tmp_path: Path) -> None:
    here = environment()
    other = environment(cpu="another CPU")
    assert machine_kind(here) != machine_kind(other)
    paths = [keep(tmp_path / "a", [example()]), keep(tmp_path / "b", [example()], environment=other)]
    assert len(study.read_runs(study.load("paper_devices"), paths)) == 2
    with pytest.raises(StoreError, match="can't stand in one report"):
        study.read_runs(study.load("paper_breakdown"), paths)


# --- the cases of the plan ---


def nanogpt() -> Run:
    """A run of the whole plan of a study."""
    cases = study.own_cases(study.load("nanogpt"))
    return run_of([msgspec.structs.replace(example(Skipped(reason="no")), case=case) for case in cases])


def with_cases(run: Run, *cases: Case) -> Run:
    return msgspec.structs.replace(run, manifest=msgspec.structs.replace(run.manifest, cases=cases))


def test_a_document_says_how_much_of_the_plan_it_has() -> None:
    one, whole = study.load("nanogpt"), nanogpt()
    assert "a part of the study" not in study.document(one, [whole]).text
    text = study.document(one, [msgspec.structs.replace(whole, records=whole.records[:2])]).text
    assert f"a part of the study: 2 of the plan's {len(whole.records)} cases are in the run" in text


def test_a_run_is_of_the_plan_if_it_has_no_other_cases_and_one_device() -> None:
    one, whole = study.load("nanogpt"), nanogpt()
    cases = whole.manifest.cases
    repeated = [msgspec.structs.replace(case, repeat=1, device="cuda:1") for case in cases]
    assert study.is_of_the_plan(one, whole)
    assert study.is_of_the_plan(one, with_cases(whole, *repeated))
    assert study.is_of_the_plan(one, with_cases(whole, *cases[1:]))
    assert not study.is_of_the_plan(one, with_cases(whole, *cases, *repeated))
    for axis, value in (("batch_size", 3), ("precision", Precision.FP16), ("model", "tiny"), ("mode", Mode.EVAL)):
        other = msgspec.structs.replace(cases[0], **{axis: value})
        assert not study.is_of_the_plan(one, with_cases(whole, other, *cases[1:]))


def test_cases_that_the_plan_does_not_have_are_left_out() -> None:
    one, own = study.load("paper_compilers"), of_plan("paper_compilers", compared(), model="resnet18")
    others = [
        msgspec.structs.replace(own, case=msgspec.structs.replace(own.case, **{axis: value}))
        for axis, value in (("batch_size", 3), ("precision", Precision.AMP), ("model", "tiny"), ("backend", EAGER))
    ]
    found = study.of_the_plan(one, run_of([*others, own]))
    assert (found.manifest.cases, found.records) == ((own.case,), (own,))
    with pytest.raises(StoreError, match="no case of the plan of paper_compilers"):
        study.of_the_plan(one, run_of(others))
    elsewhere = msgspec.structs.replace(own, case=msgspec.structs.replace(own.case, device="cuda"))
    with pytest.raises(StoreError, match="several devices"):
        study.of_the_plan(one, run_of([own, elsewhere]))


@pytest.mark.parametrize("is_of_the_plan", [True, False])
def test_a_part_of_the_plan_gives_a_document_and_other_cases_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, is_of_the_plan: bool
) -> None:
    run = nanogpt()
    records = list(run.records[:2])
    if not is_of_the_plan:
        records[0] = msgspec.structs.replace(records[0], case=msgspec.structs.replace(records[0].case, batch_size=3))

    def finish(_: object, store: RunStore, **__: Any) -> Run:
        store.begin(with_cases(run, *(record.case for record in records)).manifest)
        for record in records:
            store.append(record)
        return read_run(store.path)

    monkeypatch.setattr("torchzoo.commands.study.ready", lambda *_: None)
    monkeypatch.setattr("torchzoo.commands.study.finish", finish)
    assert cli.main(["study", "nanogpt", "-q", "-o", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert (tmp_path / "nanogpt.md").exists() == is_of_the_plan
    assert (records[0].case.label() in shown.out) == (not is_of_the_plan)
    assert ("published figures are left out" in shown.err) == (not is_of_the_plan)


def test_unlike_software_on_the_same_hardware_makes_no_second_machine(tmp_path: Path) -> None:
    paths = [
        keep(tmp_path / name, [example()], environment=environment(packages={"timm": version}))
        for name, version in (("a", "1.0"), ("b", "1.1"))
    ]
    with pytest.raises(StoreError, match=r"would count as two machines.*timm is 1\.0 and 1\.1"):
        study.read_runs(study.load("paper_devices"), paths)


def test_a_figure_that_is_missing_has_no_markup_of_its_own() -> None:
    text = study.document(study.load("paper_devices"), [run_of([example(model="resnet18")])]).text
    assert "\\`" not in text
    assert "(--from RUN RUN)" in beside(text, study_table())["all"][1]
