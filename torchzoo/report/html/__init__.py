"""HTML: documents as a part of a page, and pages that open offline.

A page fetches nothing, and no name or message in it can run as code.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from importlib import resources
from typing import TYPE_CHECKING, Any

from torchzoo.report.document import Block, Cell, Column, Document, Heading, Table
from torchzoo.report.text import json_text, visible

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

# --- pages ---


def offline_page(name: str, data: Any, **values: Any) -> str:
    """Return a page with charts as one file, from `NAME.html.j2`, filled with the values, `NAME.js`, which reads
    `data`, and `NAME.css`.
    """
    from markupsafe import Markup

    files = {"theme": "theme.js", "d3": "vendor/d3.min.js", "plot": "vendor/plot.umd.min.js", "page": f"{name}.js"}
    scripts = {script: _asset(file) for script, file in files.items()}
    styles = dict.fromkeys(("page.css", f"{name}.css"))
    return template(f"{name}.html.j2").render(
        policy=_policy(scripts.values()),
        css=Markup("".join(map(_asset, styles))),  # noqa: S704  ours, like the scripts
        scripts={script: Markup(text) for script, text in scripts.items()},  # noqa: S704
        data=Markup(_inert_json(data)),  # noqa: S704  nothing in it can end the element
        licences="\n".join(_asset(f"vendor/LICENSE-{library}") for library in ("plot", "d3")),
        **values,
    )


def template(name: str) -> Template:
    """Return a template of `assets`. Its values are escaped, and have no character that can't be seen."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, finalize=_shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset(name))


def _asset(path: str) -> str:
    return resources.files("torchzoo.report.html").joinpath("assets", path).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """Return the policy by which only these scripts run and nothing is fetched, whatever else gets into the page."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _shown(value: Any) -> Any:
    """A value of the template with texts in which every character can be seen; what is markup stays."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return visible(value, keep="\n") if is_text else value


def _shown_in(data: Any) -> Any:
    if isinstance(data, dict):
        return {_shown_in(key): _shown_in(value) for key, value in data.items()}
    return [_shown_in(value) for value in data] if isinstance(data, list | tuple) else _shown(data)


def _inert_json(data: Any) -> str:
    """JSON that can neither end its script element nor open another, whatever text is in it."""
    text = json_text(_shown_in(data))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


# --- documents ---

_LONG = 60  # characters: the cells of a table with a longer one are wrapped


def render(blocks: Document, opens: Mapping[str, int] | None = None) -> Markup:
    """Return a document as HTML. Its headings are one level deeper than in Markdown.

    A row whose first cell is in `opens` shows the case of that number when it is chosen.
    """
    from markupsafe import Markup

    text = template("blocks.html.j2").render(
        blocks=blocks,
        opens=opens or {},
        labelled=_labelled,
        capital=capital,
        table_class=_table_class,
        cell_class=_cell_class,
    )
    return Markup(text)  # noqa: S704  the template has escaped it


def _labelled(blocks: Document, label: str) -> Iterator[tuple[str, Block, str]]:
    for block in blocks:
        label = block.text if isinstance(block, Heading) else label
        yield type(block).__name__, block, label


def _table_class(table: Table) -> str:
    is_long = any(len(cell.text) > _LONG for row in table.rows for cell in row[1:])
    return " ".join(name for name, is_so in (("totals", table.groups), ("wrap", is_long)) if is_so)


def _cell_class(column: Column, cell: Cell) -> str:
    return " ".join(name for name in ("num" if column.is_number else "", cell.style or "") if name)


def capital(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def digits(value: float | None) -> float | None:
    """Five significant digits: enough for a chart. None for an end of an interval that is infinite."""
    return float(f"{value:.5g}") if value is not None and math.isfinite(value) else None
