"""Planning: resolution of cases, reasoned skips, and wrong usage that is refused before anything is built."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from examples import CASE, FACTS, INDUCTOR, SPEC
from torchzoo.case import EAGER, Axes, Backend, CompileScope, MemoryFormat, Mode, Parallel, Precision
from torchzoo.errors import UsageError
from torchzoo.record import Failed, Skipped
from torchzoo.run.plan import check_axes, make_plan, parse_backend, skip_reason
from torchzoo.zoo.spec import SkipRule, SpecError


def axes(**changes: Any) -> Axes:
    base = Axes(modes=(Mode.EVAL,), devices=("cpu",), backends=(EAGER,))
    return msgspec.structs.replace(base, **changes)


def test_every_combination_is_a_case_with_the_models_own_batch() -> None:
    plan = make_plan(
        [SPEC],
        axes(
            modes=(Mode.TRAIN, Mode.EVAL),
            backends=(EAGER, INDUCTOR),
            precisions=(Precision.FP32,),
            eager_alone=True,
        ),
        {},
    )
    assert [(e.case.mode, e.case.backend, e.case.batch_size) for e in plan] == [
        (Mode.TRAIN, EAGER, 8),
        (Mode.TRAIN, INDUCTOR, 8),
        (Mode.EVAL, EAGER, 4),
        (Mode.EVAL, INDUCTOR, 4),
    ]
    assert all(entry.resolved is None for entry in plan)


@pytest.mark.parametrize(("asked", "resolved"), [(None, 4), ("smoke", 2), (33, 33)])
def test_batch_size_is_resolved_here_and_nowhere_else(asked: int | str | None, resolved: int) -> None:
    assert make_plan([SPEC], axes(batch_sizes=(asked,)), {})[0].case.batch_size == resolved


def test_a_mode_the_model_lacks_is_a_reasoned_skip() -> None:
    rule = SkipRule(mode=Mode.TRAIN, reason="no parameters")
    spec = msgspec.structs.replace(SPEC, batch_size={Mode.EVAL: 4}, skips=(rule,))
    entry = make_plan([spec], axes(modes=(Mode.TRAIN,)), {})[0]
    assert entry.resolved == Skipped(reason="no parameters")
    assert entry.case.batch_size is None


def test_a_broken_folder_fails_its_own_rows_only() -> None:
    plan = make_plan([("broken", SpecError("broken/metadata.yaml: no")), SPEC], axes(), {})
    assert isinstance(plan[0].resolved, Failed)
    assert "broken/metadata.yaml" in plan[0].resolved.message
    assert plan[1].resolved is None


def test_each_compile_scope_is_a_case_of_a_backend_and_none_of_eager() -> None:
    asked = axes(backends=(EAGER, INDUCTOR), compile_scopes=(CompileScope.BLOCK, CompileScope.STEP), eager_alone=True)
    assert [(entry.case.backend, entry.case.compile_scope) for entry in make_plan([SPEC], asked, {})] == [
        (EAGER, CompileScope.NETWORK),
        (INDUCTOR, CompileScope.BLOCK),
        (INDUCTOR, CompileScope.STEP),
    ]


@pytest.mark.parametrize(
    ("rule", "matching", "other"),
    [
        ({"mode": Mode.EVAL}, {}, {"mode": Mode.TRAIN}),
        ({"device": ("cuda",)}, {"device": "cuda:1"}, {"device": "cpu"}),
        ({"backend": ("inductor",)}, {"backend": Backend("inductor", "max-autotune")}, {"backend": EAGER}),
        ({"backend": ("torchscript:script",)}, {"backend": Backend("torchscript", "script")}, {"backend": INDUCTOR}),
        ({"precision": (Precision.FP16,)}, {"precision": Precision.FP16}, {"precision": Precision.BF16}),
        ({"memory_format": MemoryFormat.CHANNELS_LAST}, {"memory_format": MemoryFormat.CHANNELS_LAST}, {}),
        ({"compile_scope": CompileScope.STEP}, {"compile_scope": CompileScope.STEP}, {}),
        ({"mode": Mode.EVAL, "device": ("cuda",)}, {"device": "cuda"}, {"device": "cuda", "mode": Mode.TRAIN}),
    ],
)
def test_a_skip_rule_needs_all_its_fields_to_match(
    rule: dict[str, Any], matching: dict[str, Any], other: dict[str, Any]
) -> None:
    spec = msgspec.structs.replace(SPEC, skips=(SkipRule(reason="because", **rule),))
    assert skip_reason(msgspec.structs.replace(CASE, **matching), spec, {}) == "because"
    assert skip_reason(msgspec.structs.replace(CASE, **other), spec, {}) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": Backend("export"), "mode": Mode.TRAIN}, "one forward graph"),
        ({"backend": Backend("cudagraphs")}, "CUDA"),
        ({"backend": Backend("torchscript"), "compile_scope": CompileScope.STEP}, "whole steps"),
        ({"backend": Backend("torchscript"), "compile_scope": CompileScope.BLOCK}, "not blocks"),
        ({"backend": Backend("aoti"), "mode": Mode.TRAIN}, "neither trains"),
        ({"backend": Backend("aoti"), "precision": Precision.AMP_BF16}, "knows nothing of autocast"),
        ({"backend": Backend("aoti"), "world": 2, "parallel": Parallel.FSDP2}, "or of other ranks"),
        ({"backend": Backend("openvino")}, "pip install openvino"),
        ({"backend": Backend("onnxrt"), "precision": Precision.AMP}, "has no autocast"),
        ({"backend": Backend("openvino"), "precision": Precision.AMP}, "has no autocast"),
    ],
)
def test_what_a_backend_can_not_do_is_a_reasoned_skip(changes: dict[str, Any], words: str) -> None:
    missing = {"openvino": "openvino is not installed: pip install openvino"}
    reason = skip_reason(msgspec.structs.replace(CASE, **changes), SPEC, missing)
    assert reason is not None
    assert words in reason


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"precision": Precision.INT8WO, "mode": Mode.TRAIN}, "stores weights for inference"),
        ({"precision": Precision.INT4WO, "mode": Mode.TRAIN}, "stores weights for inference"),
        ({"precision": Precision.FP8, "world": 2, "parallel": Parallel.FSDP2}, "on one device only"),
        ({"precision": Precision.INT8WO, "backend": Backend("aoti")}, "quantized tensors of torchao"),
        ({"precision": Precision.FP8, "mode": Mode.TRAIN}, "pip install torchao"),
    ],
)
def test_what_can_not_be_quantized_is_a_reasoned_skip(changes: dict[str, Any], words: str) -> None:
    missing = {"torchao": "torchao is not installed: pip install torchao"}
    reason = skip_reason(msgspec.structs.replace(CASE, **changes), SPEC, missing)
    assert reason is not None
    assert words in reason


def test_what_a_model_can_not_do_in_bf16_it_can_not_do_quantized() -> None:
    rule = SkipRule(precision=(Precision.BF16,), reason="fp32 only")
    spec = msgspec.structs.replace(SPEC, skips=(rule,))
    for precision, reason in ((Precision.INT8WO, "fp32 only"), (Precision.FP16, None)):
        assert skip_reason(msgspec.structs.replace(CASE, mode=Mode.EVAL, precision=precision), spec, {}) == reason


def test_a_model_whose_library_is_missing_is_skipped_with_the_command_that_installs_it() -> None:
    plan = make_plan([SPEC], axes(), {"tiny": "opacus not installed: python install.py tiny"})
    assert plan[0].resolved == Skipped(reason="opacus not installed: python install.py tiny")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": ("mps",)}, "no mps device"),
        ({"devices": ("cuda:2",)}, "there are 2 of cuda"),
        ({"backends": (Backend("inductr"),)}, "did you mean inductor?"),
    ],
)
def test_what_the_machine_lacks_is_wrong_usage(changes: dict[str, Any], words: str) -> None:
    check_axes(axes(devices=("cpu", "cuda:1"), backends=(INDUCTOR, Backend("tvm"))), FACTS)
    with pytest.raises(UsageError, match=words.replace("?", r"\?")):
        check_axes(axes(**changes), FACTS)


def test_backends_of_dynamos_own_tests_can_be_used_but_are_not_proposed() -> None:
    facts = msgspec.structs.replace(FACTS, dynamo_backends=("relu_compile_error_TESTING_ONLY", "tvm"))
    check_axes(axes(backends=(Backend("relu_compile_error_TESTING_ONLY"),)), facts)
    with pytest.raises(UsageError, match="tvm") as raised:
        check_axes(axes(backends=(Backend("relu_compile_error"),)), facts)
    assert "TESTING_ONLY" not in str(raised.value)


def test_backend_options_are_checked_where_they_are_known() -> None:
    assert parse_backend("inductor:reduce-overhead") == Backend("inductor", "reduce-overhead")
    assert parse_backend("inductor") == Backend("inductor")
    with pytest.raises(UsageError, match="it has default, reduce-overhead"):
        parse_backend("inductor:fast")
    with pytest.raises(UsageError, match="it has none"):
        parse_backend("eager:fast")


def test_a_tuned_batch_is_used_in_evaluation_unless_the_batch_is_given() -> None:
    tuned = {"cpu": {"tiny": 64}}
    both = (Mode.TRAIN, Mode.EVAL)

    def batches(asked: int | str | None) -> list[int | None]:
        return [entry.case.batch_size for entry in make_plan([SPEC], axes(modes=both, batch_sizes=(asked,)), {}, tuned)]

    assert batches(None) == [8, 64]
    assert batches("default") == [8, 4]
    assert batches("smoke") == [2, 2]
    assert batches(3) == [3, 3]
    other_device = make_plan([SPEC], axes(modes=both, devices=("cuda",)), {}, tuned)
    assert [entry.case.batch_size for entry in other_device] == [8, 4]


def test_a_rule_holds_for_all_cases_of_a_mode_only_without_other_axes() -> None:
    of_mode = SkipRule(reason="because", mode=Mode.TRAIN)
    assert of_mode.holds_for_all(Mode.TRAIN)
    assert of_mode.holds_for_all(Mode.TRAIN, "cuda")
    assert not of_mode.holds_for_all(Mode.EVAL)
    on_cuda = SkipRule(reason="because", device=("cuda",))
    assert on_cuda.holds_for_all(Mode.EVAL, "cuda")
    assert not on_cuda.holds_for_all(Mode.EVAL)
    assert not on_cuda.holds_for_all(Mode.EVAL, "cpu")
    assert not SkipRule(reason="because", precision=(Precision.BF16,)).holds_for_all(Mode.EVAL)


def test_a_model_that_does_not_generate_is_skipped_in_these_modes() -> None:
    (entry,) = make_plan([SPEC], axes(modes=(Mode.DECODE,), backends=(EAGER,)), {})
    assert entry.resolved == Skipped(reason="tiny has no decode step: it does not generate")


def test_a_model_that_does_not_generate_has_only_its_own_modes_where_it_has_one() -> None:
    spec = msgspec.structs.replace(SPEC, name="writer", batch_size={Mode.PREFILL: 1, Mode.DECODE: 1})
    asked = axes(modes=tuple(Mode), backends=(EAGER,))
    modes = [
        (entry.case.model, entry.case.mode)
        for entry in make_plan([SPEC, spec, ("broken", SpecError("bad"))], asked, {})
    ]
    assert modes == [
        *(("tiny", mode) for mode in (Mode.TRAIN, Mode.EVAL)),
        *(("writer", mode) for mode in Mode),  # it is its metadata that says why it has no train and eval
        *(("broken", mode) for mode in Mode),
    ]


def test_the_batch_of_a_server_is_for_modes_that_generate() -> None:
    spec = msgspec.structs.replace(
        SPEC, batch_size={Mode.EVAL: 4, Mode.PREFILL: 1, Mode.DECODE: 1}, serving_batch_size={Mode.DECODE: 64}
    )
    modes = (Mode.EVAL, Mode.PREFILL, Mode.DECODE)
    plan = make_plan([spec], axes(modes=modes, backends=(EAGER,), batch_sizes=("serving",)), {})
    assert [entry.case.batch_size for entry in plan] == [4, 1, 64]


def test_eager_is_not_measured_alone_where_another_backend_has_it_beside_it() -> None:
    def backends(**changes: Any) -> list[str]:
        asked = axes(backends=(EAGER, INDUCTOR, Backend("tvm")), modes=(Mode.TRAIN, Mode.EVAL), **changes)
        return [f"{one.case.mode} {one.case.backend}" for one in make_plan([SPEC], asked, {})]

    beside = ["train inductor", "train tvm", "eval inductor", "eval tvm"]
    assert backends() == beside
    assert sorted(backends(eager_alone=True)) == sorted([*beside, "train eager", "eval eager"])
    only = make_plan([SPEC], axes(backends=(EAGER,)), {})
    assert [one.case.backend for one in only] == [EAGER]


def test_eager_is_measured_alone_where_no_other_backend_can_run() -> None:
    spec = msgspec.structs.replace(SPEC, skips=(SkipRule(reason="no", backend=("inductor",), mode=Mode.TRAIN),))
    plan = make_plan([spec], axes(backends=(EAGER, INDUCTOR), modes=(Mode.TRAIN, Mode.EVAL)), {})
    assert [(one.case.mode, one.case.backend, one.resolved is None) for one in plan] == [
        (Mode.TRAIN, EAGER, True),
        (Mode.TRAIN, INDUCTOR, False),
        (Mode.EVAL, INDUCTOR, True),
    ]
