"""The limits of a container: as many workers and as much memory as it has, not as its host has."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from torchzoo.machine import limits
from torchzoo.run import resources
from torchzoo.settings import Settings

GIB = 2**30


def group(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("text", "limit", "cores"),
    [
        ("800000 100000\n", 8.0, 8),
        ("150000 100000", 1.5, 2),
        ("max 100000", None, 128),
        ("", None, 128),
        ("no", None, 128),
    ],
)
def test_a_quota_of_cpu_time_is_so_many_cores(tmp_path: Path, text: str, limit: float | None, cores: int) -> None:
    group(tmp_path, cpu_max=text)
    assert limits.cpu_limit(tmp_path) == limit
    assert limits.whole_cores(128, tmp_path) == cores
    assert limits.whole_cores(1, tmp_path) == 1


def test_without_a_group_there_is_no_limit(tmp_path: Path) -> None:
    assert limits.cpu_limit(tmp_path / "none") is None
    assert limits.available_bytes(tmp_path / "none") == pytest.approx(psutil.virtual_memory().available, rel=0.2)


def test_memory_is_what_the_limit_leaves(tmp_path: Path) -> None:
    statistics = f"anon {GIB}\nfile {3 * GIB // 4}\ninactive_file {GIB // 4}\n"
    group(tmp_path, memory_max=f"{2 * GIB}\n", memory_current=f"{7 * GIB // 4}\n", memory_stat=statistics)
    assert limits.available_bytes(tmp_path) == GIB // 2
    group(tmp_path, memory_max="max\n")
    assert limits.available_bytes(tmp_path) > GIB // 2


def test_jobs_follow_the_quota(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(limits, "GROUP", group(tmp_path, cpu_max="300000 100000"))
    monkeypatch.setattr(resources, "usable_cores", lambda: tuple(range(128)))
    assert resources.default_jobs(None, on_cpu_only=False) == 3
    assert resources.default_jobs(1, on_cpu_only=True) == 3


def test_compile_threads_do_not_follow_the_number_of_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "usable_cores", lambda: tuple(range(16)))
    short, long = (resources.with_jobs(Settings(), None, ["cuda"], cases) for cases in (1, 100))
    assert (short.jobs, long.jobs) == (1, 16)
    assert short.compile_threads == long.compile_threads == 4
    alone = [resources.with_jobs(Settings(), 1, ["cuda"], cases).compile_threads for cases in (1, 100)]
    assert alone == [None, None]  # --exclusive: PyTorch's own choice
