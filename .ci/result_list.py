"""Write the list of results in docs/results/index.md: the documents there and of the studies, from their titles."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path

INDEX = "results/index.md"
#: The list is what comes after this line.
MARK = "<!-- written by `python .ci/result_list.py` -->\n"
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)


def with_list(index: str, docs: Path) -> str:
    """The page with the list as it should be."""
    return index.partition(MARK)[0] + MARK + "\n" + "".join(f"{line}\n" for line in result_list(docs))


def result_list(docs: Path) -> Iterator[str]:
    """A line for each document of docs/results and docs/studies: its title, the newest first."""
    for name in ("results", "studies"):
        for path in sorted((docs / name).glob("*.md"), reverse=True):
            if path.name != "index.md":
                found = TITLE.search(path.read_text(encoding="utf-8"))
                title, date = found[1].rstrip(".") if found else path.stem, path.name[:10]
                dated = title if date in title or not date.startswith("20") else f"{title}, {date}"
                yield f"- [{dated}]({posixpath.relpath(f'{name}/{path.name}', 'results')})"


if __name__ == "__main__":
    docs = Path(__file__).parents[1] / "docs"
    page = docs / INDEX
    page.write_text(with_list(page.read_text(encoding="utf-8"), docs), encoding="utf-8")
