"""The migration of runs of schema 1: what a run lacks is derived or unknown, and all else stays as it was."""

from __future__ import annotations

import gzip
import json
import runpy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from examples import INDUCTOR, ROOT, compiled, record
from kept_runs import keep
from torchzoo.record import Measured
from torchzoo.store import StoreError, read_run

MAIN = runpy.run_path(str(ROOT / "tools" / "migrate_schema_1.py"))["main"]


def as_schema_1(folder: Path) -> None:
    """Rewrite a run as the oldest torchzoo wrote it, with compressed records."""
    manifest = json.loads((folder / "run.json").read_text())
    manifest["schema_version"] = 1
    for name in ("compiling_max_steps", "compiling_limit_s"):
        del manifest["settings"][name]
    for name in ("malloc", "distributions"):
        del manifest["environment"][name]
    (folder / "run.json").write_text(json.dumps(manifest))
    lines = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for line in lines:
        outcome: dict[str, Any] = line["outcome"]
        del outcome["put_back"], outcome["host"]
        outcome["blocks"] = [block[:2] for block in outcome["blocks"]]
        del outcome["variants"]["candidate"]["compilation"]["breaks"]
    content = b"\n".join([*(json.dumps(line).encode() for line in lines), b"{cut short", b""])
    (folder / "records.jsonl.gz").write_bytes(gzip.compress(content))
    (folder / "records.jsonl").unlink()


def test_a_run_of_schema_1_is_read_after_its_migration(tmp_path: Path) -> None:
    kept = read_run(keep(tmp_path / "run", [record(compiled(), backend=INDUCTOR)]))
    as_schema_1(tmp_path / "run")
    with pytest.raises(StoreError, match="migrate_schema_1"):
        read_run(tmp_path / "run")
    assert MAIN([str(tmp_path)]) == 0
    migrated = read_run(tmp_path / "run")
    assert migrated.damaged_lines == 1
    settings = kept.manifest.settings
    derived = {"compiling_max_steps": settings.warmup_max_steps, "compiling_limit_s": settings.warmup_limit_s}
    assert migrated.manifest == msgspec.structs.replace(
        kept.manifest, settings=msgspec.structs.replace(settings, **derived)
    )
    was, now = kept.records[0].outcome, migrated.records[0].outcome
    assert isinstance(was, Measured)
    assert isinstance(now, Measured)
    counted = now.variants["candidate"].compilation
    assert counted is not None
    assert counted.break_count == 4
    assert {one.place for one in counted.breaks} == {""}
    assert msgspec.structs.replace(now, variants=was.variants) == was
    content = [path.read_bytes() for path in sorted((tmp_path / "run").glob("r*.*"))]
    assert MAIN([str(tmp_path)]) == 0
    assert [path.read_bytes() for path in sorted((tmp_path / "run").glob("r*.*"))] == content
