"""docs/how_it_measures.md says what the code does: its pictures, the modules that it names, its numbers."""

from __future__ import annotations

import re
import runpy
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from torchzoo import stats
from torchzoo.analysis.bound import DEVICE_SHARE, HOST_SHARE
from torchzoo.analysis.judge import ASSUMED_SPREAD, ASSUMED_SPREAD_DEVICE_BOUND, LEAST_THRESHOLD, THRESHOLD
from torchzoo.measure.host import SLOW, WAIT_S
from torchzoo.run.windows import PATIENCE_S, READY_PER_LANE
from torchzoo.settings import Settings

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


def test_every_module_and_function_that_the_page_names_is_there() -> None:
    named = re.findall(r"`(torchzoo/[\w/]+\.py)`", PAGE)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).is_file()] == []
    for function, name in re.findall(r"`(\w+)` in\s`(torchzoo/[\w/]+\.py)`", PAGE):
        assert f"def {function}(" in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "words",
    [
        f"more than {SLOW:g} times as long",
        f"waits up to {'two' if WAIT_S == 2 else WAIT_S} seconds until the host is fast",
        f"at least {Settings().min_samples} samples of each variant",
        f"at most {100 * Settings().target_half_width:g}% of the value",
        f"`--time-limit` is over, {Settings().time_limit_s:g} seconds without it",
        f"about {1000 * Settings().block_s:g} ms, or one step",
        f"{Settings().warmup_min_steps} to {Settings().warmup_max_steps} steps after the first one",
        f"up to {Settings().compiling_max_steps} while something is still compiled",
        f"k is chosen for {100 * stats.NOMINAL_CONFIDENCE:g}%",
        f"**device** from {100 * DEVICE_SHARE:g}% on, **host** below {100 * HOST_SHARE:g}%",
        f"Then {100 * ASSUMED_SPREAD_DEVICE_BOUND:g}% is assumed where the device bounds the step and "
        f"{100 * ASSUMED_SPREAD:g}% elsewhere, and the threshold is {100 * THRESHOLD:g}%",
        f"and at least {100 * LEAST_THRESHOLD:g}%",
        f"has waited for {PATIENCE_S:g} seconds",
        f"has {'three' if READY_PER_LANE == 3 else READY_PER_LANE} cases ready",
    ],
)
def test_the_numbers_of_the_page_are_those_of_the_code(words: str) -> None:
    assert words in " ".join(PAGE.split())
