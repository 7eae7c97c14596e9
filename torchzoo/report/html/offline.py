"""What makes a page that opens offline: it fetches nothing, and no name or message in it can run as code."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from importlib import resources
from typing import TYPE_CHECKING, Any

from torchzoo.report.text import json_text, visible

if TYPE_CHECKING:
    from jinja2 import Template


def template(name: str) -> Template:
    """A template of `assets`. What it is filled with is escaped, and has no character that can't be seen."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(
        autoescape=True, finalize=_shown, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(read_asset(name))


def read_asset(*parts: str) -> str:
    """A file of `assets`."""
    return resources.files("torchzoo.report.html").joinpath("assets", *parts).read_text(encoding="utf-8")


def policy(scripts: Iterable[str]) -> str:
    """A policy by which only these scripts run and nothing is fetched, whatever else gets into the page."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"


def _shown(value: Any) -> Any:
    """A value of the template with texts in which every character can be seen; what is markup stays."""
    is_text = isinstance(value, str) and not hasattr(value, "__html__")
    return visible(value, keep="\n") if is_text else value


def _shown_in(data: Any) -> Any:
    """The same for all texts in dictionaries and lists."""
    if isinstance(data, dict):
        return {_shown_in(key): _shown_in(value) for key, value in data.items()}
    return [_shown_in(value) for value in data] if isinstance(data, list | tuple) else _shown(data)


def inert_json(data: Any) -> str:
    """JSON that can neither end its script element nor open another, whatever text is in it."""
    text = json_text(_shown_in(data))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
