"""Documents as Markdown that no name or message can break, and the lines that say where a run was made."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import quote

import msgspec

from torchzoo.machine.differences import MachineKind, differences_of_kinds, kernel_packages, machine_kind
from torchzoo.record import Manifest
from torchzoo.report.document import Block, Code, Document, Fold, Heading, Items, Marked, Picture, Table, Text
from torchzoo.report.text import visible

#: What could end a link's address, or the cell that it stands in.
_ENDS_A_LINK = str.maketrans("", "", '()<>|\\"`')
#: Characters: GitHub takes 65,536 in an issue or a comment.
FITS_GITHUB = 60_000


def render(blocks: Document, *, longest: int | None = None) -> str:
    """A document in Markdown. Rows of folded tables are left out where there are more characters than `longest`."""
    text = "\n".join(_lines(blocks)) + "\n"
    folded = (one for fold in blocks if isinstance(fold, Fold) for one in fold.blocks if isinstance(one, Table))
    most_rows = max((len(one.rows) for one in folded), default=0)
    while longest is not None and len(text) > longest and most_rows:
        most_rows = min(most_rows - 1, most_rows * longest // len(text))
        text = "\n".join(_lines([_cut(one, most_rows) for one in blocks])) + "\n"
    return text


def _cut(block: Block, most_rows: int, *, is_folded: bool = False) -> Block:
    """The block; of a table in a fold, at most so many rows and a note on how many are left out."""
    if isinstance(block, Fold):
        blocks = tuple(_cut(one, most_rows, is_folded=True) for one in block.blocks)
        return msgspec.structs.replace(block, blocks=blocks)
    if not is_folded or not isinstance(block, Table) or len(block.rows) <= most_rows:
        return block
    note = f"{len(block.rows) - most_rows} more rows are left out: GitHub does not take a longer text."
    return msgspec.structs.replace(block, rows=block.rows[:most_rows], notes=(*block.notes, note))


def _lines(blocks: Document) -> list[str]:
    return [line for block in blocks for line in ("", *_lines_of(block))][1:]


def _lines_of(block: Block) -> list[str]:
    match block:
        case Heading():
            return [f"{'#' * block.level} {_inline(block.text)}"]
        case Text():
            return [_inline(block.text)]
        case Items():
            return [f"- {_inline(text)}" for text in block.texts]
        case Table():
            rows = [[cell.text for cell in row] for row in block.rows]
            lines = table([column.heading for column in block.columns], rows)
            return [*lines, *(line for note in block.notes for line in ("", _inline(note)))]
        case Code():
            return code_block(block.lines, block.language)
        case Picture():
            return [f"![{escape(block.text)}]({block.path})"]
        case Fold(label=""):
            return _lines(block.blocks)
        case Fold():
            summary = f"<summary>{escape(block.label)}</summary>"
            return ["<details>", summary, "", *_lines(block.blocks), "", "</details>"]


def _inline(text: str) -> str:
    return text if isinstance(text, Marked) else escape(text)


def escape(text: str) -> Marked:
    """Text as one line that is nothing but text: no HTML, code, link or image, and no end of a table's cell."""
    text = _one_line(text).replace("\\", "\\\\").replace("|", "\\|")
    text = text.replace("`", "\\`").replace("](", "]\\(").replace("][", "]\\[")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return Marked(re.sub(r"(?<!\w)@(?=\w)", "@\u200b", text))  # so that GitHub notifies nobody


def code(text: str) -> Marked:
    """Text as a code span of one line."""
    return Marked(f"`{_one_line(text).replace('`', ' ')}`")


def link(text: str, address: str) -> Marked:
    """A link with that text. An address that is not of the web stands behind the text."""
    if not address.startswith(("https://", "http://")):
        return escape(f"{text} ({address})")
    return Marked(f"[{escape(text)}]({quote(address, safe=string.punctuation.translate(_ENDS_A_LINK))})")


def code_block(lines: Iterable[str], language: str = "sh") -> list[str]:
    """Lines between fences that are longer than any run of backticks in them."""
    shown = [visible(line) for line in lines]
    longest = max((len(ticks) for line in shown for ticks in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}{language}", *shown, fence]


def _one_line(text: str) -> str:
    return visible(" ".join(text.split()))


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a table. Its cells are escaped, unless they are Markdown already."""
    shown = ["| " + " | ".join(map(_inline, line)) + " |" for line in (headings, *rows)]
    return [shown[0], "|" + " --- |" * len(headings), *shown[1:]]


def provenance(manifest: Manifest, *others: Manifest) -> Items:
    """Command, date, machine and software of a run. `others` were made on like machines and software."""
    runs = (manifest, *others)
    dates = ", ".join(dict.fromkeys(one.created_at[:10] for one in runs))
    commands = (Marked(f"command: {code(' '.join(one.command))}") for one in runs)
    return Items((*commands, f"date: {dates}", f"machine: {machines(runs)}", software_line(*runs)))


def software_line(manifest: Manifest, *others: Manifest) -> str:
    """`software: torchzoo ..., torch ..., timm ...`: the software of runs with their libraries."""
    environment = manifest.environment
    versions = {**environment.packages, **kernel_packages(environment)}
    packages = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"software: {software(manifest, *others)}, {packages}"


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
    environments = [one.environment for one in (manifest, *others)]
    own = (f"torchzoo {one.torchzoo} ({one.torchzoo_commit or 'no checkout'})" for one in environments)
    first = environments[0]
    return f"{' and '.join(dict.fromkeys(own))}, torch {first.torch}, CUDA {first.cuda}, Python {first.python}"
