"""What a run's files may say: a record or a manifest that could break a report is refused, with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from examples import INDUCTOR, compared, manifest, measured, record
from torchzoo.files import to_json
from torchzoo.record import DecodeError, decode_manifest, decode_record

RECORD = json.loads(to_json(record(compared(), backend=INDUCTOR)))
EAGER_RECORD = json.loads(to_json(record(measured())))
MANIFEST = json.loads(to_json(manifest()))


def changed(document: dict[str, Any], path: str, value: Any) -> bytes:
    """The document with another value at a path such as `outcome.blocks.0`."""
    copy = json.loads(json.dumps(document))
    *above, last = [int(name) if name.isdigit() else name for name in path.split(".")]
    place = copy
    for name in above:
        place = place[name]
    place[last] = value
    return json.dumps(copy).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("case.batch_size", 0),
        ("case.batch_size", 10**30),
        ("case.batch_size", None),
        ("case.backend.name", "eager"),
        ("case.seed", 2**63),
        ("started_at", "x"),
        ("finished_at", "2026-13-45"),
        ("finished_at", "2026-11-20T10:00:00"),
        ("paused_s", -1),
        ("outcome.blocks", []),
        ("outcome.blocks.1", ["candidate", []]),
        ("outcome.blocks.1", ["candidate", [0.0]]),
        ("outcome.blocks.1", ["candidate", [-0.5]]),
        ("outcome.blocks.1", ["candidate", [1e308]]),
        ("outcome.blocks.1", ["candidate", [1e-320]]),
        ("outcome.blocks.1", ["eager", [0.1]]),
        ("outcome.blocks.1", ["other", [0.1]]),
        ("outcome.blocks", [["eager", [0.1]], ["candidate", [0.1]], ["candidate", [0.1]]]),
        ("outcome.variants", {}),
        ("outcome.variants.other", RECORD["outcome"]["variants"]["eager"]),
        ("outcome.variants.eager.warmup_s", []),
        ("outcome.variants.eager.back_to_back", []),
        ("outcome.variants.eager.back_to_back.0", [0, 0.1]),
        ("outcome.variants.eager.back_to_back.0", [3, 0.0]),
        ("outcome.variants.eager.memory.host_uss_bytes", -1),
        ("outcome.variants.eager.energy", {"windows": []}),
        ("outcome.samples_per_step", 4.5),
        ("outcome.samples_per_step", 0),
        ("outcome.sample_unit", None),
        ("outcome.sample_unit", "x" * 1000),
        ("outcome.parameters", 10**30),
        ("outcome.host_loop_s", [-1.0]),
        ("outcome.stage_seconds", {"build": None}),
        ("outcome.flops", {"total": 3, "by_operator": {"aten::mm": {"float32": 2}}}),
        ("outcome.host", {"undisturbed_s": 1, "looks_s": [], "waited_s": 0, "fast_cores": [], "was_slow": True}),
        ("outcome", {"type": "other"}),
    ],
)
def test_a_record_that_a_report_could_not_show_is_refused(path: str, value: Any) -> None:
    decode_record(json.dumps(RECORD).encode())
    with pytest.raises(DecodeError) as error:
        decode_record(changed(RECORD, path, value))
    assert str(error.value)


def test_a_case_with_a_backend_has_a_candidate() -> None:
    decode_record(json.dumps(EAGER_RECORD).encode())
    for field, value, backend in (("name", "inductor", "inductor"), ("option", "x", "eager:x")):
        with pytest.raises(DecodeError, match=f"its variants are not those of a case with the backend {backend}"):
            decode_record(changed(EAGER_RECORD, f"case.backend.{field}", value))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("created_at", "yesterday"),
        ("environment", []),
        ("environment.cpu_usable", 0),
        ("environment.cpu", 3),
        ("environment.packages", None),
        ("environment.packages", "x"),
        ("environment.packages", {"timm": 1}),
        ("environment.variables", "<script>"),
        ("environment.gpus", [{}]),
        ("environment.gpus", [{"name": "H200", "driver": 1}]),
        ("settings.jobs", 0),
        ("settings.threads", 10**30),
        ("settings.limits.build_s", -1),
        ("cases.0.batch_size", 10**30),
        ("undisturbed_loop_s", 0),
        ("schema_version", 99),
        ("schema_version", "one"),
    ],
)
def test_a_manifest_that_a_report_could_not_show_is_refused(path: str, value: Any) -> None:
    decode_manifest(json.dumps(MANIFEST).encode())
    with pytest.raises(DecodeError) as error:
        decode_manifest(changed(MANIFEST, path, value))
    assert str(error.value)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 100, b"[" * 100_000, b'{"x": ' + b"[" * 100_000, b"\xff", b"null", b"3"]
)
def test_what_is_no_json_of_ours_is_refused(content: bytes) -> None:
    for decode in (decode_record, decode_manifest):
        with pytest.raises(DecodeError):
            decode(content)


def test_a_fact_that_is_not_known_is_none_and_one_of_another_torchzoo_is_ignored() -> None:
    content = changed(MANIFEST, "environment", {**MANIFEST["environment"], "cuda": None, "new": [1]})
    assert decode_manifest(content) == manifest()


def test_a_manifest_of_schema_1_is_refused_by_a_line_that_names_the_script_of_the_migration() -> None:
    with pytest.raises(DecodeError, match=r"schema 1, .*python tools/migrate_schema_1\.py"):
        decode_manifest(changed(MANIFEST, "schema_version", 1))
