"""The regressions of the paper's Table 4, replayed: does `torchzoo watch` find each, and `bisect` its commit?

    python benchmarks/table4.py -d cpu -o /tmp/table4
    python benchmarks/table4.py -d cpu -o /tmp/table4 --only 61056,71904 --more-quiet-nights 0

The library `slowpaths` is made, in a git repository of its own. It is installed beside torch, and patches torch's
Python layer as soon as torch is imported. Its first commit patches nothing. Then, for each regression, come 71 commits:
70 harmless ones, and one, at a place drawn with a seed, that brings a patch with the same kind of effect as the pull
request of the paper. After these 71 commits is a night of `torchzoo watch`. The night is right if `watch` confirms a
regression and blames that commit. Then the commit is reverted, as the paper's were, among 70 harmless commits again,
and the next night must confirm nothing. More quiet nights follow at the end, with harmless commits only.

The figures are of the machine that this runs on. Plants on the CPU are sized so that the small models here lose about
as much as the paper's did, or more; what each of them lost is in the table.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec

ROOT = Path(__file__).resolve().parent.parent
HARMLESS = 70
SEED = 2026

PYPROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "slowpaths"
version = "1.0"

[tool.hatch.build.targets.wheel]
packages = ["slowpaths"]

[tool.hatch.build.targets.wheel.force-include]
"slowpaths.pth" = "slowpaths.pth"
"""

#: Waits until torch has been imported, then applies the patches that this commit has.
PACKAGE = '''\
"""Patches of torch's Python layer, applied when torch is imported."""

import importlib.machinery
import sys


class _AfterTorch:
    """Finds torch as usual, and applies the patches when its import is over."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            from slowpaths import patches

            patches.apply()

        spec.loader.exec_module = exec_module
        return spec


sys.meta_path.insert(0, _AfterTorch())
'''


class Plant(msgspec.Struct, frozen=True, kw_only=True):
    """One regression of the table."""

    pull_request: int
    what: str
    model: str  # a small model of the zoo that it touches
    mode: str
    code: str  # of a function `plant()`; torch is imported


PLANTS = (
    Plant(
        pull_request=85447,
        what="workspaces that are never freed",
        model="nvidia_deeprecommender",
        mode="eval",
        code="""\
    forward = torch.nn.Linear.forward

    def keeping(self, input):
        if not hasattr(self, "workspace"):
            self.workspace = torch.ones(16 * 2**20, device=self.weight.device)  # 64 MiB
        return forward(self, input)

    torch.nn.Linear.forward = keeping
""",
    ),
    Plant(
        pull_request=61056,
        what="constraints of a distribution's parameters are checked again and again",
        model="soft_actor_critic",
        mode="train",
        code="""\
    init = torch.distributions.Distribution.__init__

    def again(self, *arguments, **options):
        for _ in range(400):
            init(self, *arguments, **options)

    torch.distributions.Distribution.__init__ = again
""",
    ),
    Plant(
        pull_request=65594,
        what="a fusion that loses",
        model="squeezenet1_1",
        mode="eval",
        code="""\
    forward = torch.nn.Conv2d._conv_forward

    def fused(self, input, weight, bias):
        result = forward(self, input, weight, None)
        return result if bias is None else (result.double() + bias.view(-1, 1, 1)).to(input.dtype)

    torch.nn.Conv2d._conv_forward = fused
""",
    ),
    Plant(
        pull_request=72148,
        what="a library's setting for some shapes",
        model="nvidia_deeprecommender",
        mode="train",
        code="""\
    forward = torch.nn.Linear.forward

    def split(self, input):
        if self.in_features < 1024:
            return forward(self, input)
        parts = zip(input.split(512, dim=-1), self.weight.split(512, dim=-1))
        return sum(part @ weight.T for part, weight in parts) + self.bias

    torch.nn.Linear.forward = split
""",
    ),
    Plant(
        pull_request=71904,
        what="redundant checks of bounds",
        model="dlrm",
        mode="eval",
        code="""\
    forward = torch.nn.EmbeddingBag.forward

    def checked(self, input, offsets=None, per_sample_weights=None):
        for _ in range(8):
            assert bool(((input >= 0) & (input < self.num_embeddings)).all())
        return forward(self, input, offsets, per_sample_weights)

    torch.nn.EmbeddingBag.forward = checked
""",
    ),
    Plant(
        pull_request=65839,
        what="slow conversion of types on the CPU",
        model="mnasnet1_0",
        mode="eval",
        code="""\
    forward = torch.nn.Conv2d._conv_forward

    def converted(self, input, weight, bias):
        for _ in range(3):
            input, weight = input.double().to(input.dtype), weight.double().to(weight.dtype)
        return forward(self, input, weight, bias)

    torch.nn.Conv2d._conv_forward = converted
""",
    ),
    Plant(
        pull_request=87855,
        what="exceptions on a path that should be cold",
        model="lennard_jones",
        mode="eval",
        code="""\
    import traceback

    call = torch.nn.Module.__call__

    def handled(self, *arguments, **options):
        try:
            raise RuntimeError("unlikely")
        except RuntimeError:
            traceback.format_exc()
        return call(self, *arguments, **options)

    torch.nn.Module.__call__ = handled
""",
    ),
)


class Repository:
    """The repository of `slowpaths`, as it grows."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.planted: list[Plant] = []
        self.notes = 0

    def make(self) -> None:
        """The first commit: a library that patches nothing."""
        (self.path / "slowpaths").mkdir(parents=True)
        (self.path / "pyproject.toml").write_text(PYPROJECT)
        (self.path / "slowpaths.pth").write_text("import slowpaths\n")
        (self.path / "slowpaths" / "__init__.py").write_text(PACKAGE)
        self.git("init", "-q", "-b", "main")
        self._write_patches()
        self.commit("A library that patches nothing")

    def harmless(self, count: int) -> None:
        for _ in range(count):
            self.notes += 1
            (self.path / "slowpaths" / "notes.py").write_text(f'"""Nothing runs this."""\n\nNUMBER = {self.notes}\n')
            self.commit(f"Note {self.notes}")

    def plant(self, plant: Plant) -> str:
        """The commit that brings a patch."""
        self.planted.append(plant)
        self._write_patches()
        return self.commit(f"As in #{plant.pull_request}: {plant.what}")

    def revert(self) -> None:
        """Take the last patch out again."""
        plant = self.planted.pop()
        self._write_patches()
        self.commit(f"Revert: {plant.what}")

    def commit(self, message: str) -> str:
        self.git("add", "-A")
        self.git("-c", "user.name=a developer", "-c", "user.email=dev@example.org", "commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def git(self, *words: str) -> str:
        done = subprocess.run(["git", "-C", str(self.path), *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def _write_patches(self) -> None:
        functions = [f"def plant_{one.pull_request}():\n{one.code}" for one in self.planted]
        calls = [f"    plant_{one.pull_request}()" for one in self.planted] or ["    pass"]
        text = "\n\n".join(["import torch", *functions, "\n".join(["def apply():", *calls])])
        (self.path / "slowpaths" / "patches.py").write_text(text + "\n")


def watch_words(
    arguments: argparse.Namespace, repository: Repository, folder: Path, mode: str, models: set[str]
) -> list[str]:
    """The command of tonight's watch over models in one mode."""
    words = [sys.executable, "-m", "torchzoo", "watch", str(folder), *sorted(models), "-t", mode, "-q"]
    words += ["-d", arguments.device, "--time-limit", str(arguments.time_limit)]
    words += ["--bs", "smoke", "--threads", "1"] if arguments.device == "cpu" else ["--bs", "default"]
    return [*words, "--software", f"slowpaths@{repository.path}:{repository.git('rev-parse', 'HEAD')}"]


def night(
    arguments: argparse.Namespace, repository: Repository, nights: Path, cases: dict[str, set[str]]
) -> dict[str, Any]:
    """One call of `torchzoo watch` per mode; what it found, with its wall time in seconds."""
    found: dict[str, Any] = {"confirmed": [], "blamed": [], "midpoints": [], "seconds": 0.0, "status": []}
    for mode, models in cases.items():
        folder = nights / mode
        words = watch_words(arguments, repository, folder, mode, models)
        began_s = time.monotonic()
        done = subprocess.run(words, check=False, cwd=ROOT, text=True, capture_output=True)
        found["seconds"] += time.monotonic() - began_s
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        print(done.stdout, flush=True)
        last = max((folder / "nights").iterdir())
        written = json.loads((last / "night.json").read_text())
        found["status"].append(written["status"])
        found["confirmed"] += written.get("confirmed", [])
        found["blamed"] += written.get("blamed", [])
        for log in last.glob("bisect*/bisect.jsonl"):
            verdicts = [json.loads(line) for line in log.read_text().splitlines()]
            found["midpoints"].append(len({one["midpoint"] for one in verdicts}))
    return found


def main() -> None:
    """Print a line for each night."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--device", default="cpu")
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--only", default="", help="pull requests, with commas (default: all seven)")
    parser.add_argument("--more-quiet-nights", type=int, default=3, metavar="N", help="at the end")
    parser.add_argument("--time-limit", type=float, default=1.0)
    arguments = parser.parse_args()
    plants = [one for one in PLANTS if not arguments.only or str(one.pull_request) in arguments.only.split(",")]
    cases: dict[str, set[str]] = {}
    for one in plants:
        cases.setdefault(one.mode, set()).add(one.model)
    rng = random.Random(SEED)
    repository = Repository(arguments.output / "slowpaths")
    repository.make()
    print(f"first night: {night(arguments, repository, arguments.output, cases)['status']}", flush=True)
    found_all, quiet = 0, list[dict[str, Any]]()
    for one in plants:
        place = rng.randrange(HARMLESS + 1)
        repository.harmless(place)
        culprit = repository.plant(one)
        repository.harmless(HARMLESS - place)
        found = night(arguments, repository, arguments.output, cases)
        is_blamed = any(len(one["specs"]) == 1 and one["specs"][0].endswith(culprit) for one in found["blamed"])
        verdict = "found" if is_blamed else "confirmed, not blamed" if found["confirmed"] else "MISSED"
        found_all += is_blamed
        print(
            f"#{one.pull_request} {one.what}: {verdict}; {len(found['confirmed'])} confirmed, "
            f"midpoints {found['midpoints']}, {found['seconds']:.0f} s",
            flush=True,
        )
        repository.harmless(HARMLESS - place)
        repository.revert()
        repository.harmless(place)
        quiet.append(night(arguments, repository, arguments.output, cases))
    for _ in range(arguments.more_quiet_nights):
        repository.harmless(HARMLESS + 1)
        quiet.append(night(arguments, repository, arguments.output, cases))
    false_alarms = sum(bool(one["confirmed"]) for one in quiet)
    print(f"{found_all} of {len(plants)} found and blamed")
    print(f"{len(quiet)} quiet nights: {false_alarms} with something confirmed")


if __name__ == "__main__":
    main()
