"""What the fresh processes of tests are asked to do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torchzoo.backends import NotRunnable
from torchzoo.measure.fresh_turns import Fresh
from torchzoo.settings import Stage


def tells(fresh: Fresh) -> dict[str, Any]:
    return {
        "seconds": (time.monotonic_ns() - fresh.began_ns) / 1e9,
        "case": fresh.ask.case.label(),
        "options": fresh.ask.options,
        "caches": os.environ["TORCHINDUCTOR_CACHE_DIR"],
        "has_torch": "torch" in sys.modules,
        "server_has_torch": "libtorch" in Path(f"/proc/{os.getppid()}/maps").read_text(),
        "cores": sorted(os.sched_getaffinity(0)),
        "is_session_leader": os.getsid(0) == os.getpid(),
    }


def returns_what_is_no_json(_: Fresh) -> object:
    return object()


def raises(fresh: Fresh) -> None:
    fresh.tell(Stage.BUILD)
    raise ValueError("no\nway")


def can_not(fresh: Fresh) -> None:
    raise NotRunnable(f"there is nothing to do for {fresh.ask.case.model}")


def hangs(fresh: Fresh) -> None:
    fresh.tell(Stage.COMPILE)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(fresh.ask.options["pid"]).write_text(str(child.pid))
    time.sleep(600)
