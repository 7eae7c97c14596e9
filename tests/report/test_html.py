"""The HTML report: one file, nothing fetched, foreign text inert; and in a real browser, that it works."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples import INDUCTOR, measured, record
from kept_runs import SCRIPT, against_eager, everything, keep
from torchzoo import cli
from torchzoo.record import Block

MIB = 2**20


def made(path: Path, *runs: Path) -> str:
    file = path / "report.html"
    assert cli.main(["report", *map(str, runs), "--format", "html", "-o", str(file)]) == 0
    return file.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def page_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("html")
    made(folder, everything(folder / "run"))
    return folder / "report.html"


def data_of(text: str) -> dict[str, Any]:
    (found,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert "<" not in found
    return json.loads(found)


# --- without a browser ---


def test_the_file_asks_for_nothing_from_outside(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    ours = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*(?:src|href)=[\"'](?!data:|#)", text) == []
    assert re.findall(r"url\((?!#)|@import", ours) == []


def test_only_the_pages_own_scripts_may_run(page_file: Path) -> None:
    text = page_file.read_text(encoding="utf-8")
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    policy = html.unescape(policy)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == 4
    for script in scripts:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy


def test_all_samples_are_there_until_they_are_too_many_and_then_it_is_said(tmp_path: Path) -> None:
    many = measured(blocks=tuple(Block("eager", (0.001 + 1e-6 * n,) * 100) for n in range(100)))
    run = keep(tmp_path / "run", [record(against_eager(2.0), backend=INDUCTOR), record(many, model="many")])
    few, thinned = (case["samples"] for case in data_of(made(tmp_path, run))["cases"])
    assert few["candidate"]["of"] == len(few["candidate"]["ms"]) == 16
    assert few["candidate"]["ms"][0] == 100.0
    assert thinned["eager"]["of"] == 10_000
    assert len(thinned["eager"]["ms"]) == 2000
    assert (thinned["eager"]["ms"][0], thinned["eager"]["ms"][-1]) == (1.0, 1.099)
    assert thinned["eager"]["quartiles"][2] == pytest.approx(1.0495)


@pytest.mark.slow
def test_370_cases_with_thousands_of_samples_each_stay_under_5_mb(tmp_path: Path) -> None:
    blocks = tuple(
        Block(name, tuple(0.0123456 + 1e-7 * (n + k) for k in range(20)))
        for n in range(30)
        for name in ("eager", "candidate", "candidate", "eager")
    )
    outcome = against_eager(1.5, blocks=blocks)
    run = keep(tmp_path / "run", [record(outcome, backend=INDUCTOR, model=f"model_{n}") for n in range(370)])
    text = made(tmp_path, run)
    assert data_of(text)["cases"][0]["samples"]["eager"]["of"] == 1200
    assert len(text.encode()) < 5 * MIB


# --- in Chromium ---


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return os.environ.get("TORCHZOO_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


class Opened:
    """A page in the browser, with its complaints and its requests."""

    def __init__(self, context: Any, file: Path) -> None:
        self.page = context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())

    def column(self, heading: str) -> list[str]:
        """The visible cells of a column of the table of cases."""
        index = self.headings().index(heading)
        script = f"rows => rows.map(row => row.cells[{index}].textContent.trim())"
        return list(self.page.eval_on_selector_all("#table tbody tr:not([hidden])", script))

    def headings(self) -> list[str]:
        return [text.strip() for text in self.page.locator("#table thead th").all_inner_texts()]

    def heading(self, name: str) -> Any:
        return self.page.locator("#table thead th").nth(self.headings().index(name))

    def wait_for_count(self, cases: int) -> None:
        """Until the page says that it shows that many; `wait_for_function` needs `eval`, which the page forbids."""
        self.page.locator("#count").get_by_text(re.compile(rf"^{cases} of ")).wait_for(timeout=5000)

    def overflow(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    executable = find_chromium()
    if executable is None:
        pytest.skip("no Chromium here; name one with TORCHZOO_CHROMIUM")
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        pytest.skip("the address space is limited (ulimit -v), and Chromium reserves more")
    with sync_api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        opened = playwright.chromium.launch(executable_path=executable, args=arguments)
        yield opened
        opened.close()


@pytest.fixture
def opened(browser: Any, page_file: Path) -> Iterator[Opened]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield Opened(context, page_file)
    context.close()


pytestmark = pytest.mark.xdist_group("browser")


def numbers(cells: list[str]) -> list[float]:
    return [float(cell.split("x")[0]) for cell in cells if cell]


def test_it_loads_without_complaint_or_request_and_draws_every_chart(opened: Opened, page_file: Path) -> None:
    charts = opened.page.locator("[data-chart]")
    assert {chart.get_attribute("data-chart") for chart in charts.all()} == {
        "totals",
        "ratios",
        "breakdown",
        "devices",
        "memory",
        "compile",
    }
    for chart in charts.all():
        assert chart.locator("svg[role=img]").count() >= 1
        assert chart.locator("svg[role=img]").first.get_attribute("aria-label")
        assert chart.locator("svg rect, svg circle").count() > 3
    assert opened.complaints == []
    assert opened.requests == [page_file.as_uri()]
    assert opened.page.evaluate("window.harmed") is None


def test_a_heading_sorts_numbers_as_numbers_and_leaves_the_empty_last(opened: Opened) -> None:
    heading = opened.heading("Speedup")
    for direction, is_descending in (("ascending", False), ("descending", True)):
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == direction
        cells = opened.column("Speedup")
        found = numbers(cells)
        assert found == sorted(found, reverse=is_descending)
        assert len(set(found)) > 5
        assert "" not in cells[: len(found)]
    opened.heading("Model").locator("button").click()
    assert heading.get_attribute("aria-sort") == "none"


def test_the_keyboard_sorts_opens_and_closes(opened: Opened) -> None:
    button = opened.heading("Eager").locator("button")
    button.focus()
    opened.page.keyboard.press("Enter")
    assert opened.heading("Eager").get_attribute("aria-sort") == "ascending"
    opened.page.keyboard.press("Space")
    assert opened.heading("Eager").get_attribute("aria-sort") == "descending"
    assert "descending" in opened.page.locator("#announcement").inner_text()
    opened.page.keyboard.press("Tab")
    assert (
        opened.page.evaluate("document.activeElement.textContent.trim()")
        == opened.headings()[opened.headings().index("Eager") + 1]
    )
    opened.page.locator("#table tbody button").first.focus()
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("dialog[open]").count() == 1
    opened.page.keyboard.press("Escape")
    assert opened.page.locator("dialog[open]").count() == 0


def test_filters_narrow_the_table_and_the_charts_and_clear_again(opened: Opened) -> None:
    every = len(opened.column("Model"))
    marks = opened.page.locator("[data-chart=ratios] svg rect").count()
    opened.page.get_by_label("Mode").first.select_option("train")
    assert set(opened.column("Mode")) == {"train"}
    opened.page.get_by_placeholder("Search").fill("model_01 inductor")
    opened.wait_for_count(2)
    assert set(opened.column("Model")) == {"model_01"}
    assert set(opened.column("Backend")) == {"inductor"}
    assert opened.page.locator("[data-chart=ratios] svg rect").count() < marks
    opened.page.get_by_role("button", name="Clear").click()
    opened.wait_for_count(every)
    assert len(opened.column("Model")) == every
    opened.page.get_by_placeholder("Search").fill("no such model")
    opened.wait_for_count(0)
    assert opened.column("Model") == []
    assert opened.complaints == []


def test_outcomes_can_be_filtered_and_foreign_names_are_shown_as_they_are(opened: Opened) -> None:
    outcome = opened.page.get_by_label("Outcome").first
    for value, model in (("failed", "fails"), ("incorrect", "wrong"), ("skipped", "skips")):
        outcome.select_option(value)
        assert opened.column("Model") == [model]
    outcome.select_option("")
    assert SCRIPT in opened.column("Model")
    opened.page.get_by_role("button", name=SCRIPT, exact=True).first.click()
    assert SCRIPT in opened.page.locator("#case-title").inner_text()
    assert opened.page.evaluate("window.harmed") is None


def test_a_case_shows_its_command_figures_and_distribution(opened: Opened) -> None:
    opened.page.get_by_label("Backend").first.select_option("inductor")
    opened.page.locator("#table tbody tr:not([hidden]) button").first.click()
    dialog = opened.page.locator("dialog[open]")
    assert "python run.py model_00 -d cpu -t train --backend inductor --bs 4" in dialog.inner_text()
    assert "latency of a step" in dialog.inner_text()
    assert dialog.locator("svg[role=img]").count() == 2
    assert dialog.locator("svg circle").count() == 2 * (16 + 16)  # every step, in each of two charts
    assert dialog.locator("table").last.locator("tbody tr").count() == 2
    dialog.get_by_role("button", name="Close").click()
    assert opened.page.locator("dialog[open]").count() == 0


def test_a_table_stands_behind_each_chart(opened: Opened) -> None:
    for section in opened.page.locator("section.figure").all():
        section.locator("details.data summary").click()
        section.locator("details.data tbody tr").first.wait_for(timeout=2000)
    table = opened.page.locator("#breakdown details.data")
    assert table.locator("thead th").all_inner_texts() == ["Case", "active", "data movement", "idle"]
    shares = [float(text.rstrip("%")) for text in table.locator("tbody tr").first.locator("td").all_inner_texts()]
    assert sum(shares) == pytest.approx(100, abs=0.2)


def luminance(color: str) -> float:
    """WCAG 2.2's relative luminance of `rgb(r, g, b)`."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", color)[:3]]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrasts(opened: Opened) -> dict[str, float]:
    """WCAG contrast of texts with the first opaque background behind them."""
    script = """element => {
        let behind = element;
        const isClear = (color) => color === "rgba(0, 0, 0, 0)" || color === "transparent";
        while (behind.parentElement && isClear(getComputedStyle(behind).backgroundColor)) behind = behind.parentElement;
        return [getComputedStyle(element).color, getComputedStyle(behind).backgroundColor];
    }"""
    found = {}
    selectors = ("h1", ".muted", ".card .muted", "nav a", "#table td", "#table button.link", "#table thead button")
    for selector in (*selectors, ".badge.passed", ".badge.failed", ".badge.skipped", "#count", ".note"):
        light, dark = opened.page.locator(selector).first.evaluate(script)
        high, low = sorted((luminance(light), luminance(dark)), reverse=True)
        found[selector] = (high + 0.05) / (low + 0.05)
    return found


def test_dark_follows_the_system_the_button_and_both_have_contrast(browser: Any, page_file: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Opened(context, page_file)

    def background() -> float:
        return luminance(str(page.page.evaluate("getComputedStyle(document.body).backgroundColor")))

    assert background() < 0.02
    assert {name: ratio for name, ratio in contrasts(page).items() if ratio < 4.5} == {}
    page.page.get_by_role("button", name="Switch between light and dark").click()
    assert background() > 0.9
    assert {name: ratio for name, ratio in contrasts(page).items() if ratio < 4.5} == {}
    page.page.reload()
    assert background() > 0.9  # kept
    context.close()
    context = browser.new_context(color_scheme="light")
    page = Opened(context, page_file)
    assert background() > 0.9
    page.page.emulate_media(color_scheme="dark")
    deadline = time.monotonic() + 5  # the page hears of it a little later
    while background() >= 0.02 and time.monotonic() < deadline:
        page.page.wait_for_timeout(20)
    assert background() < 0.02
    assert page.complaints == []
    context.close()


@pytest.mark.parametrize("width", [320, 390, 768])
def test_on_a_phone_the_page_does_not_scroll_sideways(browser: Any, page_file: Path, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, has_touch=True)
    page = Opened(context, page_file)
    assert page.overflow() <= 0
    for details in page.page.locator("details > summary").all():
        details.click()
    assert page.overflow() <= 0
    page.page.locator("#table tbody button").first.click()
    dialog = page.page.locator("dialog[open]")
    assert dialog.evaluate("d => d.scrollWidth - d.clientWidth") <= 0
    assert page.complaints == []
    context.close()


def test_it_prints_in_black_on_white_with_every_row(browser: Any, page_file: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = Opened(context, page_file)
    page.page.emulate_media(media="print")
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.page.locator("#filters").is_visible()
    box = page.page.locator("#cases .scroll")
    assert box.evaluate("box => box.scrollHeight - box.clientHeight") <= 1
    assert page.page.pdf()[:4] == b"%PDF"
    context.close()


def test_less_motion_is_obeyed(browser: Any, page_file: Path) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = Opened(context, page_file)
    assert page.page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    context.close()


def test_every_control_has_a_name_and_the_page_a_language_and_one_main_heading(opened: Opened) -> None:
    nameless = opened.page.evaluate("""[...document.querySelectorAll("button, select, input, a")]
        .filter(e => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.[0]?.textContent.trim()))
        .map(e => e.outerHTML)""")
    assert nameless == []
    assert opened.page.locator("html").get_attribute("lang") == "en"
    assert opened.page.locator("h1").count() == 1
    assert opened.page.locator("main").count() == 1


def test_without_scripts_the_tables_are_still_there(browser: Any, page_file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("#table tbody tr").count() > 50
    assert page.get_by_text("Charts need JavaScript").count() > 0
    assert page.locator("table.totals").first.is_visible()
    context.close()
