"""Rewrite runs of schema 1 as schema 2, in place: `python tools/migrate_schema_1.py FOLDER ...`.

Each FOLDER is searched for `run.json`; folders that are of schema 2 already stay as they are. A field
that the old run lacks becomes null (not known), unless what the old torchzoo did says its value.
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from torchzoo.errors import attempt
from torchzoo.files import to_json
from torchzoo.record import SCHEMA_VERSION, Manifest, Record, decode_record
from torchzoo.store import COMPRESSED_RECORDS, RECORD_FILES, write_whole


def migrated_manifest(old: dict[str, Any]) -> Manifest:
    """Return the manifest of schema 2 for one of schema 1."""
    settings = old["settings"]
    # Steps that compiled had no limits of their own in the warm-up.
    settings.setdefault("compiling_max_steps", settings["warmup_max_steps"])
    settings.setdefault("compiling_limit_s", settings["warmup_limit_s"])
    if limits := settings.get("limits"):
        limits.setdefault("alone_s", limits["compile_s"])
    return msgspec.convert({**old, "schema_version": SCHEMA_VERSION}, Manifest)


def migrated_record(old: dict[str, Any]) -> Record:
    """Return the record of schema 2 for one of schema 1."""
    for result in old["outcome"].get("variants", {}).values():
        compilation = result.get("compilation") or {}
        if "breaks" not in compilation:  # Dynamo's own counts by reason, without the places
            counts = compilation.get("graph_breaks", {}).items()
            compilation["breaks"] = [{"reason": reason, "place": ""} for reason, count in counts for _ in range(count)]
    return decode_record(to_json(msgspec.convert(old, Record)))


def _migrated_line(line: bytes) -> bytes:
    """A line of records; one that can't be read stays as it is."""
    found = attempt(lambda: migrated_record(json.loads(line)))
    return line if isinstance(found, Exception) else to_json(found)


def migrate(manifest_path: Path) -> bool:
    """Rewrite a folder. Return whether it was of schema 1.

    The manifest is written last, so that a migration that was interrupted can be repeated.
    """
    old = json.loads(manifest_path.read_bytes())
    if old["schema_version"] != 1:
        return False
    for path in (manifest_path.parent / name for name in RECORD_FILES):
        if path.exists():
            is_compressed = path.name == COMPRESSED_RECORDS
            content = path.read_bytes()
            lines = (gzip.decompress(content) if is_compressed else content).split(b"\n")
            content = b"\n".join(_migrated_line(line) if line else line for line in lines)
            write_whole(path, gzip.compress(content, mtime=0) if is_compressed else content)
    write_whole(manifest_path, msgspec.json.format(to_json(migrated_manifest(old)), indent=1) + b"\n")
    return True


def main(folders: list[str]) -> int:
    """Migrate what is in these folders, and say how much that was."""
    found = [path for folder in folders for path in Path(folder).rglob("run.json")]
    count = sum(map(migrate, found))
    print(f"{count} of {len(found)} folders were of schema 1 and are of schema {SCHEMA_VERSION} now")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
