"""The C library's heap in measured processes: freed memory is kept, unless the user has set up the heap."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples import ROOT
from torchzoo.machine import process
from user_models import TINY, make_folder

pytestmark = pytest.mark.skipif(not process.described(), reason="the C library is not glibc")

#: Takes and frees 24 blocks of 1 MiB as a step does, and prints the page faults of one step.
STEPS = """
import ctypes, resource
from torchzoo.machine import process
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
{first}
def step():
    blocks = [libc.malloc(2**20) for _ in range(24)]
    for block in blocks:
        ctypes.memset(block, 1, 2**20)
    for block in blocks:
        libc.free(block)
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    step()
before = faults()
for _ in range(10):
    step()
print((faults() - before) // 10)
"""
PAGES = 24 * 2**20 // 4096


def faults(first: str, **variables: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", STEPS.format(first=first)],
        cwd=ROOT, capture_output=True, text=True, check=True, env={"PATH": "/usr/bin:/bin", **variables},
    )  # fmt: skip
    return int(done.stdout)


def test_a_step_keeps_its_memory() -> None:
    assert faults("") > PAGES / 2, "the case that this is for: by itself glibc gives the memory back"
    assert faults("process.keep_freed()") < PAGES / 50


@pytest.mark.parametrize(
    "variables", [{"MALLOC_TRIM_THRESHOLD_": "131072"}, {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=131072"}]
)
def test_what_the_user_set_up_stays(variables: dict[str, str]) -> None:
    assert faults("process.keep_freed()", **variables) > PAGES / 2
    assert process.is_chosen(variables)
    assert not process.is_chosen({"GLIBC_TUNABLES": "glibc.rtld.nns=2", "OMP_NUM_THREADS": "2"})


def test_memory_is_given_back_when_asked() -> None:
    again = "process.keep_freed()\nfree = libc.free\nclass libc:\n    malloc = libc.malloc\n"
    again += "    free = staticmethod(lambda block: (free(block), process.give_back()))"
    assert faults(again) > PAGES / 2


@pytest.mark.parametrize("python", [sys.executable, "/usr/bin/python3"])  # Debian's has a jump to malloc of its own
def test_a_preloaded_malloc_is_named(tmp_path: Path, python: str) -> None:
    if not Path(python).exists():
        pytest.skip(f"no {python} here")
    code = tmp_path / "other.c"
    code.write_text(
        "extern void *__libc_malloc(unsigned long);\nvoid *malloc(unsigned long n) { return __libc_malloc(n); }\n"
    )
    library = tmp_path / "libother.so.2"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, code], check=True)
    words = [python, "-c", "from torchzoo.machine import process; print(process.described())"]

    def described(**variables: str) -> str:
        env = {**os.environ, **variables}
        return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True, env=env).stdout

    assert described(LD_PRELOAD=str(library)) == "libother.so.2\n"
    assert described().startswith("glibc ")


#: A step that takes and frees 24 MiB, and fails if it had to get most of it anew.
TAKES_MEMORY = """
    def eval_step(self):
        import resource
        import torch

        if not hasattr(self, "before"):
            self.before = []
        self.before.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
        blocks = [torch.ones(2**18) for _ in range(24)]
        del blocks
        if len(self.before) > 8 and self.before[-1] - self.before[-6] > 5 * 3000:
            raise RuntimeError(f"page faults: {self.before[-6:]}")
        return super().eval_step()
"""


@pytest.mark.slow
@pytest.mark.xdist_group("run")
def test_a_measured_case_keeps_its_memory(tmp_path: Path) -> None:
    make_folder(tmp_path / "zoo", "takes_memory", TINY + TAKES_MEMORY)

    def run(**variables: str) -> str:
        words = ["run", "takes_memory", "--models-dir", str(tmp_path / "zoo"), "-t", "eval", "-d", "cpu"]
        done = subprocess.run(
            [sys.executable, "-m", "torchzoo", *words, "--threads", "1", "--time-limit", "0.3"],
            cwd=ROOT, capture_output=True, text=True, check=False, env={**os.environ, **variables},
        )  # fmt: skip
        return done.stdout + done.stderr

    assert "page faults" not in run()
    assert "page faults" in run(MALLOC_TRIM_THRESHOLD_="131072"), "the step must be able to fail"
