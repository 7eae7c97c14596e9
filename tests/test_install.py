"""`install.py` on a made-up checkout, whose models need made-up libraries that a made-up pip installs."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

import torchzoo
from examples import ROOT, SPEC
from torchzoo import install
from torchzoo.run.resources import missing

METADATA = """\
domain: {domain}
task: image_classification
paper: https://arxiv.org/abs/1512.03385
source: here
requirements: [{requirements}]
parameters: 1
batch_size: {{train: 1, eval: 1}}
smoke_batch_size: 1
"""


class FakePip:
    """Stands for the processes: pip calls install into `site`, all others (imports) succeed, unless told otherwise."""

    def __init__(self, site: Path) -> None:
        self.site = site
        self.commands: list[list[str]] = []
        self.versions: dict[str, str] = {}
        self.broken_imports: dict[str, str] = {}  # module: standard error
        self.refused: dict[str, str] = {}  # argument of pip: standard error

    def __call__(self, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self.commands.append(list(command))
        if command[1] == "-P":
            return self._import(command[3].removeprefix("import ").split(", "))
        assert command[:4] == [sys.executable, "-m", "pip", "install"]
        arguments = [argument for argument in command[5:] if argument not in ("-c", "-e")]
        for argument in arguments:
            if argument in self.refused:
                return subprocess.CompletedProcess(command, 1, stderr=self.refused[argument])
        for argument in arguments:
            if "/" not in argument:
                self.add(install.distribution_name(argument))
        return subprocess.CompletedProcess(command, 0, stderr="WARNING: as root\n")

    def _import(self, modules: list[str]) -> subprocess.CompletedProcess[str]:
        for module in modules:
            if module in self.broken_imports:
                return subprocess.CompletedProcess([], 1, stderr=self.broken_imports[module])
        return subprocess.CompletedProcess([], 0, stderr="")

    def add(self, name: str) -> None:
        version = self.versions.get(name, "1.0")
        folder = self.site / f"{name}-{version}.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (folder / "RECORD").write_text(f"{name}.py,,\n{name}-{version}.dist-info/METADATA,,\n")
        (self.site / f"{name}.py").write_text("")
        importlib.invalidate_caches()

    @property
    def pip_calls(self) -> list[list[str]]:
        """What follows `python -m pip install --disable-pip-version-check` in each call of pip."""
        return [command[5:] for command in self.commands if command[1] == "-m"]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "checkout"
    (root / "models").mkdir(parents=True)
    (root / "pyproject.toml").write_text('[project]\nname = "torchzoo"\ndependencies = []\n')
    monkeypatch.setattr(torchzoo, "__file__", str(root / "torchzoo" / "__init__.py"))
    monkeypatch.setattr(install, "_require_usable_pip", lambda: None)
    monkeypatch.delenv("TORCHZOO_PATH", raising=False)
    return root


@pytest.fixture
def pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    pip = FakePip(site)
    pip.add("torchzoo")
    return pip


def add_model(models: Path, name: str, requirements: str = "", domain: str = "nlp") -> None:
    (models / name).mkdir(parents=True)
    (models / name / "metadata.yaml").write_text(METADATA.format(requirements=requirements, domain=domain))


def rows(output: str) -> dict[str, str]:
    """The table's lines as `name: rest`, blanks made one."""
    return {line.split()[0]: " ".join(line.split()[1:]) for line in output.splitlines()[:-1]}


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


def test_check_installs_nothing_and_gives_the_same_table_and_status(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    assert install.main(["--check"], run=pip) == 1
    assert rows(capsys.readouterr().out) == {"torchzoo": "ready", "one": "not ready fakevision not installed"}
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == 0
    assert rows(capsys.readouterr().out) == {"torchzoo": "ready", "one": "ready"}
    assert pip.pip_calls == []


def test_a_library_that_is_installed_but_does_not_import_is_not_ready_unless_fast(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    add_model(checkout / "models", "two", "fakeother")
    pip.broken_imports["fakevision"] = (
        "Traceback (most recent call last):\n  File x\nRuntimeError: operator fakevision::nms does not exist\n\n"
    )
    assert install.main([], run=pip) == 1
    assert rows(capsys.readouterr().out) == {
        "torchzoo": "ready",
        "one": "not ready import fakevision: RuntimeError: operator fakevision::nms does not exist",
        "two": "ready",
    }
    before = len(pip.commands)
    assert install.main(["--check", "--fast"], run=pip) == 0
    assert len(pip.commands) == before


def test_no_model_is_ready_where_torchzoo_itself_is_not(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    add_model(checkout / "models", "two")
    (checkout / "pyproject.toml").write_text('[project]\ndependencies = ["fakespec"]\n')
    assert install.main(["--check"], run=pip) == 1
    captured = capsys.readouterr().out
    assert rows(captured) == {
        "torchzoo": "not ready fakespec not installed",
        "one": "not ready fakevision not installed",
        "two": "not ready torchzoo itself is not ready",
    }
    assert captured.splitlines()[-1] == "0 of 2 models ready"


def test_a_long_problem_is_one_line_where_the_table_goes_to_a_file(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "a_model_whose_name_is_long", "fakevision")
    pip.add("fakevision")
    reason = "ImportError: " + "why it is so " * 30
    pip.broken_imports["fakevision"] = reason
    assert install.main(["--check"], run=pip) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert reason.strip() in lines[1]


def test_an_interrupt_is_status_130(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise KeyboardInterrupt

    add_model(checkout / "models", "one", "fakevision")
    assert install.main(["one"], run=interrupted) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err


def test_each_set_of_libraries_is_imported_once(checkout: Path, pip: FakePip) -> None:
    for name in "abc":
        add_model(checkout / "models", name, "fakevision")
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == 0
    assert [command[3] for command in pip.commands] == ["import torchzoo", "import fakevision"]


@pytest.mark.parametrize(
    ("requirement", "constraint", "problem"),
    [
        ("fakevision>=2", "", "fakevision 1.0 is installed, not >=2"),
        ("fakevision", "fakevision==1.5", "fakevision 1.0 is installed, not ==1.5 as in constraints.txt"),
        ("fakevision", "Fake-Vision==1.5", None),  # another distribution
        ("fakevision; python_version < '3'", "fakevision==1.5", None),  # not needed here
    ],
)
def test_the_version_must_be_one_that_is_wanted(
    checkout: Path,
    pip: FakePip,
    capsys: pytest.CaptureFixture[str],
    requirement: str,
    constraint: str,
    problem: str | None,
) -> None:
    add_model(checkout / "models", "one", f'"{requirement}"')
    (checkout / "constraints.txt").write_text(constraint + "\n")
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == (0 if problem is None else 1)
    assert (problem or "one ready") in " ".join(capsys.readouterr().out.split())


def test_a_build_with_a_local_version_satisfies_its_constraint(checkout: Path, pip: FakePip) -> None:
    add_model(checkout / "models", "one", "fakevision")
    (checkout / "constraints.txt").write_text("fakevision==1.5\n")
    pip.versions["fakevision"] = "1.5+cu130"
    pip.add("fakevision")
    assert install.main(["--check"], run=pip) == 0


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
    add_model(bundled, "one", "fakevision")
    add_model(bundled, "plain")
    assert install.main(["plain"], run=pip) == 0
    assert pip.pip_calls == []
    assert install.main(["one"], run=pip) == 0
    assert pip.pip_calls == [["fakevision"]]


def test_from_a_wheel_torchzoo_needs_what_the_wheel_says_but_no_extras(
    checkout: Path, pip: FakePip, capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "torchzoo" / "_bundled" / "models", "one")
    with (pip.site / "torchzoo-1.0.dist-info" / "METADATA").open("a") as file:
        file.write("Requires-Dist: fakespec\nRequires-Dist: fakedev; extra == 'dev'\n")
    importlib.invalidate_caches()
    assert install.main(["one", "--check"], run=pip) == 1
    assert rows(capsys.readouterr().out)["torchzoo"] == "not ready fakespec not installed"
    pip.add("fakespec")
    assert install.main(["one", "--check"], run=pip) == 0


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Modules that this Python seems not to have."""
    absent: set[str] = set()
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else find_spec(name))
    return absent


def test_a_bare_python_first_gets_what_reads_the_metadata_and_prints_the_table(
    checkout: Path, pip: FakePip, bare: set[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    (checkout / "constraints.txt").write_text("fakevision==1.0\n")
    bare |= {"msgspec", "packaging", "yaml", "rich"}
    install.main(["one", "--fast"], run=pip)
    constraints = ["-c", str(checkout / "constraints.txt")]
    assert pip.pip_calls == [
        [*constraints, "msgspec", "packaging", "pyyaml", "rich"],
        [*constraints, "-e", str(checkout), "fakevision"],
    ]


def test_only_what_is_missing_is_installed_first(checkout: Path, pip: FakePip, bare: set[str]) -> None:
    add_model(checkout / "models", "one")
    bare.add("yaml")
    install.main(["one", "--fast", "--no-constraints"], run=pip)
    assert pip.pip_calls == [["pyyaml"], ["-e", str(checkout)]]


def test_check_of_a_bare_python_says_that_torchzoo_is_not_ready_and_what_to_run(
    checkout: Path, pip: FakePip, bare: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    bare |= {"msgspec", "rich"}
    assert install.main(["--check"], run=pip) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert "torchzoo itself is not ready: msgspec, rich not installed" in captured.err
    assert "`python install.py`" in captured.err
    assert pip.commands == []


def test_when_nothing_can_read_the_metadata_pip_s_error_is_one_line(
    checkout: Path, pip: FakePip, bare: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    add_model(checkout / "models", "one", "fakevision")
    bare.add("yaml")
    pip.refused["pyyaml"] = "ERROR: No matching distribution found for pyyaml\n[notice] A new release of pip\n"
    assert install.main(["one"], prog="torchzoo install", run=pip) == 1
    assert pip.pip_calls == [["pyyaml"]]
    assert capsys.readouterr().err.splitlines()[-1] == (
        "torchzoo install: error: torchzoo itself is not ready: pyyaml not installed: "
        "No matching distribution found for pyyaml"
    )


def test_nothing_but_the_standard_library_is_needed_to_begin() -> None:
    script = [sys.executable, "-S", str(ROOT / "install.py")]  # -S: without site-packages
    for arguments in (["resnet18", "--check"], ["--check", "--fast"]):
        done = subprocess.run([*script, *arguments], check=False, capture_output=True, text=True, cwd="/")
        assert done.returncode == 1
        assert "not ready: msgspec, packaging, pyyaml, rich not installed" in done.stderr
        assert done.stderr.count("\n") == 1
    done = subprocess.run([*script, "--help"], check=False, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0
    assert "--no-constraints" in done.stdout


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


def test_a_python_that_belongs_to_the_system_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        raise AssertionError(command)

    (tmp_path / "EXTERNALLY-MANAGED").touch()
    monkeypatch.setattr(sysconfig, "get_path", {"stdlib": str(tmp_path)}.get)
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.delenv("PIP_BREAK_SYSTEM_PACKAGES", raising=False)
    assert install.main(["resnet18"], run=run) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "python3 -m venv" in error


def test_a_python_without_pip_is_told_where_to_find_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "is_installed", lambda requirement: requirement != "pip")
    assert install.main(["resnet18"]) == 1
    assert "has no pip; use a virtual environment" in capsys.readouterr().err


def test_check_of_a_real_model_by_the_real_script() -> None:
    command = [sys.executable, str(ROOT / "install.py"), "resnet18", "--check", "--no-constraints"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
    found = rows(done.stdout)
    assert list(found) == ["torchzoo", "resnet18"], done.stderr
    assert done.returncode == (0 if set(found.values()) == {"ready"} else 1)


def test_a_run_skips_a_model_whose_library_is_too_old_and_says_what_to_do(pip: FakePip) -> None:
    pip.versions["fakevision"] = "0.9"
    pip.add("fakevision")
    models = [
        msgspec.structs.replace(SPEC, name="old", requirements=("fakevision>=1", "fakeother")),
        msgspec.structs.replace(SPEC, name="fine", requirements=("fakevision>=0.9",)),
    ]
    assert missing(models, []) == {
        "old": "fakevision 0.9 is installed, not >=1, fakeother not installed: python install.py old"
    }
