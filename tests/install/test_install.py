"""`install.py` on a made-up checkout: what pip is asked for, and what it costs when pip refuses."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from fake_pip import FakePip, add_model, rows

from torchzoo import install


def test_only_what_the_named_model_needs_is_installed_and_in_one_call(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision, fakeother>=0.5")
    add_model(checkout / "models", "two", "fakelarge")
    assert install.main(["one"], run=pip) == 0
    assert pip.pip_calls == [["-e", str(checkout), "fakevision", "fakeother>=0.5"]]
    assert rows(capsys.readouterr().out) == {"torchzoo": "ready", "one": "ready"}


def test_all_models_by_default_each_requirement_once(checkout: Path, pip: FakePip) -> None:
    add_model(checkout / "models", "b", "fakevision")
    add_model(checkout / "models", "a", "fakevision, fakeother")
    assert install.main([], run=pip) == 0
    assert pip.pip_calls == [["-e", str(checkout), "fakevision", "fakeother"]]


def test_constraints_are_passed_where_there_are_any_and_wanted(checkout: Path, pip: FakePip) -> None:
    add_model(checkout / "models", "one", "fakevision")
    (checkout / "constraints.txt").write_text("# measured with\nfakevision==1.0\n")
    assert install.main(["one"], run=pip) == 0
    assert install.main(["one", "--check", "--no-constraints"], run=pip) == 0
    assert pip.pip_calls == [["-c", str(checkout / "constraints.txt"), "-e", str(checkout), "fakevision"]]


def test_no_constraints_leaves_them_out(checkout: Path, pip: FakePip) -> None:
    add_model(checkout / "models", "one", "fakevision")
    (checkout / "constraints.txt").write_text("fakevision==2.0\n")
    assert install.main(["one", "--no-constraints"], run=pip) == 0
    assert pip.pip_calls == [["-e", str(checkout), "fakevision"]]


def test_a_library_that_pip_refuses_costs_only_the_models_that_need_it(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "bad", "fakebroken")
    add_model(checkout / "models", "good", "fakeother")
    add_model(checkout / "models", "plain")
    pip.refused["fakebroken"] = (
        "ERROR: Could not find a version that satisfies the requirement fakebroken (from versions: none)\n"
        "ERROR: No matching distribution found for fakebroken\n[notice] A new release of pip is available\n"
    )
    assert install.main([], run=pip) == 1
    assert pip.pip_calls == [
        ["-e", str(checkout), "fakebroken", "fakeother"],
        ["-e", str(checkout)],
        ["fakebroken"],
        ["fakeother"],
    ]
    captured = capsys.readouterr()
    assert rows(captured.out) == {
        "torchzoo": "ready",
        "bad": "not ready fakebroken not installed: No matching distribution found for fakebroken",
        "good": "ready",
        "plain": "ready",
    }
    assert captured.out.splitlines()[-1] == "2 of 3 models ready"
    assert "from versions: none" in captured.err


def test_torchvision_is_asked_for_in_the_same_call_as_torchzoo_even_when_things_go_apart(
    checkout: Path, pip: FakePip
) -> None:
    add_model(checkout / "models", "bad", "fakebroken")
    add_model(checkout / "models", "vision", "torchvision>=0.1")
    pip.refused["fakebroken"] = "ERROR: no\n"
    install.main(["--fast"], run=pip)
    assert pip.pip_calls[1:] == [["-e", str(checkout), "torchvision>=0.1"], ["fakebroken"]]


def test_without_a_torchvision_torchzoo_itself_is_still_installed(checkout: Path, pip: FakePip) -> None:
    add_model(checkout / "models", "vision", "torchvision>=99")
    pip.refused["torchvision>=99"] = "ERROR: no\n"
    assert install.main([], run=pip) == 1
    assert pip.pip_calls == [["-e", str(checkout), "torchvision>=99"], ["-e", str(checkout)], ["torchvision>=99"]]


def test_an_interrupt_is_status_130(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise KeyboardInterrupt

    add_model(checkout / "models", "one", "fakevision")
    assert install.main(["one"], run=interrupted) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


@pytest.mark.parametrize("arguments", [["resnte"], ["resnte", "--check"], ["resnet", "resnte"]])
def test_an_unknown_model_is_refused_before_anything_is_installed(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    add_model(checkout / "models", "ResNet", "fakevision")
    add_model(checkout / "models", "resnet", "fakevision")
    assert install.main(arguments, prog="torchzoo install", run=pip) == 2
    assert pip.commands == []
    error = capsys.readouterr().err
    assert error == "torchzoo install: error: no model, domain or glob 'resnte': did you mean resnet?\n"


def test_a_broken_folder_has_its_line_and_takes_no_other_along(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "good", "fakeother")
    add_model(checkout / "models", "option", "--index-url=http://elsewhere")
    (checkout / "models" / "empty").mkdir()
    (checkout / "models" / "odd").mkdir()
    (checkout / "models" / "odd" / "metadata.yaml").write_text("domain: [")
    assert install.main([], run=pip) == 1
    assert pip.pip_calls == [["-e", str(checkout), "fakeother"]]
    found = rows(capsys.readouterr().out)
    assert found["good"] == "ready"
    assert found["empty"].startswith("not ready ")
    assert found["empty"].endswith("empty/metadata.yaml: No such file or directory")
    assert "odd/metadata.yaml: not valid YAML" in found["odd"]
    assert found["option"].startswith("not ready not a pip requirement: '--index-url=http://elsewhere'")


def test_models_dir_and_torchzoo_path_add_folders(
    checkout: Path, pip: FakePip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    add_model(tmp_path / "mine", "one", "fakemine")
    add_model(tmp_path / "ours", "two", "fakeours")
    monkeypatch.setenv("TORCHZOO_PATH", str(tmp_path / "ours"))
    assert install.main(["--models-dir", str(tmp_path / "mine"), "one", "two"], run=pip) == 0
    assert pip.pip_calls == [["-e", str(checkout), "fakemine", "fakeours"]]


@pytest.mark.usefixtures("checkout")
def test_a_models_dir_that_is_none_is_a_usage_error(pip: FakePip, capsys: pytest.CaptureFixture[str]) -> None:
    assert install.main(["--models-dir", "nowhere"], run=pip) == 2
    assert "no such models folder: nowhere" in capsys.readouterr().err


def test_from_a_wheel_only_the_models_libraries_are_installed(checkout: Path, pip: FakePip) -> None:
    bundled = checkout / "torchzoo" / "_bundled" / "models"
    (bundled.parent / "collections").mkdir(parents=True)
    add_model(bundled, "one", "fakevision")
    add_model(bundled, "plain")
    assert install.main(["plain"], run=pip) == 0
    assert pip.pip_calls == []
    assert install.main(["one"], run=pip) == 0
    assert pip.pip_calls == [["fakevision"]]


def test_models_can_be_chosen_by_name_glob_domain_and_suite(
    checkout: Path, pip: FakePip, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, domain in {"one": "nlp", "other": "nlp", "three": "speech", "x": "speech"}.items():
        add_model(checkout / "models", name, domain=domain)
    (tmp_path / "few.yaml").write_text("description: two\nmodels: [x, one]\n")
    for arguments, chosen in {
        ("three", "o*"): ["three", "one", "other"],
        ("speech", "x"): ["three", "x"],
        ("all",): ["one", "other", "three", "x"],
        ("--suite", str(tmp_path / "few.yaml")): ["x", "one"],
        ("--suite", str(tmp_path / "few.yaml"), "nlp"): ["x", "one", "other"],
    }.items():
        assert install.main([*arguments, "--check", "--fast"], run=pip) == 0
        assert list(rows(capsys.readouterr().out)) == ["torchzoo", *chosen]
    assert install.main(["--suite", "smokk", "--check"], run=pip) == 2
    assert "did you mean smoke?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("stderr", "line"),
    [
        ("ERROR: No matching distribution found for x\n", "No matching distribution found for x"),
        (
            "ERROR: Cannot install a and b because these package versions have conflicting dependencies.\n"
            "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/\n",
            "Cannot install a and b because these package versions have conflicting dependencies.",
        ),
        (
            "  \x1b[1;31merror\x1b[0m: \x1b[1msubprocess-exited-with-error\x1b[0m\n  \n"
            "  \x1b[31m\N{MULTIPLICATION SIGN}\x1b[0m Getting requirements to build wheel did not run successfully.\n"
            "  exit code: 1\n  note: This error originates from a subprocess.\n",
            "Getting requirements to build wheel did not run successfully.",
        ),
        ("WARNING: retrying\nKilled\n", "Killed"),
        ("", "pip ended with status 9"),
    ],
)
def test_pip_error_is_the_line_that_says_what_went_wrong(stderr: str, line: str) -> None:
    assert install.pip_error(stderr, 9) == line
