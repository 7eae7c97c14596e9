"""A run whose files hold valid JSON with strange values is shown without them, or refused. No report breaks."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from examples import GB, INDUCTOR, environment, manifest, record, run_of
from kept_runs import against_eager
from torchzoo.analysis.cases import ReportData, case_results
from torchzoo.commands.report import FORMATS
from torchzoo.files import to_json
from torchzoo.record import DecodeError, DeviceState, Gpu, HostWatch, Record, decode_manifest, decode_record

STATE = DeviceState(sm_clock_mhz=1000, throttle_reasons=4, throttled_s={"software power cap": 1.0}, foreign_processes=1)
WATCH = HostWatch(undisturbed_s=0.001, looks_s=(0.001, 0.002), waited_s=0.1, fast_cores=(0, 1), was_slow=True)
PARTS = {"device_state_before": STATE, "device_state_after": STATE, "host": WATCH, "host_loop_s": (0.001,)}
RICH = record(against_eager(1.5, quads=2, **PARTS), backend=INDUCTOR, device="cuda")
MACHINE = environment(
    gpus=(Gpu(name="a GPU", memory_bytes=80 * GB, driver="1"),),
    packages={"timm": "1"},
    variables={"OMP_NUM_THREADS": "1"},
)


def changes(document: Any, values: list[Any]) -> Iterator[bytes]:
    """The document with each of its parts in turn as each of the values. Of a list, the first two parts."""
    for path in list(paths(document)):
        for value in values:
            copy = json.loads(json.dumps(document))
            place = copy
            for name in path[:-1]:
                place = place[name]
            place[path[-1]] = value
            yield json.dumps(copy).encode()


def paths(value: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for name, part in below:
        yield (*above, name)
        yield from paths(part, (*above, name))


def show(records: list[Record], **about: Any) -> None:
    """Every format of a report that is made here, without a browser's page."""
    run = run_of(records, **about)
    data = ReportData(runs=(run,), cases=tuple(case_results(run)), not_run=0, superseded=0)
    for name in ("table", "md", "csv", "json", "svg"):
        FORMATS[name][1](data, io.StringIO())


@pytest.mark.parametrize("value", [None, 0, -1, 1e308, 10**18, "x", []], ids=repr)
def test_any_value_of_a_record_is_shown_or_refused(value: Any) -> None:
    shown, refused = [], 0
    for line in changes(json.loads(to_json(RICH)), [value]):
        try:
            shown.append(decode_record(line))
        except DecodeError:
            refused += 1
    assert refused
    names = [msgspec.structs.replace(one.case, model=f"model_{number}") for number, one in enumerate(shown)]
    show([RICH, *(msgspec.structs.replace(one, case=case) for one, case in zip(shown, names, strict=True))])


@pytest.mark.parametrize("value", [None, -1, 1e308, "x", []], ids=repr)
def test_any_value_of_a_manifest_is_shown_or_refused(value: Any) -> None:
    refused = 0
    for content in changes(json.loads(to_json(manifest(environment=MACHINE))), [value]):
        try:
            made = decode_manifest(content)
        except DecodeError:
            refused += 1
        else:
            show([RICH], **{name: getattr(made, name) for name in ("environment", "settings", "command", "created_at")})
    assert refused
