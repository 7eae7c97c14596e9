"""Wrong words on the command line are refused in one line that names them, before anything is measured."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import torch

from in_this_process import refused, torchzoo

#: What the line must have, for each command line. ({long} is a name that no file system takes.)
WRONG = {
    # run
    "run": "MODEL",
    "run resnet81": "did you mean resnet18",
    "run resnet18 --backend inductr": "did you mean inductor?",
    "run resnet18 --backend inductor:fast": "it has default",
    "run resnet18 --backend ::": "'::'",
    "run resnet18 --precision fp23": "did you mean fp32",
    "run resnet18 --memory-format nchw": "known: contiguous",
    "run resnet18 -t trian": "did you mean train?",
    "run resnet18 -d gpu0": "gpu0",
    "run resnet18 -d tpu": "tpu",
    "run resnet18 -d cpu:1": "cpu:1",
    **({} if torch.cuda.is_available() else {"run resnet18 -d cuda": "no cuda device"}),
    "run resnet18 --bs 0": "at least 1",
    "run resnet18 --bs -3": "at least 1",
    "run resnet18 --bs many": "at least 1",
    "run resnet18 --threads 0": "at least 1",
    "run resnet18 --repeats 30000000": "at most 1000, found '30000000'; see `torchzoo run --help`",
    "run resnet18 --time-limit nan": "--time-limit",
    "run resnet18 --host-memory-limit big": "such as 8GiB",
    "run resnet18 -o ''": "argument -o/--output: expected a path, found ''; see",
    "run resnet18 -o /proc/nowhere": "/proc/nowhere",
    "run resnet18 --models-dir /no/such": "no such models folder",
    "run resnet18 --models-dir {long}": "File name too long",
    "run {long}": "xxx ... xxx",
    "run resnet18 --cache shared": "name the folder",
    "run resnet18 --cache /proc/nowhere": "/proc/nowhere",
    "run resnet18 -j 1 --devices 0,1": "--jobs 2",
    "run resnet18 --retry-failed": "--resume",
    "run resnet18 --dry-run --json": "leave out --json",
    "run resnet18 --dry-run --retry-failed": "--resume",
    "run resnet18 --dry-run --backend inductr": "did you mean inductor?",
    "run --resume /tmp --dry-run": "leave out --dry-run",
    "run --resume /no/such": "/no/such",
    "run --resume /dev": "no run in /dev",
    "run resnet18 --resume /tmp --bs 3": "leave out MODEL, --batch-size",
    "run --no-such\x1b[31m-option x": r"--no-such\x1b[31m-option",
    # list, report, compare, show
    "lst": "did you mean list",
    "noise runs/a -q": "torchzoo report RUN --noise",
    "list --domain npl": "did you mean nlp? Known: ",
    "list --columns name,parms": "unknown column 'parms': did you mean",
    "list --columns ''": "known: name, ",
    "list --columns name --json": "--columns",
    "list --columns name --table": "--columns",
    "list resnet18 --flops-from runs/a": "--table",
    "report nowhere": "`torchzoo run MODEL -o DIR`",
    "report \x1b[2Jnowhere": r"no run in \x1b[2Jnowhere",
    "report 'first\nsecond'": r"first\nsecond",
    "report nowhere --noise": "no run in nowhere",
    "report nowhere other --noise": "--noise",
    "report nowhere --noise --format csv": "--noise",
    "report nowhere --noise -o noise.svg": "--noise",
    "report nowhere --noise --worst 1": "--noise",
    "check-model resnet81": "did you mean resnet18",
    # ab, bisect, watch
    "ab resnet18": "--base SPEC",
    "ab resnet18 --candidate A=1 --bs auto": "--bs auto",
    "ab resnet81 --candidate A=1": "did you mean resnet18",
    "ab resnet18 --candidate 'no such thing'": "no such thing",
    "ab resnet18 --candidate ''": "--candidate: expected a SPEC, found ''",
    "ab resnet18 --base ' ' --candidate A=1": "--base: expected a SPEC, found ''",
    "ab --resume nothing": "nothing",
    "ab --resume odd": "odd/ab.json: ",
    "ab --resume odd --bs 4": "--resume",
    "ab resnet18 --candidate A=1 -o odd": "odd holds an A/B",
    "bisect --good ''": "--good: expected a SPEC, found ''",
    "bisect --bad ' '": "--bad: expected a SPEC, found ''",
    "bisect resnet18 -o out": "--good SPEC --bad SPEC",
    "watch out": "MODEL",
    "watch out resnet18 --software ''": "--software: expected a SPEC, found ''",
    "watch out resnet18 --software nonsense": "'nonsense'",
    "watch out resnet18 --repo a/b": "--issue github",
    "watch out resnet18 --issue github --repo 'a b'": "OWNER/NAME",
    "watch out resnet18 --bs auto": "--bs auto",
    # env
    "env": "ACTION",
    "env make tza": "'tza'",
    "env prune abc": "'abc'",
    "env prune --older-than soon": "such as 30d, 12h or 5m, found 'soon'",
    "env prune --all abc": "not allowed with",
    # history
    "history": "torchzoo history",
    "history show": "torchzoo history show",
    "history show m --p-value 2": "--p-value",
    "history show m --window 3": "--window",
    "history show m --last -1": "--last",
    "history show m --least-magnitude x": "--least-magnitude",
    "history regressions --from 2.14.0": "--to",
    "history page": "torchzoo history page",
    "history show m": "--runs DIR",
    # study, userbenchmark
    "study nanogtp": "did you mean nanogpt?",
    "study optim": "torchzoo userbenchmark optim",
    "study nanogpt --from /no/such": "/no/such",
    "study nanogpt --from /no/such --dry-run": "leave out --dry-run",
    "study nanogpt --resume /no/such -t eval": "leave out --mode",
    "study nanogpt --retry-failed": "--resume",
    "study paper_breakdown resnet18 --part 1/2 --dry-run": "only 1 models",
    "study paper_breakdown --part 3/2 --dry-run": "3/2",
    "study paper_breakdown --part 0/2 --dry-run": "0/2",
    "study paper_breakdown --part a/b --dry-run": "a/b",
    "userbenchmark optm -o /tmp/x": "did you mean optim?",
    "userbenchmark nothing_like_it": "known: dynamic_shapes, optim, power_values, warm_start",
    "userbenchmark paper_breakdown": "torchzoo study paper_breakdown",
    "userbenchmark optim": "-o DIR",
    "userbenchmark optim --from /no/such": "/no/such",
    "userbenchmark optim resnet18 --from /no/such --bs 2": "leave out MODEL, --batch-size",
    "userbenchmark optim --resume /no/such -t eval": "leave out --mode",
    "userbenchmark optim --retry-failed -o /tmp/x": "--resume",
    "userbenchmark -o /tmp/x": "leave out --output",
    "userbenchmark warm_start": "-o DIR",
    "userbenchmark warm_start --from /no/such": "run.json",
    "userbenchmark warm_start --resume /no/such": "run.json",
    "userbenchmark warm_start resnet18 --from /no/such --bs 2": "leave out MODEL, --batch-size",
    "userbenchmark dynamic_shapes -j 2 -o /tmp/x": "one process at a time",
    "userbenchmark warm_start --from /no/such --dry-run": "leave out --dry-run",
    "userbenchmark warm_start --retry-failed -o /tmp/x": "--resume",
}


@pytest.mark.parametrize("line", WRONG)
def test_wrong_usage_is_one_clear_line(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCHZOO_ENV_CACHE", str(tmp_path / "cache"))
    (tmp_path / "odd" / "base").mkdir(parents=True)
    (tmp_path / "odd" / "base" / "run.json").write_text("{}")
    (tmp_path / "odd" / "ab.json").write_text('{"base": 7}')
    (tmp_path / "a file").write_text("x" * 200)
    said = refused(*shlex.split(line.format(long="/" + "x" * 20_000)))
    assert WRONG[line] in said
    assert said.isprintable()
    assert len(said) < 1500
    assert {path.name for path in tmp_path.iterdir()} <= {"a file", "odd"}


def test_there_are_no_runs_in_an_empty_folder(tmp_path: Path) -> None:
    assert "no runs in" in torchzoo("history", "show", "m", "--runs", tmp_path).stderr
