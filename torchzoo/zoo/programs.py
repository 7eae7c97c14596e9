"""How a user starts torchzoo here: by the scripts of a checkout, or by what pip installed."""

from __future__ import annotations

from torchzoo.zoo.folders import checkout


def run_words() -> list[str]:
    """The words before the arguments of `torchzoo run`. In a checkout they work before anything is installed."""
    return ["torchzoo", "run"] if checkout() is None else ["python", "run.py"]


def install_words() -> list[str]:
    """The words before the arguments of `torchzoo install`."""
    return ["torchzoo", "install"] if checkout() is None else ["python", "install.py"]
