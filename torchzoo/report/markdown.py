"""Markdown that no name or message can break: tables, and the lines that say where a run was made."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import quote

from torchzoo.machine.differences import MachineKind, differences_of_kinds, kernel_packages, machine_kind
from torchzoo.record import Manifest
from torchzoo.report.text import visible

#: What could end a link's address, or the cell that it stands in.
_ENDS_A_LINK = str.maketrans("", "", '()<>|\\"`')


def escape(text: str) -> str:
    """Text as one line that is nothing but text: no HTML, code, link or image, and no end of a table's cell."""
    text = _one_line(text).replace("\\", "\\\\").replace("|", "\\|")
    text = text.replace("`", "\\`").replace("](", "]\\(").replace("][", "]\\[")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return re.sub(r"(?<!\w)@(?=\w)", "@\u200b", text)  # so that GitHub notifies nobody


def code(text: str) -> str:
    """Text as a code span of one line."""
    return f"`{_one_line(text).replace('`', ' ')}`"


def link(text: str, address: str) -> str:
    """A link with that text. An address that is none of the web's stands behind the text."""
    if not address.startswith(("https://", "http://")):
        return escape(f"{text} ({address})")
    return f"[{escape(text)}]({quote(address, safe=string.punctuation.translate(_ENDS_A_LINK))})"


def code_block(lines: Iterable[str], language: str = "sh") -> list[str]:
    """Lines between fences that are longer than any run of backticks in them."""
    shown = [visible(line) for line in lines]
    longest = max((len(ticks) for line in shown for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. Its cells are escaped."""
    lines = [headings, *rows]
    shown = ["| " + " | ".join(escape(cell) for cell in line) + " |" for line in lines]
    return [shown[0], "|" + " --- |" * len(headings), *shown[1:]]


def provenance(manifest: Manifest, *others: Manifest) -> list[str]:
    """Command, date, machine and software of a run, as a list. `others` were made on like machines and software."""
    runs = (manifest, *others)
    return [
        *(f"- command: {code(' '.join(one.command))}" for one in runs),
        f"- date: {escape(', '.join(dict.fromkeys(one.created_at[:10] for one in runs)))}",
        f"- machine: {escape(machines(runs))}",
        software_line(*runs),
    ]


def software_line(manifest: Manifest, *others: Manifest) -> str:
    """The software of runs with their libraries, as a line of a list."""
    environment = manifest.environment
    versions = {**environment.packages, **kernel_packages(environment)}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"- software: {escape(f'{software(manifest, *others)}, {packages}')}"


def provenance_line(manifests: Sequence[Manifest], devices: Iterable[str]) -> str:
    """Devices, versions and dates of runs, as one line. The versions are the first one's."""
    environment = manifests[0].environment
    dates = sorted({manifest.created_at[:10] for manifest in manifests})
    versions = [f"torch {environment.torch}", f"torchzoo {environment.torchzoo}"]
    return " · ".join([*sorted(devices), *versions, *dates])


def machines(manifests: Iterable[Manifest]) -> str:
    """The machines on which runs were made, each once."""
    return "; and ".join(dict.fromkeys(map(machine, manifests)))


def machine(manifest: Manifest) -> str:
    """The processor, its cores and the GPUs on which a run was made."""
    environment = manifest.environment
    counted = Counter(f"{gpu.name} (driver {gpu.driver})" for gpu in environment.gpus)
    gpus = ", ".join(f"{count} x {gpu}" if count > 1 else gpu for gpu, count in counted.items())
    one = f"{environment.cpu}, {environment.cpu_usable} cores; {gpus or 'no GPU'}"
    return f"{one}; {hosts(manifest)}" if manifest.hosts else one


def hosts(manifest: Manifest) -> str:
    """The hosts of a run that was spread over several; where they differ, in what."""
    kinds: dict[MachineKind, list[str]] = {}
    for host in manifest.hosts:
        names = kinds.setdefault(machine_kind(host.environment), [])
        names += [host.name] if host.name not in names else []
    if len(kinds) == 1:
        names = next(iter(kinds.values()))
        return f"{len(names)} such hosts: {', '.join(names)}"
    texts = zip(kinds.values(), differences_of_kinds(list(kinds)), strict=True)
    told = "; ".join(f"{', '.join(names)}: {text}" for names, text in texts)
    return f"hosts of {len(kinds)} kinds, mixed as asked: {told}"


def software(manifest: Manifest, *others: Manifest) -> str:
    """Torchzoo, torch, CUDA and Python of runs, which may be of several versions of torchzoo."""
    environment = manifest.environment
    own = " and ".join(dict.fromkeys(_own_version(one) for one in (manifest, *others)))
    return f"{own}, torch {environment.torch}, CUDA {environment.cuda}, Python {environment.python}"


def _own_version(manifest: Manifest) -> str:
    environment = manifest.environment
    return f"torchzoo {environment.torchzoo} ({environment.torchzoo_commit or 'no checkout'})"
