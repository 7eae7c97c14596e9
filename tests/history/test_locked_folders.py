"""A run, a bisection and a watch lock their folders alike. Each says in one line why it can't have one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from torchzoo.history import nights
from torchzoo.history.culprits import BisectLog
from torchzoo.store import RunStore, StoreError

#: Who enters a folder, what it is called, and what it advises where it can't write.
OWNERS = [
    pytest.param(RunStore, "torchzoo", "name another folder with -o", id="run"),
    pytest.param(BisectLog.opened, "torchzoo", "name another folder with -o", id="bisection"),
    pytest.param(nights.locked, "torchzoo watch", "name another folder", id="watch"),
]


@pytest.mark.parametrize(("enter", "owner", "advice"), OWNERS)
def test_a_folder_is_one_process_s_and_must_be_writable(
    enter: Callable[[Path], AbstractContextManager[Any]], owner: str, advice: str, tmp_path: Path
) -> None:
    folder = tmp_path / "deep" / "folder"
    with enter(folder), pytest.raises(StoreError) as busy, enter(folder):
        pass
    assert str(busy.value) == f"another {owner} is at work on {folder}: wait for it, or name another folder"
    with enter(folder):  # who was refused has not kept the lock
        pass
    (tmp_path / "file").write_text("")
    below = tmp_path / "file" / "folder"
    with pytest.raises(StoreError) as unwritable, enter(below):
        pass
    assert str(unwritable.value) == f"can't write to {below}: Not a directory; {advice}"
