"""Pages that open offline: they fetch nothing, and no name or message in them can run as code."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from torchzoo.report.text import json_text, visible

if TYPE_CHECKING:
    from jinja2 import Template


def offline_page(name: str, data: Any, **values: Any) -> str:
    """A page with charts, as one file.

    Args:
        name: of its assets: `NAME.html.j2`, `NAME.js`, and `NAME.css` beside that of all pages.
        data: what the script reads.
        values: what the template is filled with.
    """
    from markupsafe import Markup

    files = {"theme": "theme.js", "d3": "vendor/d3.min.js", "plot": "vendor/plot.umd.min.js", "page": f"{name}.js"}
    scripts = {script: read_asset(file) for script, file in files.items()}
    styles = dict.fromkeys(("page.css", f"{name}.css"))
    return template(f"{name}.html.j2").render(
        policy=_policy(scripts.values()),
        css=Markup("".join(map(read_asset, styles))),  # noqa: S704  ours, like the scripts
        scripts={script: Markup(text) for script, text in scripts.items()},  # noqa: S704
        data=Markup(_inert_json(data)),  # noqa: S704  nothing in it can end the element
        licences="\n".join(read_asset(f"vendor/LICENSE-{library}") for library in ("plot", "d3")),
        **values,
    )


def template(name: str) -> Template:
    """A template of `assets`. Its values are escaped, and have no character that can't be seen."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, finalize=_shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(read_asset(name))


def read_asset(path: str) -> str:
    """A file of `assets`."""
    return resources.files("torchzoo.report.html").joinpath("assets", path).read_text(encoding="utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """A policy by which only these scripts run and nothing is fetched, whatever else gets into the page."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _shown(value: Any) -> Any:
    """A value of the template with texts in which every character can be seen; what is markup stays."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return visible(value, keep="\n") if is_text else value


def _shown_in(data: Any) -> Any:
    """The data with all texts in its dictionaries and lists as `_shown` makes them."""
    if isinstance(data, dict):
        return {_shown_in(key): _shown_in(value) for key, value in data.items()}
    return [_shown_in(value) for value in data] if isinstance(data, list | tuple) else _shown(data)


def _inert_json(data: Any) -> str:
    """JSON that can neither end its script element nor open another, whatever text is in it."""
    text = json_text(_shown_in(data))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
