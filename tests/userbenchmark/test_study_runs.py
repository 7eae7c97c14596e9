"""The runs of studies: several are joined, moved or cut short, and which of their cases a study counts."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from benchmark_runs import beside, run_of
from study_records import study_table

from examples import INDUCTOR, compared, environment, measured
from examples import record as example
from kept_runs import keep
from torchzoo import cli
from torchzoo.case import EAGER, Mode, Precision
from torchzoo.machine.differences import machine_kind
from torchzoo.record import Block, Failed, FailureKind, Measured, Record, Skipped
from torchzoo.run.resources import part_of
from torchzoo.settings import Stage
from torchzoo.store import StoreError, read_run
from torchzoo.studies import study
from torchzoo.studies.userbenchmark import Choice
from torchzoo.zoo.catalog import find_models
from torchzoo.zoo.suites import read_suite

PAPER = len(read_suite("torchbench").models)


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


def test_the_document_of_joined_runs_names_them_all(tmp_path: Path) -> None:
    first = keep(tmp_path / "first", [example(model="alexnet")], command=("torchzoo", "one"))
    second = keep(tmp_path / "second", [example(model="vgg16")], command=("torchzoo", "two"))
    one = study.load("paper_breakdown")
    text = study.document(one, study.read_runs(one, [first, second])).text
    assert f"torchzoo study paper_breakdown --from {first} {second}" in text
    assert "- command: `torchzoo one`\n- command: `torchzoo two`" in text


def test_the_document_has_the_commands_that_made_its_runs(tmp_path: Path) -> None:
    """Parts, models and options as they were given; not the plain command, which would make another run."""
    commands = (
        (
            "/tmp/repo/torchzoo/__main__.py",
            "study",
            "paper_breakdown",
            "--part",
            "1/2",
            "--time-limit",
            "3",
            "-o",
            "p1",
        ),
        ("/usr/bin/torchzoo", "study", "paper_breakdown", "--part", "2/2", "--time-limit", "3", "-o", "p2"),
        ("run.py", "'resnet*'", "-d", "cuda", "--breakdown"),
    )
    paths = [
        keep(tmp_path / f"{number} of 3", [example(model=f"model_{number}")], command=command)
        for number, command in enumerate(commands)
    ]
    one = study.load("paper_breakdown")
    text = study.document(one, study.read_runs(one, paths)).text
    again = text.partition("## Do it again\n\n```sh\n")[2].partition("\n```")[0].splitlines()
    assert again[:3] == [
        "torchzoo study paper_breakdown --part 1/2 --time-limit 3 -o p1",
        "torchzoo study paper_breakdown --part 2/2 --time-limit 3 -o p2",
        "torchzoo run 'resnet*' -d cuda --breakdown",
    ]
    joining = shlex.split(again[3], comments=True)
    assert joining == ["torchzoo", "study", "paper_breakdown", "--from", *map(str, paths)]
    assert len(again) == 4


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

    monkeypatch.setattr("torchzoo.commands.study.new_run", lambda *_: None)
    monkeypatch.setattr("torchzoo.commands.run.follow", interrupted)
    assert cli.main(["study", "paper_breakdown", "alexnet", "-q", "-o", str(tmp_path)]) == 130
    path = tmp_path / "paper_breakdown"
    assert f"the rest of it: torchzoo study paper_breakdown --resume {path}\n" in capsys.readouterr().err


def test_runs_of_two_machines_are_for_the_study_of_devices_alone(tmp_path: Path) -> None:
    here = environment()
    other = environment(cpu="another CPU")
    assert machine_kind(here) != machine_kind(other)
    paths = [keep(tmp_path / "a", [example()]), keep(tmp_path / "b", [example()], environment=other)]
    assert len(study.read_runs(study.load("paper_devices"), paths)) == 2
    with pytest.raises(StoreError, match="can't stand in one report"):
        study.read_runs(study.load("paper_breakdown"), paths)


def test_a_trial_is_called_one(tmp_path: Path) -> None:
    text = study.document(study.load("paper_devices"), [run_of([example(model="resnet18", device="cuda")])]).text
    assert "a part of the study, or a trial: 0 of the plan's 336 cases are in the run, and 1 cases" in text
    plan = study.planned(study.load("nanogpt").plan(Choice(folder=tmp_path)))
    whole = run_of([msgspec.structs.replace(example(Skipped(reason="no")), case=one.case) for one in plan])
    assert "a trial" not in study.document(study.load("nanogpt"), [whole]).text


def test_a_run_that_was_cut_short_is_a_part(tmp_path: Path) -> None:
    plan = study.planned(study.load("nanogpt").plan(Choice(folder=tmp_path)))
    whole = run_of([msgspec.structs.replace(example(Skipped(reason="no")), case=one.case) for one in plan])
    text = study.document(study.load("nanogpt"), [msgspec.structs.replace(whole, records=whole.records[:2])]).text
    assert f"a trial: 2 of the plan's {len(plan)} cases are in the run, and 0 cases" in text


SPEEDUP = "Speedup of inductor over eager"


def at(*precisions: Precision, model: str = "resnet18", **axes: Any) -> list[Record]:
    """A model in training with inductor at each of these precisions."""
    axes = {"mode": Mode.TRAIN, "device": "cuda", "backend": INDUCTOR, "batch_size": 16} | axes
    return [example(compared(), model=model, precision=one, **axes) for one in precisions]


def test_other_precisions_and_batches_than_the_plans_are_left_out() -> None:
    more = example(compared(), model="resnet18", mode=Mode.TRAIN, device="cuda", backend=INDUCTOR, batch_size=3)
    run = run_of([*at(Precision.DEFAULT, Precision.AMP), more, *at(Precision.DEFAULT, model="vgg16", batch_size=3)])
    own = study.own_cases(study.load("paper_compilers"))
    batch = next(case.batch_size for case in own if (case.model, case.mode) == ("resnet18", Mode.TRAIN))
    found, lines = study.beside_the_plan(own, run)
    assert [(record.case.model, record.case.batch_size) for record in found.records] == [
        ("resnet18", batch),
        ("vgg16", 3),
    ]
    assert "The run has 1 more cases at other precisions, which are left out here." in lines
    assert "The run has 1 more cases at other batches, which are left out here." in lines


@pytest.mark.parametrize(
    ("records", "names"),
    [
        (at(Precision.FP32, Precision.AMP), ["train, fp32", "train, amp"]),
        (
            [*at(Precision.DEFAULT, batch_size=1), *at(Precision.DEFAULT, batch_size=3)],
            ["train, batch 1", "train, batch 3"],
        ),
        ([*at(Precision.DEFAULT), *at(Precision.DEFAULT, device="cpu")], ["train, cuda", "train, cpu"]),
        ([*at(Precision.AMP), *at(Precision.AMP, model="vgg16", batch_size=3)], ["train"]),
    ],
)
def test_no_mean_of_a_trial_mixes_kinds_of_cases(records: list[Record], names: list[str]) -> None:
    text = study.document(study.load("paper_compilers"), [run_of(records)]).text
    rows = beside(text, SPEEDUP)
    counts = {name: cells[1].partition("; ")[2] for name, cells in rows.items() if cells[1].startswith("2.00 times")}
    each = len(records) // len(names)
    assert counts == dict.fromkeys(names, f"{each} of {each} counted")
    assert all(rows[name][0] == "1.3 times" for name in names)
    assert ("no mean mixes them" in text) == (len(names) > 1)


def test_models_that_the_plan_does_not_have_are_in_no_figure() -> None:
    quick, slow = (measured(blocks=(Block("eager", (time_s,)),) * 9) for time_s in (0.1, 0.4))
    one, other = (
        run_of([example(slow, model="resnet18"), example(outcome, model="not_of_the_paper")], Path(f"/{name}"))
        for name, outcome in (("one", slow), ("other", quick))
    )
    text = study.document(study.load("paper_devices"), [one, other]).text
    assert "The run has 1 more models, which are left out here." in text
    assert beside(text, study_table())["a CPU's time over a CPU's: eager, eval, all"][1].startswith("1.00 times")
    trial = study.document(study.load("paper_devices"), [run_of([example(model="tiny")])]).text
    assert "left out" not in trial
    assert "1 cases: 1 measured" in trial


def test_a_study_of_eager_takes_eagers_half_of_cases_with_a_backend() -> None:
    alone = example(measured(blocks=(Block("eager", (0.4,)),) * 9), model="dcgan", device="cuda")
    crashed = Failed(kind=FailureKind.CRASHED, stage=Stage.COMPILE, message="gone")
    run = run_of(
        [
            example(compared(), model="resnet18", device="cuda", backend=INDUCTOR),
            example(compared(), model="dcgan", device="cuda", backend=INDUCTOR),
            alone,
            example(crashed, model="vgg16", device="cuda", backend=INDUCTOR),
            example(Skipped(reason="it is quantized"), model="alexnet", device="cuda", backend=INDUCTOR),
        ]
    )
    found, lines = study.beside_the_plan(study.own_cases(study.load("paper_devices")), run)
    assert {record.case.backend for record in found.records} == {EAGER}
    outcomes = {record.case.model: record.outcome for record in found.records}
    samples_s = {name: one.blocks[0].samples_s for name, one in outcomes.items() if isinstance(one, Measured)}
    assert samples_s == {"resnet18": (0.2,), "dcgan": (0.4,)}
    assert all(list(one.variants) == ["eager"] for one in outcomes.values() if isinstance(one, Measured))
    assert outcomes["vgg16"] == Skipped(reason="with the backend inductor, FAILED (crashed in compile): gone")
    assert outcomes["alexnet"] == Skipped(reason="with the backend inductor, skipped: it is quantized")
    assert "Eager of 1 of these cases was measured beside a backend" in lines[0]
    assert {case.model for case in found.manifest.cases} == {"resnet18", "dcgan", "vgg16", "alexnet"}
    kept, lines = study.beside_the_plan(study.own_cases(study.load("paper_compilers")), run)
    assert len(kept.records) == len(run.records)
    assert not any("Eager of" in line for line in lines)


def test_halves_of_models_that_the_plan_does_not_have_are_not_counted() -> None:
    models = ("resnet18", "not_of_the_paper")
    run = run_of([example(compared(), model=name, device="cuda", backend=INDUCTOR) for name in models])
    found, lines = study.beside_the_plan(study.own_cases(study.load("paper_devices")), run)
    assert [record.case.model for record in found.records] == ["resnet18"]
    assert any(line.startswith("Eager of 1 of these cases") for line in lines)


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


@pytest.mark.parametrize("name", ["nanogpt", "resnets", "paper_compilers"])
def test_the_document_says_what_the_interval_of_a_mean_is_over(name: str) -> None:
    assert (
        "what is\naveraged: models, or the steps of one model"
        in study.document(study.load(name), [run_of([example()])]).text
    )


def test_the_parts_of_the_claim_join_to_its_plan(tmp_path: Path) -> None:
    one = study.load("pt2_claim")
    request = one.plan(Choice(folder=tmp_path))
    whole = study.own_cases(one)
    parts = [[case.case for case in study.planned(part_of(request, number, 3))] for number in (1, 2, 3)]
    assert len({case for part in parts for case in part}) == sum(map(len, parts)) == len(whole)
    kept = [
        keep(
            tmp_path / f"part{number}",
            [msgspec.structs.replace(example(Skipped(reason="no")), case=case) for case in part],
        )
        for number, part in enumerate(parts)
    ]
    text = study.document(one, study.read_runs(one, kept)).text
    assert "a trial" not in text
    two = study.document(one, study.read_runs(one, kept[:2])).text
    assert f"a trial: {len(parts[0]) + len(parts[1])} of the plan's {len(whole)} cases are in the run" in two
