"""`torchzoo bisect` with a fake judge: what it shows, how it ends, and how it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest

from torchzoo.cli import build_parser, main
from torchzoo.commands import ab, bisect
from torchzoo.commands import watch as watching
from torchzoo.commands.ab import say_record
from torchzoo.environments.make import EnvironmentNotMade
from torchzoo.errors import UsageError
from torchzoo.history.ab import AbRequest
from torchzoo.history.bisect_log import Asked
from torchzoo.history.bisection import Evidence, Judgement, Standing
from torchzoo.history.turns import OnRecord
from torchzoo.history.watch import Options
from torchzoo.stats import Estimate
from user_models import make_folder

VERSIONS = tuple(f"torch==2.{number}" for number in range(11, 19))


class FakeJudge:
    """Versions from `culprit` on are slower by a fifth."""

    def __init__(self, culprit: int, *, broken: tuple[int, ...] = (), dies_at: int = 1000) -> None:
        self.culprit = culprit
        self.broken = broken
        self.dies_at = dies_at
        self.asks: list[str] = []

    def judge(self, good: str, asks: Sequence[Judgement]) -> list[Evidence]:
        return [self.one(good, ask) for ask in asks]

    def one(self, good: str, ask: Judgement) -> Evidence:
        if len(self.asks) == self.dies_at:
            raise KeyboardInterrupt
        self.asks.append(ask.midpoint)
        first, number = (int(spec.rpartition(".")[2]) for spec in (good, ask.midpoint))
        if number in self.broken:
            return Evidence(verdict=Standing.SKIPPED, reason="the model fails in build")
        is_bad = first < self.culprit <= number
        value = 1.2 if is_bad else 1.0
        ratio = Estimate(value=value, low=value - 0.01, high=value + 0.01, confidence=0.95, count=5)
        return Evidence(verdict=Standing.BAD if is_bad else Standing.GOOD, ratio=ratio)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A command without its folder."""
    make_folder(tmp_path / "zoo", "tiny")
    monkeypatch.setattr(bisect, "candidates", lambda *_, **__: VERSIONS)
    monkeypatch.setattr(bisect, "prepare", lambda _: None)
    case = ["tiny", "--models-dir", str(tmp_path / "zoo"), "-t", "train", "-d", "cpu"]
    return ["bisect", "--good", VERSIONS[0], "--bad", VERSIONS[-1], *case]


def use(monkeypatch: pytest.MonkeyPatch, judge: FakeJudge) -> FakeJudge:
    def make_judge(asked: Asked, folder: Path, on_record: OnRecord) -> FakeJudge:
        assert on_record is say_record
        assert asked.versions == VERSIONS
        assert folder.name == "records"
        return judge

    monkeypatch.setattr(bisect, "make_judge", make_judge)
    return judge


def test_a_culprit_is_shown_with_what_reproduces_it(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeJudge(15))
    assert main([*words, "-o", str(tmp_path / "out")]) == bisect.FOUND
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert lines[0] == "8 versions from torch==2.11 to torch==2.18"
    assert lines[1].startswith("2.18  bad 1.200x [1.190, 1.210]; first bad: 2.1")
    assert lines[-3].startswith("2.18  good 1.000x [0.990, 1.010] (beside 2.15); first bad: none (9")
    assert "torchzoo: first bad: 2.15 (9" in shown.err
    assert "now whether it explains all of the change" in shown.err
    assert lines[-2].startswith("First bad version: torch==2.15: latency 1.200x [1.190, 1.210] (9")
    assert lines[-1] == (
        "  reproduce: torchzoo ab --base torch==2.14 --candidate torch==2.15 tiny "
        f"--models-dir {tmp_path / 'zoo'} --mode train --device cpu"
    )


def test_nothing_found(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeJudge(99))
    assert main([*words, "-o", str(tmp_path / "absent")]) == bisect.NOT_FOUND
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Nothing was found: latency of torch==2.18 does not differ from torch==2.11"
    use(monkeypatch, FakeJudge(15, broken=(18,)))
    assert main([*words, "-o", str(tmp_path / "broken")]) == bisect.NOT_FOUND
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "Nothing was found: torch==2.18 could not be judged: the model fails in build"


def test_a_range(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use(monkeypatch, FakeJudge(15, broken=(14, 15)))
    assert main([*words, "-o", str(tmp_path / "out")]) == bisect.NOT_FOUND
    shown = capsys.readouterr().out
    assert "The first bad version is one of 3: latency 1.200x" in shown
    assert "  torch==2.14, torch==2.15, torch==2.16\n  All of them but torch==2.16 could not be judged" in shown
    assert "2.15  skipped: the model fails in build; first bad:" in shown


def test_it_goes_on_after_an_interrupt(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "out"
    first = use(monkeypatch, FakeJudge(13, dies_at=2))
    assert main([*words, "-o", str(folder)]) == 130
    assert f"go on with: torchzoo bisect --resume {folder}" in capsys.readouterr().err
    monkeypatch.setattr(bisect, "candidates", None)  # the index is not asked again
    second = use(monkeypatch, FakeJudge(13))
    assert main(["bisect", "--resume", str(folder)]) == bisect.FOUND
    assert "torchzoo: 2 verdicts are kept from before" in capsys.readouterr().err
    assert first.asks == ["torch==2.18", "torch==2.15"]
    assert "torch==2.15" not in second.asks
    third = use(monkeypatch, FakeJudge(13))
    assert main([*words, "--resume", str(folder)]) == bisect.FOUND  # the whole command again
    assert third.asks == []
    assert main([*words, "--metric", "host_memory", "--resume", str(folder)]) == 2
    assert "began with another kind: leave out all but --resume" in capsys.readouterr().err
    assert main(["bisect", "--resume", str(folder), "--threads", "3"]) == 2
    assert "leave out --threads" in capsys.readouterr().err


def test_a_nightly_index_is_a_part_of_the_specs(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def of_index(good: str, bad: str, **_: object) -> tuple[str, ...]:
        asked.append((good, bad))
        return VERSIONS

    monkeypatch.setattr(bisect, "candidates", of_index)
    use(monkeypatch, FakeJudge(15))
    index = "https://example.org/nightly"
    assert main([*words, "--nightly-index", index, "-o", str(tmp_path / "out")]) == bisect.FOUND
    assert asked == [(f"{VERSIONS[0]},index={index}", f"{VERSIONS[-1]},index={index}")]
    assert main([*words, "--nightly-index", index, "--resume", str(tmp_path / "out")]) == bisect.FOUND
    assert main([*words, "--resume", str(tmp_path / "out")]) == 2  # without the index it is another bisection


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
    assert main(["ab", "--base", "torch==2.16.0.dev20261101", *case, *index]) == 2
    assert main(["watch", str(tmp_path / "nights"), *case, *index]) == 2
    part = "index=https://example.org/nightly"
    assert specs == [f"torch==2.16.0.dev20261101,{part}", f"this,{part}", f"this,{part}"]


def test_where_nothing_was_measured_a_corrected_command_can_begin(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words += ["-o", str(tmp_path / "out")]

    def broken(*_: object) -> NoReturn:
        raise EnvironmentNotMade("no such version")

    with monkeypatch.context() as without:
        without.setattr(bisect, "prepare", broken)
        assert main(words) == 2
    judge = use(monkeypatch, FakeJudge(15))
    with monkeypatch.context() as without:
        without.setattr(judge, "judge", broken)
        assert main(words) == 2
    assert capsys.readouterr().err.count("torchzoo: error: no such version") == 2
    assert main(words) == bisect.FOUND
    assert main(words) == 2  # what was measured is kept
    assert "go on with --resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (["-t", "train,eval"], "one value of each axis"),
        (["--backend", "eager,inductor"], "one value of each axis"),
        (["--models-dir", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_usage(words: list[str], changed: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, *changed, "-o", "/nowhere"]) == 2
    assert message in capsys.readouterr().err


def test_what_is_missing_is_named(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "name a folder for the verdicts with -o DIR" in capsys.readouterr().err
    assert main(["bisect", "tiny", "-o", str(tmp_path / "out")]) == 2
    assert "name both versions: --good SPEC --bad SPEC" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_words_of_its_case_are_those_that_were_given(tmp_path: Path) -> None:
    given = ["--cache", "warm", "--batch-size", "4,8", "--backend", "inductor:max-autotune", "--time-limit", "3"]
    for cache in ("warm", str(tmp_path)):
        given[1] = cache
        parsed = build_parser(["bisect"]).parse_args(["bisect", "tiny", *given])
        found = list(bisect._words(parsed))
        assert found[0] == "tiny"
        assert dict(zip(found[1::2], found[2::2], strict=True)) == {
            "--cache": cache,
            "--batch-size": "4,8",
            "--backend": "inductor:max-autotune",
            "--time-limit": "3.0",
        }
