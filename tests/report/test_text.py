"""Foreign text is shown, and does nothing: in the terminal and in every format of every report."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import msgspec
import pytest

from examples import CASE, GB, INDUCTOR, ROOT, environment, measured, record, variant_result
from kept_runs import against_eager, keep
from torchzoo import cli
from torchzoo.case import Mode
from torchzoo.commands.report import FORMATS
from torchzoo.record import (
    Breakdown,
    Compilation,
    Failed,
    FailureKind,
    Gpu,
    GraphBreak,
    Kernel,
    Record,
    Skipped,
    StepTime,
)
from torchzoo.report import markdown, terminal
from torchzoo.report.progress import Progress
from torchzoo.report.text import csv_text, json_text, visible
from torchzoo.run.lanes import Lane
from torchzoo.settings import Stage
from torchzoo.studies import study

#: It sets a terminal's title, clears the screen, turns letters round, ends a line, and is HTML, code, link, formula.
HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp\r=cmd()\x0b\u2028"
    "|`x`[y](http://e.vil)<img src=x onerror=alert(1)>&lt;@someone"
)
NAMES = [HOSTILE, "first\nsecond\tthird", "=cmd()", "-rf", "```", "a|b\\"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain ñandú 模型 µs █·… 😀", "plain ñandú 模型 µs █·… 😀"),
        ("\x1b[2J\x07\x7f\x9b", r"\x1b[2J\x07\x7f\x9b"),
        ("\u202egnp\u2066\u200b", r"\u202egnp\u2066\u200b"),
        ("a\nb\rc\td\u2028e", r"a\nb\rc\td\u2028e"),
        ("not UTF-8: \udcff", r"not UTF-8: \udcff"),
        ("\U000e0001", r"\U000e0001"),  # a tag character
    ],
)
def test_what_can_not_be_seen_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_what_is_to_stay_stays() -> None:
    assert visible("a\nb\x1b", keep="\n") == "a\nb\\x1b"


def test_json_is_ascii_and_means_the_same() -> None:
    value = {HOSTILE: [HOSTILE, "µ 模型 😀", 1.5, None]}
    for indent in (None, 1):
        text = json_text(value, indent=indent)
        assert json.loads(text) == msgspec.json.decode(text) == value
        assert re.sub(r"[ -~\n]", "", text) == ""
    assert json.loads(json_text("\udcff")) == "\\udcff"


def test_csv_has_a_line_for_each_row_and_no_formulas() -> None:
    text = csv_text([["name", "value"], [HOSTILE, -1.5], ["=1+1", None], ["+1", float("nan")], ["a,b\n", 7]])
    rows = list(csv.reader(io.StringIO(text, newline="")))
    assert rows == [["name", "value"], [visible(HOSTILE), "-1.5"], ["'=1+1", ""], ["'+1", ""], ["a,b\\n", "7"]]
    assert csv_text([["-x", -0.25, 3]], decimals=2) == "'-x,-0.25,3\n"


@pytest.mark.parametrize("name", ["first\nsecond", "| a | b |", "a\\|b", "<!-- ", "&lt;b&gt;", "@me", "[a](b)", "`"])
def test_a_cell_of_markdown_is_one_cell_of_text(name: str) -> None:
    (row,) = markdown.table(["a"], [[name]])[2:]
    assert "<" not in row
    assert "](" not in row
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 2
    assert re.search(r"&(?!amp;|lt;|gt;)", row) is None


def test_a_block_of_code_ends_where_it_should() -> None:
    assert markdown.code_block(["a ```` b", "\x1b"]) == ["`````sh", "a ```` b", "\\x1b", "`````"]


def test_a_link_leads_to_the_web_or_is_none() -> None:
    assert markdown.escape("stack[0][1] of [a](b)") == "stack[0]\\[1] of [a]\\(b)"
    assert markdown.link("a](b", "https://e.org/x?a=1&b=(2) |<") == "[a]\\(b](https://e.org/x?a=1&b=%282%29%20%7C%3C)"
    assert markdown.link("a", "javascript:alert(1)") == "a (javascript:alert(1))"


# --- every output ---


def hostile_records() -> list[Record]:
    steps = (StepTime(0.01, 0.006, 0.001),)
    breakdown = Breakdown(steps=steps, kernels=(Kernel(HOSTILE, 1, 0.1),), problem=HOSTILE)
    compilation = Compilation(graphs=1, breaks=(GraphBreak(reason=HOSTILE, place=HOSTILE),), compile_s=1.0)
    variants = {"eager": variant_result(breakdown=breakdown), "candidate": variant_result(compilation=compilation)}
    compared = against_eager(2.0, variants=variants, device_name=HOSTILE, sample_unit=HOSTILE, host_syncs=HOSTILE)
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=HOSTILE, traceback=f"one\n{HOSTILE}")
    plain = [record(measured(sample_unit=HOSTILE), model=name, mode=mode) for name in NAMES for mode in Mode]
    return [
        *plain,
        *(record(model="repeated", repeat=number) for number in range(3)),
        *(record(compared, model=name, backend=INDUCTOR) for name in NAMES),
        record(failed, model="fails"),
        record(Skipped(reason=HOSTILE), model="skips"),
    ]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    facts = environment(cpu=HOSTILE, gpus=(Gpu(name=HOSTILE, memory_bytes=80 * GB, driver="1"),))
    path = tmp_path_factory.mktemp("hostile") / "run"
    return keep(path, hostile_records(), environment=facts, command=("torchzoo", "run", HOSTILE, "```"))


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(list(arguments)) in (0, 1)
    shown = capsys.readouterr()
    assert_inert(shown.err)
    return shown.out


def assert_inert(text: str, *, invisible: str = "") -> None:
    """No character of `text` is one that can't be seen, but the ends of its lines and what Markdown puts in."""
    assert {one for one in text if not one.isprintable()} <= {"\n", *invisible}


BREAKS_MENTIONS = "\u200b"


def assert_markdown_is_whole(text: str) -> None:
    assert_inert(text, invisible=BREAKS_MENTIONS)
    lines = iter(text.splitlines())
    header = 0
    for line in lines:
        if line.startswith("```"):
            fence = line.removesuffix("sh")
            assert any(inner == fence for inner in lines), "a block of code has no end"
        elif line.startswith("|"):
            cells = len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))
            header = header or cells
            assert cells == header, line
        else:
            header = 0
            line = re.sub(r"`[^`]*`", "", line)  # noqa: PLW2901
        if not line.startswith("```"):
            assert re.search(r"<(?!/?(?:details|summary)>)", line) is None, line
            assert "](" not in line
            assert "@someone" not in line


@pytest.mark.parametrize("name", FORMATS)
def test_a_report_of_hostile_text_is_inert_in_every_format(
    hostile: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, "report", str(hostile), "--format", name)
    if name == "md":
        assert_markdown_is_whole(text)
        return
    if name == "html":  # its scripts are ours
        assert "<img" not in text
        assert visible(HOSTILE).partition("<")[0].replace("'", "&#39;") in text
        text = re.sub(r"<script>.*?</script>", "", text, flags=re.DOTALL)
    assert_inert(text)
    if name == "csv":
        rows = list(csv.DictReader(io.StringIO(text, newline="")))
        assert len(rows) == len({(one.case.model, one.case.mode, one.case.backend) for one in hostile_records()})
        assert {"'=cmd()", "'-rf", visible(HOSTILE)} <= {row["model"] for row in rows}
    if name == "json":
        assert {HOSTILE, "-rf"} <= {row["model"] for row in json.loads(text)["rows"]}
    if name == "jsonl":
        assert [msgspec.json.decode(line, type=Record) for line in text.splitlines()]


def test_comparisons_noise_and_studies_of_hostile_text_are_inert(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in (["report", str(hostile), "--noise"], ["compare", str(hostile), str(hostile)]):
        assert_inert(told(capsys, *arguments))
        assert_inert(told(capsys, *arguments, "--format", "json"))
        assert_markdown_is_whole(told(capsys, *arguments, "--format", "md"))
    assert_markdown_is_whole(told(capsys, "compare", str(hostile), str(hostile), "--format", "github-issue"))
    for name in ("paper_breakdown", "paper_compilers", "gpt2_modes"):
        one = study.load(name)
        assert_inert(study.document(one, study.read_runs(one, [hostile])).text, invisible=BREAKS_MENTIONS)


def test_exports_of_hostile_text_are_inert(hostile: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert_inert(told(capsys, "export", str(hostile), "--format", "hud-v3"))
    assert_inert(told(capsys, "export", str(hostile), "--format", "dynamo-csv", "-o", str(tmp_path / "csv")))
    for file in (tmp_path / "csv").iterdir():
        assert_inert(file.read_text(encoding="utf-8"))


def test_one_hostile_failure_is_shown_with_the_lines_of_its_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=HOSTILE, traceback=f"one\n  {HOSTILE}")
    text = told(capsys, "report", str(keep(tmp_path / "run", [record(failed)])))
    assert_inert(text)
    assert "\none\n" in text


@pytest.mark.parametrize("is_terminal", [False, True])
def test_progress_shows_hostile_text_on_one_line(is_terminal: bool, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: FBT001
    lane = Lane(device="cpu")
    case = msgspec.structs.replace(CASE, model=f"first\nsecond{HOSTILE}")
    failed = Failed(kind=FailureKind.ERROR, stage=Stage.BUILD, message=HOSTILE)
    with Progress(total=2, lanes=[lane], quiet=False, is_terminal=is_terminal) as progress:
        progress.stage(case, lane, Stage.BUILD)
        progress.done(msgspec.structs.replace(record(failed), case=case))
    text = capsys.readouterr().err
    for harm in ("\x1b]0;", "\x1b[2J\x9b", "\x07", "\u202e", "first\nsecond"):
        assert harm not in text
    assert "first\\nsecond" in text.replace("\n", "") or is_terminal


def test_a_line_for_the_user_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.say(f"a\nb{HOSTILE}")
    terminal.show_line(f"a\nb{HOSTILE}")
    shown = capsys.readouterr()
    assert shown.err == shown.out == visible(f"a\nb{HOSTILE}") + "\n"


def test_each_kind_of_output_is_made_in_one_place() -> None:
    """Rich's texts and standard error in `terminal`, CSV in `text`: what goes around them is not made safe."""
    places = {
        word: {
            str(path.relative_to(ROOT / "torchzoo"))
            for path in (ROOT / "torchzoo").rglob("*.py")
            if word in path.read_text()
        }
        for word in ("rich.text", "csv.writer", "file=sys.stderr")
    }
    assert places["rich.text"] == {"report/terminal.py"}
    assert places["csv.writer"] == {"report/text.py"}
    assert places["file=sys.stderr"] <= {"report/terminal.py", "install.py", "commands/run.py", "__main__.py"}
