"""The pictures of docs/how_it_measures.md, as SVG files that can be read in light and in dark.

    python tools/pictures.py            # writes docs/pictures/*.svg

Where a picture shows what a rule does (the interval, the stopping rule), the rule itself is called on made-up samples.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path

from torchzoo import stats
from torchzoo.measure.host import SLOW
from torchzoo.measure.latency import stop_reason
from torchzoo.settings import Settings

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "pictures"
WIDTH = 760

#: The card has a colour of its own, so that it can be read on any page. Classes: fill of a box, stroke of a line.
STYLE = """
.card{fill:#ffffff;stroke:#d0d7de}.text{fill:#1f2328}.faint{fill:#59636e}.rule{stroke:#8c959f}
.a{fill:#0969da}.b{fill:#bc4c00}.go{fill:#1a7f37}.prepare{fill:#8ec6ff}.wait{fill:#e6eaef}.stop{fill:#d1242f}
.on{fill:#ffffff}.held{fill:#8c959f}.sa{stroke:#0969da}.sb{stroke:#bc4c00}.sstop{stroke:#d1242f}
text{font:13px system-ui,sans-serif}.small{font-size:12px}.bold{font-weight:600}
@media (prefers-color-scheme:dark){
.card{fill:#0d1117;stroke:#3d444d}.text{fill:#f0f6fc}.faint{fill:#9198a1}.rule{stroke:#656c76}
.a{fill:#4493f8}.b{fill:#f0883e}.go{fill:#3fb950}.prepare{fill:#1f4f8f}.wait{fill:#2a313c}.stop{fill:#f85149}
.on{fill:#0d1117}.held{fill:#656c76}.sa{stroke:#4493f8}.sb{stroke:#f0883e}.sstop{stroke:#f85149}
}
""".strip().replace("\n", "")


class Drawing:
    """Boxes, lines, dots and words on a card."""

    def __init__(self, title: str, height: float) -> None:
        self.title = title
        self.height = height
        self.parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="2"/>'
        )

    def text(self, x: float, y: float, words: str, kind: str = "text", anchor: str = "start") -> None:
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>')

    def line(
        self, points: Sequence[tuple[float, float]], kind: str = "rule", dashes: str = "", width: float = 1
    ) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(
            f'<polyline class="{kind}" points="{path}" fill="none" stroke-width="{width:g}" '
            f'stroke-dasharray="{dashes}"/>'
        )

    def dot(self, x: float, y: float, kind: str, radius: float = 3.5) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def legend(self, y: float, entries: Sequence[tuple[str, str]], x: float = 24) -> None:
        for kind, words in entries:
            self.box(x, y - 10, 12, 12, kind)
            self.text(x + 18, y, words, "text small")
            x += 34 + 6.6 * len(words)

    def svg(self) -> str:
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" role="img" '
            f'aria-label="{escape(self.title)}"><title>{escape(self.title)}</title><style>{STYLE}</style>'
        )
        card = f'<rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{self.height - 1:g}" rx="8"/>'
        return "\n".join([head, card, *self.parts, "</svg>"]) + "\n"


def windows() -> Drawing:
    """Two lanes in one epoch."""
    drawing = Drawing("Two GPUs in one epoch: cases are measured while all others are stopped", 330)
    rows = {
        "GPU 0, case 1": "prepare 0 24, wait 24 34, go 34 48, stop 48 66, wait 66 66, examine 66 78",
        "GPU 0, case 2": "prepare 0 34, stop 34 48, go 48 60, stop 60 66, examine 66 82",
        "GPU 0, case 3": "prepare 4 34, stop 34 66, prepare 66 98",
        "GPU 1, case 4": "prepare 0 20, wait 20 34, go 34 52, stop 52 66, examine 66 74",
        "GPU 1, case 5": "prepare 2 30, wait 30 34, stop 34 52, go 52 66, examine 66 84",
        "GPU 1, case 6": "prepare 8 34, stop 34 66, prepare 66 98",
    }
    kinds = {"prepare": "prepare", "wait": "wait", "go": "go", "stop": "held", "examine": "b"}

    def at(time: float) -> float:
        return 130 + 6.1 * time

    for number, (name, spans) in enumerate(rows.items()):
        y = 62 + 34 * number + (12 if number > 2 else 0)
        drawing.text(24, y + 16, name, "text small")
        for span in spans.split(", "):
            kind, begin, end = span.split()
            drawing.box(at(float(begin)), y, at(float(end)) - at(float(begin)), 22, kinds[kind])
    for time in (34, 66):
        drawing.line([(at(time), 46), (at(time), 284)], dashes="4 3")
    drawing.text(at(50), 40, "an epoch", "text bold", "middle")
    drawing.text(at(17), 40, "cases prepare together", "faint small", "middle")
    drawing.text(at(83), 40, "and go on", "faint small", "middle")
    drawing.legend(
        310,
        [
            ("prepare", "builds, warms up, compiles"),
            ("wait", "is ready"),
            ("go", "is measured: its window"),
            ("held", "is stopped"),
            ("b", "is examined"),
        ],
    )
    return drawing


def turns() -> Drawing:
    """The same drift seen by A B B A and by A A B B."""
    drawing = Drawing("Eager (A) and candidate (B) in turns A B B A: a steady drift meets both alike", 300)
    alone = {"A": 10.0, "B": 8.0}
    for number, order in enumerate(("ABBA", "AABB")):
        left = 40 + 370 * number
        times = [alone[name] + 0.4 * index for index, name in enumerate(order)]
        for index, (name, time) in enumerate(zip(order, times, strict=True)):
            x, height = left + 72 * index, 14 * time
            drawing.box(x, 232 - height, 58, height, name.lower())
            drawing.text(x + 29, 252, f"{name} {time:.1f} ms", "text small", "middle")
        drawing.line([(left, 232), (left + 300, 232)])
        ratio = sum(time for time, name in zip(times, order, strict=True) if name == "A")
        ratio /= sum(time for time, name in zip(times, order, strict=True) if name == "B")
        words = f"{' '.join(order)}: speedup {ratio:.3f}"
        drawing.text(left + 144, 40, words, "text bold", "middle")
        same = "A and B meet the same drift, 0.6 ms on average" if number == 0 else "B comes later and looks slower"
        drawing.text(left + 144, 60, same, "faint small", "middle")
    middle = (alone["A"] + 0.6) / (alone["B"] + 0.6)
    words = "A takes 10 ms and B 8 ms, and both grow by 0.4 ms a block. "
    words += f"At the middle of the quad the ratio is {middle:.3f}."
    drawing.text(WIDTH / 2, 282, words, "faint small", "middle")
    return drawing


def interval() -> Drawing:
    """The interval of a median, from the code that makes it."""
    source = random.Random(7)  # noqa: S311  made-up samples
    values = sorted(10 * (1 + abs(source.gauss(0, 0.02))) for _ in range(41))
    estimate = stats.median_estimate(values)
    drawing = Drawing("The median of the blocks' times, and its interval from order statistics", 190)
    low, high = values[0], values[-1]

    def at(value: float) -> float:
        return 40 + (value - low) / (high - low) * (WIDTH - 80)

    drawing.line([(40, 110), (WIDTH - 40, 110)])
    drawing.box(at(estimate.low), 92, at(estimate.high) - at(estimate.low), 36, "prepare")
    for index, value in enumerate(values):
        drawing.dot(at(value), 110 + (6 if index % 2 else -6), "a")
    drawing.line([(at(estimate.value), 84), (at(estimate.value), 136)], "sb", width=2)
    drawing.text(at(estimate.value), 76, f"median {estimate.value:.2f} ms", "text bold", "middle")
    words = f"[{estimate.low:.2f}, {estimate.high:.2f}]: value {_place(values, estimate.low)} to value "
    words += f"{_place(values, estimate.high)} of the 41 in order"
    drawing.text((at(estimate.low) + at(estimate.high)) / 2 + 120, 160, words, "text small", "middle")
    drawing.text(
        40,
        40,
        "41 blocks, each a dot at its mean step time. The times have a long tail, as real ones have.",
        "faint small",
    )
    return drawing


def _place(ordered: Sequence[float], value: float) -> int:
    return ordered.index(value) + 1


def stopping() -> Drawing:
    """Half-widths of intervals over time, for three kinds of noise, each until the rule ends it."""
    drawing = Drawing("When a pass ends: converged, stably noisy, or at the time limit", 330)
    settings, quad_s = Settings(), 0.08
    left, top, right, bottom = 70, 60, WIDTH - 40, 270

    def at(seconds: float, half_width: float) -> tuple[float, float]:
        share = min(1.0, half_width / 0.08)
        return left + seconds / settings.time_limit_s * (right - left), bottom - share * (bottom - top)

    for share in (0.0, 0.02, 0.04, 0.06, 0.08):
        y = at(0, share)[1]
        drawing.text(left - 8, y + 4, f"{100 * share:.0f}%", "faint small", "end")
    for seconds in (0, 2, 4, 6, 8, 10):
        drawing.text(at(seconds, 0)[0], bottom + 18, f"{seconds} s", "faint small", "middle")
    drawing.line([(left, top), (left, bottom), (right, bottom)])
    drawing.line(
        [at(0, settings.target_half_width), at(settings.time_limit_s, settings.target_half_width)], dashes="5 4"
    )
    drawing.text(right, at(0, settings.target_half_width)[1] + 15, "the target: 1%", "text small", "end")
    for stroke, fill, spread, seed, name, anchor in (
        ("sa", "a", 0.035, 1, "little noise", "start"),
        ("sb", "b", 0.075, 4, "more noise", "end"),
        ("sstop", "stop", 0.22, 3, "much noise", "start"),
    ):
        source = random.Random(seed)  # noqa: S311  made-up samples
        values: list[float] = []
        points: list[tuple[float, float]] = []
        reason, next_look = None, 1
        while reason is None:
            values.append(1.25 * (1 + source.gauss(0, spread)))
            elapsed_s = quad_s * len(values)
            if len(values) >= next_look or elapsed_s >= settings.time_limit_s:
                next_look = int(1.2 * len(values)) + 1
                reason = stop_reason(values, samples=2 * len(values), elapsed_s=elapsed_s, settings=settings)
                estimate = stats.median_estimate(values)
                if estimate.confidence >= stats.STATED_CONFIDENCE:
                    points.append(at(elapsed_s, estimate.relative_half_width))
        drawing.line(points, stroke, width=2)
        for x, y in points[:-1]:
            drawing.dot(x, y, fill, 2.5)
        drawing.dot(*points[-1], fill, 5.5)
        x, y = points[-1]
        aside, above = (10, -8) if anchor == "start" else (0, -22)
        drawing.text(x + aside, y + above, f"{name}: {reason}", f"{fill} bold small", anchor)
    drawing.text(
        24, 34, "half of the interval's width, of quads of 80 ms; each dot is a question to the rule", "faint small"
    )
    return drawing


def gate() -> Drawing:
    """Looks at the host beside four rounds, one of which is measured again."""
    drawing = Drawing("The host gate: a round in which the host was slow is set aside and measured again", 260)
    rounds = ([1.0, 1.02, 1.0, 1.03, 1.01], [1.01, 1.0, 1.62, 1.7, 1.04], [1.0, 1.05, 1.02, 1.0, 1.0], [1.02] * 5)
    bottom = 190

    def height(look: float) -> float:
        return bottom - (look - 0.9) * 140

    for number, looks in enumerate(rounds):
        left = 60 + 172 * number
        is_slow = any(look > SLOW for look in looks)
        for turn, name in enumerate("ABBA"):
            drawing.box(left + 34 * turn + 8, bottom + 6, 26, 20, "wait" if is_slow else name.lower())
            drawing.text(left + 34 * turn + 21, bottom + 21, name, "text small" if is_slow else "on small", "middle")
        for turn, look in enumerate(looks):
            drawing.dot(left + 34 * turn + 4, height(look), "stop" if look > SLOW else "go", 4)
        words = "set aside" if is_slow else "measured again: counts" if number == 2 else "counts"
        drawing.text(left + 72, bottom + 46, words, "text small bold", "middle")
    drawing.line([(50, height(SLOW)), (WIDTH - 30, height(SLOW))], "sstop", dashes="5 4")
    drawing.text(WIDTH - 30, height(SLOW) - 7, f"{SLOW:g} times the undisturbed loop: slow", "stop small", "end")
    drawing.text(
        24, 34, "Dots: a loop of plain Python before the round and after each of its blocks, against its", "faint small"
    )
    drawing.text(24, 51, "undisturbed time.", "faint small")
    return drawing


def bound() -> Drawing:
    """D, H and T of two steps on two hosts: one that the device bounds, and one that the host bounds."""
    drawing = Drawing("D, H and T of a step that the device bounds, and of one that the host bounds, on two hosts", 430)
    slower, unit, left = 1.5, 6.0, 110
    cases = (
        ("bound by the device: D is at least 90% of T", 22, [(3, 94)]),
        ("bound by the host: D is less than half of T", 60, [(n, n + 3.5) for n in range(3, 60, 10)]),
    )
    for number, (words, host, device) in enumerate(cases):
        top = 56 + 172 * number
        drawing.text(24, top - 14, words, "text bold")
        for step, (name, speed) in enumerate((("this host", 1.0), (f"{slower:g} times as slow", slower))):
            y = top + 68 * step
            # A kernel of a step that the host bounds begins when the host has launched it.
            spans = [(begin * speed, begin * speed + end - begin) for begin, end in device]
            until = max(host * speed, spans[-1][1])
            drawing.text(24, y + 10, name, "faint small")
            for row, (who, boxes) in enumerate((("host", [(0.0, host * speed)]), ("device", spans))):
                line = y + 14 + 20 * row
                drawing.text(left - 8, line + 13, who, "text small", "end")
                drawing.box(left, line + 2, unit * until, 14, "wait")
                for begin, end in boxes:
                    drawing.box(left + unit * begin, line + 2, unit * (end - begin), 14, "a" if row == 0 else "b")
            drawing.line([(left + unit * until, y + 12), (left + unit * until, y + 52)], "rule")
            drawing.text(left + unit * until + 5, y + 38, "T", "text small bold")
    drawing.legend(
        412,
        [("a", "the host issues: H, over the host's speed"), ("b", "the device works: D"), ("wait", "waits")],
        x=left,
    )
    return drawing


PICTURES: dict[str, Callable[[], Drawing]] = {
    "windows": windows,
    "turns": turns,
    "interval": interval,
    "stopping": stopping,
    "gate": gate,
    "bound": bound,
}


def main() -> None:
    """Write all pictures."""
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")


if __name__ == "__main__":
    main()
