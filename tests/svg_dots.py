"""What a picture of dots shows, read from its SVG."""

from __future__ import annotations

from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


def texts(picture: ET.Element) -> list[str]:
    return [element.text or "" for element in picture.iter(f"{SVG}text")]


def dots(picture: ET.Element) -> list[tuple[str, float]]:
    """What each dot says where a mouse points to it, and where it stands."""
    found = [(dot.find(f"{SVG}title"), float(dot.attrib["cx"])) for dot in picture.iter(f"{SVG}circle")]
    return [(title.text or "", x) for title, x in found if title is not None]
