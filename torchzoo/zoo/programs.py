"""Name the programs that start torchzoo: the scripts of a checkout, or those that pip installed."""

from __future__ import annotations

from torchzoo.zoo.folders import checkout


def run_words() -> list[str]:
    """The words before the arguments of `torchzoo run`. The scripts of a checkout work without an installation."""
    return ["torchzoo", "run"] if checkout() is None else ["python", "run.py"]


def install_words() -> list[str]:
    """The words before the arguments of `torchzoo install`."""
    return ["torchzoo", "install"] if checkout() is None else ["python", "install.py"]
