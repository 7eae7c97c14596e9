"""Change the text of a `metadata.yaml` by fields. Comments and the order of fields stay."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

#: The mark of text that a person must still write. `torchzoo check-model` names the lines that have it.
FILL_IN = "FILL IN"

#: A top-level field, with the comments above it.
_FIELD = re.compile(r"^((?:#.*\n)*)(\w+):", re.MULTILINE)


class _Part(NamedTuple):
    """The comments above a field, its name, and its text up to the next part."""

    comments: str
    name: str
    text: str


def without(text: str, fields: Collection[str]) -> str:
    """The text without these fields and the comments above them."""
    head, parts = _parts(text)
    return head + "".join(part.comments + part.text for part in parts if part.name not in fields)


def with_lines(text: str, lines: Mapping[str, str]) -> str:
    """The text with these lines for the fields.

    Existing fields are replaced in place. New ones come last.
    """
    head, parts = _parts(text)
    new = head + "".join(
        part.comments + (f"{lines[part.name]}\n" if part.name in lines else part.text) for part in parts
    )
    if new and not new.endswith("\n"):
        new += "\n"
    given = {part.name for part in parts}
    return new + "".join(f"{line}\n" for name, line in lines.items() if name not in given)


def to_fill_in(text: str) -> list[int]:
    """The numbers of the lines that have the mark, from 1 on."""
    return [number for number, line in enumerate(text.splitlines(), 1) if FILL_IN in line]


def _parts(text: str) -> tuple[str, list[_Part]]:
    """The text above the first field and its comments, and the fields."""
    begins = list(_FIELD.finditer(text))
    if not begins:
        return text, []
    ends = [found.start() for found in begins[1:]] + [len(text)]
    parts = [_Part(one[1], one[2], text[one.start(2) : end]) for one, end in zip(begins, ends, strict=True)]
    return text[: begins[0].start()], parts
