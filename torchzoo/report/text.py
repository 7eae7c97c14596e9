"""Foreign text made safe to show. Names, reasons and messages come from folders, libraries and files of others.

Records keep such text as it is. Each output makes it safe in one place: the terminal in `terminal.text` and
`terminal.say`, Markdown in `markdown.escape`, the page where its template and its data are filled, CSV and JSON here.
(`torchzoo install` shows text before any library is installed, so this module imports none.)
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

#: A cell that begins with one of these is a formula to a spreadsheet.
_FORMULA = ("=", "+", "-", "@")


def visible(text: str, *, keep: str = "") -> str:
    """The text with all characters that can't be seen as escapes: `\x1b`, `\u202e`, `\n`.

    These are the characters that can move a terminal's cursor, set its title or turn the order of letters round:
    controls, marks of direction, separators of lines, bytes that are no UTF-8. A plain space stays, and so does what is
    in `keep`.
    """

    def shown(found: re.Match[str]) -> str:
        character = found[0]
        stays = character.isprintable() or character in keep
        return character if stays else character.encode("unicode_escape").decode()

    return re.sub(r"[^ -~]", shown, text)


def json_text(value: Any, *, indent: int | None = None) -> str:
    """The value as JSON in ASCII: its texts stay what they are, and no output can misread them."""
    import msgspec

    from torchzoo.files import to_json

    encoded = to_json(value)
    text = (encoded if indent is None else msgspec.json.format(encoded, indent=indent)).decode()
    return re.sub(r"[^ -~\n]", lambda found: json.dumps(found[0])[1:-1], text)


def csv_text(rows: Iterable[Sequence[Any]], *, decimals: int | None = None) -> str:
    """The rows as CSV. No text is a formula to a spreadsheet; None and NaN become empty cells; fractions have so many
    decimals.
    """
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows([_cell(cell, decimals) for cell in row] for row in rows)
    return file.getvalue()


def _cell(value: Any, decimals: int | None) -> Any:
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(_FORMULA) else text
    if isinstance(value, float):
        return "" if math.isnan(value) else value if decimals is None else f"{value:.{decimals}f}"
    return "" if value is None else value
