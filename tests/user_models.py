"""Small model folders, made for a test: a good one, and the ways one can be broken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torchzoo.case import Mode
from torchzoo.zoo.catalog import find_models, load_model_class

METADATA = """
domain: other
task: testing
paper: https://example.org
source: torchzoo's tests
requirements: []
parameters: 72
batch_size: {train: 4, eval: 4}
smoke_batch_size: 2
"""

TINY = '''"""A small convolutional classifier (torchzoo's tests, 2026)."""

import os
import signal
import time

import torch
from torch import nn
from torchzoo.model.tasks import Batch, SupervisedModel


class Model(SupervisedModel):
    def build_network(self):
        return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))  # 74 parameters

    def build_batch(self):
        return Batch((self.data.images(self.batch_size, 3, 4, 4),), self.data.labels(self.batch_size, 2))

    def compute_loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)
'''

#: What replaces the tiny model's eval step, by how it is broken.
BROKEN_STEPS = {
    "raises": 'raise ValueError("no <such>\\nthing")',
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "segfaults": "import ctypes; ctypes.string_at(0)",
    "hangs": "time.sleep(600)",
    "eats_memory": "return torch.ones(2 * 2**30)",
    "exits": "os._exit(7)",
    "hangs_later": """self.steps = getattr(self, "steps", 0) + 1
        time.sleep(600 if self.steps > 25 else 0.01)  # a warm-up has fewer steps, a window more
        return super().eval_step()""",
}


#: A collection of tiny models: `wide` and so on have as many channels as the table says in a column of its own.
COLLECTION = """
domain: other
task: testing
paper: https://example.org
source: torchzoo's tests
requirements: []
batch_size: {train: 4, eval: 8}
smoke_batch_size: 2
"""
TABLE = """name,parameters,channels,train,eval,task
narrow,38,1,,,
wide,146,4,,2,testing more
deep:2,74,2,16,,
"""
FACTORY = (
    TINY.replace("class Model(SupervisedModel):", "class Tiny(SupervisedModel):\n    channels = 2\n").replace(
        "nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))  # 74 parameters",
        "nn.Conv2d(3, self.channels, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * self.channels, 2))",
    )
    + """

def model_class(name):
    channels = {"narrow": 1, "wide": 4, "deep:2": 2}[name]
    return type("Model", (Tiny,), {"__module__": __name__, "channels": channels})
"""
)


def make_collection(
    root: Path, name: str = "tiny", code: str = FACTORY, table: str = TABLE, metadata: str = COLLECTION
) -> Path:
    """A collection's folder. A test names `root` in TORCHZOO_COLLECTIONS_PATH."""
    folder = make_folder(root, name, code, metadata)
    (folder / "models.csv").write_text(table)
    return folder


def make_folder(root: Path, name: str, code: str = TINY, metadata: str = METADATA) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "metadata.yaml").write_text(metadata)
    (folder / "__init__.py").write_text(code)
    return folder


def tiny_model(root: Path, code: str = TINY, mode: Mode = Mode.TRAIN) -> Any:
    """A model of a new folder, made on the CPU."""
    make_folder(root, "tiny", code)
    return load_model_class(find_models([root]).spec("tiny"))(mode, "cpu", 4)


def make_broken(root: Path, name: str, flag: Path | None = None) -> Path:
    """A model whose eval step is broken; with a `flag`, its building ends when that file is there."""
    step = f"\n    def eval_step(self):\n        {BROKEN_STEPS[name]}\n"
    return make_folder(root, name, TINY + step + (_build_waits(flag) if flag else ""))


def make_waiting(root: Path, name: str, flag: Path) -> Path:
    """A model whose building ends when `flag` is there."""
    return make_folder(root, name, TINY + _build_waits(flag))


def _build_waits(flag: Path) -> str:
    wait = f"while not os.path.exists({str(flag)!r}):\n            time.sleep(0.05)"
    return f"\n    def build(self):\n        {wait}\n        super().build()\n"
