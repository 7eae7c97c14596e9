"""Find dynamobench in a checkout that the user names."""

from __future__ import annotations

import re
from pathlib import Path

from torchzoo.errors import UsageError

#: The environment variable that names a default checkout.
VARIABLE = "TORCHZOO_PYTORCH"

#: The folders that hold dynamobench: in a checkout of pytorch/pytorch, and in one of pytorch/benchmark (a copy).
FOLDERS = ("benchmarks/dynamo", "userbenchmark/dynamo/dynamobench", ".")
FILES = ("torchbench.py", "common.py", "torchbench.yaml")

HOW_TO_GET = (
    "git clone --depth 1 --filter=blob:none --sparse -b {branch} https://github.com/pytorch/pytorch && "
    "git -C pytorch sparse-checkout set benchmarks/dynamo"
)


def dynamobench_folder(checkout: Path | None, torch_version: str) -> Path:
    """The folder of dynamobench in a checkout.

    Args:
        checkout: the folder that the user named, or None.
        torch_version: the installed version of torch, which dynamobench must match.

    Raises:
        UsageError: no checkout was named, or it lacks dynamobench. The message says how to get it.
    """
    release = torch_version.partition("+")[0]
    get = HOW_TO_GET.format(branch=f"v{release}" if re.fullmatch(r"[\d.]+", release) else "main")
    if checkout is None:
        raise UsageError(f"name a checkout of pytorch with --pytorch DIR (or {VARIABLE}=DIR); to get one: {get}")
    for name in FOLDERS:
        folder = (checkout / name).resolve()
        if all((folder / file).is_file() for file in FILES):
            return folder
    raise UsageError(f"{checkout} has no benchmarks/dynamo/torchbench.py; to get a checkout that has it: {get}")
