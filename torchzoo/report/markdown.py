"""Markdown that no name or message can break: tables, and the lines that say where a run was made."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from torchzoo.record import Manifest


def escape(text: str) -> str:
    """Text that can't break out of a Markdown table's cell."""
    text = " ".join(text.split()).replace("\\", "\\\\").replace("|", "\\|")
    text = text.replace("`", "\\`").replace("](", "]\\(")  # no code, no links, no images
    text = re.sub(r"(?<!\w)@(?=\w)", "@\u200b", text)  # so that GitHub notifies nobody
    return text.replace("<", "&lt;").replace(">", "&gt;")


def code(text: str) -> str:
    """Text as a code span of one line."""
    return f"`{' '.join(text.split()).replace('`', ' ')}`"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. Its cells are escaped."""
    lines = [headings, *rows]
    shown = ["| " + " | ".join(escape(cell) for cell in line) + " |" for line in lines]
    return [shown[0], "|" + " --- |" * len(headings), *shown[1:]]


def provenance(manifest: Manifest, *others: Manifest) -> list[str]:
    """Command, date, machine and software of a run, as a list. `others` were made on the same machine and software."""
    packages = ", ".join(f"{name} {version}" for name, version in manifest.environment.get("packages", {}).items())
    runs = (manifest, *others)
    return [
        *(f"- command: {code(' '.join(one.command))}" for one in runs),
        f"- date: {', '.join(dict.fromkeys(one.created_at[:10] for one in runs))}",
        f"- machine: {machine(manifest)}",
        f"- software: {software(manifest)}, {packages}",
    ]


def machine(manifest: Manifest) -> str:
    """The processor, its cores and the GPUs on which a run was made."""
    environment = manifest.environment
    gpus = ", ".join(f"{gpu['name']} (driver {gpu['driver']})" for gpu in environment.get("gpus", []))
    return f"{environment.get('cpu')}, {environment.get('cpu_usable')} cores; {gpus or 'no GPU'}"


def software(manifest: Manifest) -> str:
    """Torchzoo, torch, CUDA and Python of a run."""
    environment = manifest.environment
    return (
        f"torchzoo {environment.get('torchzoo')} ({environment.get('torchzoo_commit') or 'no checkout'}), "
        f"torch {environment.get('torch')}, CUDA {environment.get('cuda')}, Python {environment.get('python')}"
    )
