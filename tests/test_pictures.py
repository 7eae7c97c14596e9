"""The pictures of the documents: drawn by tools/pictures.py, readable in light and dark, and used."""

from __future__ import annotations

import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PICTURES = runpy.run_path(str(ROOT / "tools" / "pictures.py"))["PICTURES"]
PAGE = (ROOT / "docs" / "how_it_measures.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_what_the_script_and_the_rules_in_it_draw(name: str) -> None:
    drawn = PICTURES[name]().svg()
    assert (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8") == drawn, "run tools/pictures.py"


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_a_title_and_colours_for_light_and_dark(name: str) -> None:
    root = ET.fromstring(PICTURES[name]().svg())
    svg = "{http://www.w3.org/2000/svg}"
    assert root.findtext(f"{svg}title")
    light, dark = (root.findtext(f"{svg}style") or "").split("@media (prefers-color-scheme:dark)")
    kinds = {kind for part in root.iter() for kind in part.get("class", "").split()} - {"small", "bold"}
    for kind in kinds:
        assert f".{kind}{{" in light
        assert f".{kind}{{" in dark


def test_every_picture_stands_in_the_page() -> None:
    assert [name for name in PICTURES if f"(pictures/{name}.svg)" not in PAGE] == []
