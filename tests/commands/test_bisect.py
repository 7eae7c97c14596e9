"""`torchzoo bisect` with a fake judge: what it shows, how it ends, and how it goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from fake_judge import FakeJudge
from in_this_process import refused, torchzoo
from torchzoo.commands import ab, bisect
from torchzoo.commands import watch as watching
from torchzoo.commands.ab import say_record
from torchzoo.environments.make import EnvironmentNotMade
from torchzoo.errors import UsageError
from torchzoo.history.ab import AbRequest
from torchzoo.history.culprits import Asked
from torchzoo.history.nights import Options
from torchzoo.run.experiment import OnRecord
from user_models import make_folder

VERSIONS = tuple(f"torch==2.{number}" for number in range(11, 19))


Use = Callable[[FakeJudge], FakeJudge]


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command without its folder."""
    make_folder(tmp_path / "zoo", "tiny")
    monkeypatch.setattr(bisect, "candidates", lambda *_, **__: VERSIONS)
    monkeypatch.setattr(bisect, "prepare", lambda _: None)
    case = ["tiny", "--models-dir", str(tmp_path / "zoo"), "-t", "train", "-d", "cpu"]
    return ["bisect", "--good", VERSIONS[0], "--bad", VERSIONS[-1], *case]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes a judge the one of the next bisections."""

    def chosen(judge: FakeJudge) -> FakeJudge:
        def made(asked: Asked, folder: Path, on_record: OnRecord) -> FakeJudge:
            assert on_record is say_record
            assert asked.versions == VERSIONS
            assert folder.name == "records"
            return judge

        monkeypatch.setattr(bisect, "AbJudge", made)
        return judge

    return chosen


def test_a_culprit_is_shown_with_what_reproduces_it(words: list[str], tmp_path: Path, use: Use) -> None:
    use(FakeJudge({15: 1.2}))
    done = torchzoo(*words, "-o", tmp_path / "out")
    assert done.returncode == bisect.FOUND
    first, bad, *_, again, culprit, reproduce = done.stdout.splitlines()
    assert first == "8 versions from torch==2.11 to torch==2.18"
    assert bad.startswith("2.18  bad 1.200x [1.180, 1.220]; first bad: 2.1")
    assert again.startswith("2.18  good 1.000x [0.980, 1.020] (beside 2.15); first bad: none (9")
    assert culprit.startswith("First bad version: torch==2.15: latency 1.200x [1.180, 1.220] (9")
    options = f"--models-dir {tmp_path / 'zoo'} --mode train --device cpu"
    assert reproduce.endswith(f"torchzoo ab --base torch==2.14 --candidate torch==2.15 tiny {options}")
    assert "torchzoo: first bad: 2.15 (9" in done.stderr


@pytest.mark.parametrize(
    ("judge", "lines"),
    [
        (FakeJudge({99: 1.2}), ["Nothing was found: latency of torch==2.18 does not differ from torch==2.11"]),
        (
            FakeJudge({15: 1.2}, broken=(18,)),
            ["Nothing was found: torch==2.18 could not be judged: the model fails"],
        ),
        (
            FakeJudge({15: 1.2}, broken=(14, 15)),
            [
                "The first bad version is one of 3: latency 1.200x",
                "  torch==2.14, torch==2.15, torch==2.16",
                "  All of them but torch==2.16 could not be judged",
                "2.15  skipped: the model fails; first bad:",
            ],
        ),
    ],
    ids=["no change", "the bad version fails", "a range"],
)
def test_nothing_is_found(words: list[str], tmp_path: Path, use: Use, judge: FakeJudge, lines: list[str]) -> None:
    use(judge)
    done = torchzoo(*words, "-o", tmp_path / "out")
    assert done.returncode == bisect.NOT_FOUND
    shown = done.stdout.splitlines()
    assert [line for line in lines if not any(one.startswith(line) for one in shown)] == []


def test_it_goes_on_after_an_interrupt(
    words: list[str], tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "out"
    first = use(FakeJudge({13: 1.2}))
    first.dies_at = 2
    done = torchzoo(*words, "-o", folder)
    assert (done.returncode, f"torchzoo bisect --resume {folder}" in done.stderr) == (130, True)
    monkeypatch.setattr(bisect, "candidates", None)  # the index is not asked again
    second = use(FakeJudge({13: 1.2}))
    done = torchzoo("bisect", "--resume", folder)
    assert (done.returncode, "2 verdicts" in done.stderr) == (bisect.FOUND, True)
    assert [ask.midpoint for _, ask in first.asks] == ["torch==2.18", "torch==2.15"]
    assert "torch==2.15" not in [ask.midpoint for _, ask in second.asks]
    assert "leave out --good, --bad, MODEL" in refused(*words, "--resume", folder)
    assert "leave out --threads" in refused("bisect", "--resume", folder, "--threads", "3")


def test_a_nightly_index_is_a_part_of_the_specs(
    words: list[str], tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def of_index(good: str, bad: str, **_: object) -> tuple[str, ...]:
        asked.append((good, bad))
        return VERSIONS

    monkeypatch.setattr(bisect, "candidates", of_index)
    use(FakeJudge({15: 1.2}))
    index = "https://example.org/nightly"
    assert torchzoo(*words, "--nightly-index", index, "-o", tmp_path / "out").returncode == bisect.FOUND
    assert asked == [(f"{VERSIONS[0]},index={index}", f"{VERSIONS[-1]},index={index}")]


def test_ab_and_watch_take_the_same_index(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, specs = ["--nightly-index", "https://example.org/nightly"], list[str]()

    def begin(request: AbRequest, *_: object) -> None:
        specs.extend((request.base, request.candidate))
        raise UsageError("enough")

    def watch(options: Options, *_: object) -> None:
        specs.append(options.spec)
        raise UsageError("enough")

    monkeypatch.setattr(ab.ab, "begin", begin)
    monkeypatch.setattr(watching, "watch", watch)
    case = words[words.index("tiny") :]
    assert torchzoo("ab", "--base", "torch==2.16.0.dev20261101", *case, *index).returncode == 2
    assert torchzoo("watch", tmp_path / "nights", *case, *index).returncode == 2
    part = "index=https://example.org/nightly"
    assert specs == [f"torch==2.16.0.dev20261101,{part}", f"this,{part}", f"this,{part}"]


def test_where_nothing_was_measured_a_corrected_command_can_begin(
    words: list[str], tmp_path: Path, use: Use, monkeypatch: pytest.MonkeyPatch
) -> None:
    words += ["-o", str(tmp_path / "out")]

    def broken(*_: object) -> NoReturn:
        raise EnvironmentNotMade("no such version")

    judge = use(FakeJudge({15: 1.2}))
    for place, name in ((bisect, "prepare"), (judge, "judge")):
        with monkeypatch.context() as without:
            without.setattr(place, name, broken)
            done = torchzoo(*words)
        assert (done.returncode, "torchzoo: error: no such version" in done.stderr) == (2, True)
    assert torchzoo(*words).returncode == bisect.FOUND
    assert "go on with --resume" in refused(*words)  # what was measured is kept


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["-t", "train,eval"], "one value of each axis"),
        (["--backend", "eager,inductor"], "one value of each axis"),
        (["--models-dir", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_usage(words: list[str], changed: list[str], message: str) -> None:
    assert message in refused(*words, *changed, "-o", "/nowhere")
