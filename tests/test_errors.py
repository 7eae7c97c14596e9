"""The errors of the project: one base, and one place that catches whatever foreign code raises."""

from __future__ import annotations

import ast
import builtins

import pytest

from examples import ROOT
from torchzoo.errors import attempt, nearest, unknown

MODELS = ("resnet18", "resnet50", "BERT_pytorch", "yolov3")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("resnet81", "did you mean resnet18 or resnet50?"),
        ("RESNET18", "did you mean resnet18 or resnet50?"),
        ("bert_pytorsh", "did you mean BERT_pytorch?"),
        ("qqqqqqqq", ""),
        ("", ""),
    ],
)
def test_nearest_names_what_is_most_like_the_word(word: str, hint: str) -> None:
    assert nearest(word, MODELS) == hint


def test_an_unknown_word_is_told_with_all_known_ones() -> None:
    assert unknown("mode", "trian", ["train", "eval"]) == "unknown mode 'trian': did you mean train? Known: train, eval"
    assert unknown("mode", "qqqqqq", iter(["train", "eval"])) == "unknown mode 'qqqqqq': known: train, eval"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_attempt_does_not_hold_an_interrupt_or_an_exit(error: type[BaseException]) -> None:
    def stop() -> None:
        raise error

    with pytest.raises(error):
        attempt(stop)


def test_every_error_for_the_user_has_the_one_base() -> None:
    """Only what runs in workers, where errors become records, may derive from Python's own errors."""
    builtin = {
        name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, Exception)
    }
    with_base = {
        f"{path.relative_to(ROOT / 'torchzoo')}: {node.name}"
        for path in (ROOT / "torchzoo").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and builtin & {ast.unparse(base) for base in node.bases}
    }
    in_workers = {one for one in with_base if one.startswith(("measure/", "backends/", "model/"))}
    assert with_base - in_workers == {"errors.py: TorchzooError"}
