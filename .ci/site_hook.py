"""What MkDocs does not do by itself for our site: links that leave docs/, and folders of results.

- A link to a file of the checkout outside docs/ must exist. On the site it leads to the repository (TORCHZOO_REPO_URL).
  Without one it becomes text that names the file.
- A folder of results that a document links to has a page with what is in it, and how to show it again.
- A page with a wide table has no table of contents beside it.
"""

from __future__ import annotations

import json
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

#: A link, or code (a block or a span), in which nothing is a link.
LINK_OR_CODE = re.compile(
    r"^```.*?^```$|`[^`\n]*`|(?<!\!)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s]+)\)", re.MULTILINE | re.DOTALL
)
WIDE_TABLE = re.compile(r"^\|(?:[^|\n]+\|){7,}$", re.MULTILINE)
log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Files, config: Any) -> Files:
    """Give each folder of kept results a page."""
    from mkdocs.structure.files import File

    docs = Path(config["docs_dir"])
    for folder in result_folders(docs):
        files.append(File.generated(config, f"{folder.relative_to(docs)}/index.md", content=folder_page(folder, docs)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Write the links that MkDocs can't follow."""
    docs = Path(config["docs_dir"])
    if WIDE_TABLE.search(markdown):
        page.meta.setdefault("hide", ["toc"])
    return with_links(markdown, page.file.src_uri, docs, config["extra"]["repository"].rstrip("/"))


def result_folders(docs: Path) -> list[Path]:
    """The folders in docs/results and docs/studies, at any depth."""
    return sorted(path for name in ("results", "studies") for path in (docs / name).rglob("*") if path.is_dir())


def folder_page(folder: Path, docs: Path) -> str:
    """What a folder of results holds, as a page."""
    lines = [f"# {folder.name}", ""]
    manifest = folder / "run.json"
    if manifest.exists():
        lines += about_run(json.loads(manifest.read_text(encoding="utf-8")), f"docs/{folder.relative_to(docs)}")
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir() if not path.name.startswith("."))
    lines += ["## Files", "", *(f"- [{name}]({name.removesuffix('/')})" for name in names)]
    return "\n".join(lines) + "\n"


def about_run(manifest: dict[str, Any], place: str) -> Iterator[str]:
    """When, where and how a run was made, and the commands that show it."""
    environment = manifest["environment"]
    gpus = ", ".join(gpu["name"] for gpu in environment.get("gpus", [])) or "no GPU"
    yield f"The kept records of a run of {len(manifest['cases'])} cases, {manifest['created_at'][:10]}."
    yield ""
    yield f"- machine: {environment.get('cpu')}, {environment.get('cpu_usable')} cores; {gpus}"
    yield f"- software: torchzoo {manifest['torchzoo_version']}, torch {environment.get('torch')}"
    yield f"- command: `{' '.join(manifest['command'])}`"
    yield ""
    yield "In a checkout, these commands show it:"
    yield ""
    yield "```sh"
    yield f"torchzoo report {place}"
    yield f"torchzoo report {place} --format html -o report.html"
    yield "```"
    yield ""


def with_links(markdown: str, source: str, docs: Path, repository: str) -> str:
    """The document with links to folders of docs/ as links to their pages, and links that leave docs/ as said above.

    A link outside docs/ that leads nowhere is a warning, which `mkdocs build --strict` ends with.
    """
    here = posixpath.dirname(source)

    def changed(found: re.Match[str]) -> str:
        target, hash_sign, anchor = (found["target"] or "").partition("#")
        if not target or re.match(r"[a-z]+:|/", target):
            return found[0]
        place = posixpath.normpath(posixpath.join("docs", here, unquote(target)))
        path = docs.parent / place
        if place.startswith("docs/"):
            folder = "/index.md" if path.is_dir() else ""
            return f"[{found['text']}]({target.rstrip('/')}{folder}{hash_sign}{anchor})"
        if place.startswith("..") or not path.exists():
            log.warning("%s links to %s, and there is no such file in the checkout", source, target)
        if repository:
            return f"[{found['text']}]({repository}/blob/main/{place}{hash_sign}{anchor})"
        named = place in found["text"] or Path(place).name == found["text"].strip("`")
        return found["text"] if named else f"{found['text']} (`{place}`)"

    return LINK_OR_CODE.sub(changed, markdown)
