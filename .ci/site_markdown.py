"""Markdown as GitHub reads it: a list may follow a paragraph without an empty line between them, as in docstrings."""

from __future__ import annotations

import re
from typing import Any

from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor

LIST_ITEM = re.compile(r" *(?:[-*]|\d+\.) \S")
CODE_IS_STASHED = 20  # the order of Markdown's preprocessors: SuperFences has 25


class ListsAfterText(Preprocessor):
    """Puts an empty line between a paragraph and a list, which Python-Markdown needs. Code is stashed before."""

    def run(self, lines: list[str]) -> list[str]:
        found: list[str] = []
        for line in lines:
            item = LIST_ITEM.match(line)
            above = found[-1] if found else ""
            if item and above.strip() and not LIST_ITEM.match(above) and _indent(above) == _indent(line):
                found.append("")
            found.append(line)
        return found


class LikeGitHub(Extension):
    """What makes Python-Markdown read our documents as GitHub does."""

    def extendMarkdown(self, md: Any) -> None:  # noqa: N802
        md.preprocessors.register(ListsAfterText(md), "lists_after_text", CODE_IS_STASHED)


def on_config(config: Any) -> Any:
    """MkDocs calls this hook with its settings."""
    config["markdown_extensions"].append(LikeGitHub())
    return config


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
