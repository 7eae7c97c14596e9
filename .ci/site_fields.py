"""The comment behind a field, or the `#:` comment above it, as the field's text in the Python reference."""

from __future__ import annotations

import ast
from typing import Any

from griffe import Attribute, Docstring, Extension, ObjectNode


def comment_of(lines: list[str], first: int, last: int) -> str:
    """What the source says of the field in these lines (counted from 1); empty if it says nothing."""
    above: list[str] = []
    for line in reversed(lines[: first - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip().removeprefix("#:").strip())
    behind = lines[last - 1].partition("  # ")[2].partition("  # noqa")[0]
    text = " ".join([*above, "" if behind.startswith("noqa") else behind]).strip()
    return f"{text[0].upper()}{text[1:]}" if text else ""


class CommentsOfFields(Extension):
    """Griffe calls it for each attribute that it reads."""

    def on_attribute_instance(self, *, node: ast.AST | ObjectNode, attr: Attribute, agent: Any, **kwargs: Any) -> None:
        """Give the attribute its comment, if it has no text yet."""
        if attr.docstring is None and attr.lineno is not None and attr.endlineno is not None:
            text = comment_of(agent.code.splitlines(), attr.lineno, attr.endlineno)
            if text:
                attr.docstring = Docstring(text, lineno=attr.lineno, endlineno=attr.endlineno, parent=attr)
