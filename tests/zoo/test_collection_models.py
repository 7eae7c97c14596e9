"""Models of the two collections: small ones are built and take their steps; sizes and suites are PyTorch's."""

from __future__ import annotations

import csv
from collections import Counter
from importlib import import_module

import pytest
from test_contract import skip_without_its_libraries

from torchzoo.case import Mode
from torchzoo.model.tasks import Seq2SeqLM, SupervisedModel
from torchzoo.zoo import contract
from torchzoo.zoo.catalog import find_models, load_model_class
from torchzoo.zoo.folders import bundled, import_folder
from torchzoo.zoo.suites import read_suite

CATALOG = find_models()


def test_a_small_architecture_of_timm_keeps_the_contract() -> None:
    spec = CATALOG.spec("timm:lcnet_050")
    skip_without_its_libraries(spec)
    assert contract.check_model(spec) == []


@pytest.mark.parametrize(
    "name",
    [
        "hf:BartForCausalLM",  # it asks about its mask, and has weights that nothing reads
        "hf:BertForMaskedLM",
        "hf:DistilBertForQuestionAnswering",
        "hf:GPT2ForSequenceClassification",
        "hf:T5ForConditionalGeneration:small",
        "hf:WhisperForConditionalGeneration",
    ],
)
def test_a_class_of_each_task_takes_its_steps_in_a_small_form(name: str) -> None:
    spec = CATALOG.spec(name)
    skip_without_its_libraries(spec)
    small = load_model_class(spec).small()
    assert small is not None
    for mode in (Mode.TRAIN, Mode.EVAL):
        model = small(mode, "cpu", 2)
        assert isinstance(model, SupervisedModel)
        assert sum(one.numel() for one in model.network.parameters()) < min(spec.parameters, 20_000_000)
        assert contract.check_step(model, spec) == []


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("hf:CTRLLMHeadModel", {"n_layer": 1, "n_embd": 64, "dff": 64, "n_head": 4}),
        ("hf:IBertForMaskedLM", {"num_hidden_layers": 1}),
        ("hf:LayoutLMv3ForTokenClassification", {"num_hidden_layers": 1}),
        ("hf:MarkupLMForTokenClassification", {"num_hidden_layers": 1}),
        ("hf:RobertaForMaskedLM", {"num_hidden_layers": 1}),
        ("hf:WhisperForCausalLM", {"decoder_layers": 1}),
    ],
)
def test_every_token_has_a_position_where_a_class_has_few(name: str, sizes: dict[str, int]) -> None:
    spec = CATALOG.spec(name)
    skip_without_its_libraries(spec)
    shallow = type("Shallow", (load_model_class(spec),), {"sizes": sizes})
    contract.take_step(shallow(Mode.EVAL, "cpu", 1))


def test_every_sequence_to_sequence_model_gets_tokens_for_its_decoder() -> None:
    specs, errors = CATALOG.specs_of(CATALOG.select(["hf:*"]))
    assert errors == []
    names = [spec.name for spec in specs if spec.task == "seq2seq_lm"]
    assert len(names) > 20
    assert [name for name in names if not issubclass(load_model_class(CATALOG.spec(name)), Seq2SeqLM)] == []


@pytest.mark.parametrize("collection", ["timm", "hf"])
def test_every_model_of_the_library_is_in_the_table_or_left_out_with_a_reason(collection: str) -> None:
    folder, name = bundled("collections") / collection, f"torchzoo_collections.{collection}"
    pytest.importorskip({"timm": "timm", "hf": "transformers"}[collection])
    import_folder(folder, name)
    with (folder / "left_out.csv").open(newline="", encoding="utf-8") as file:
        reasons = {row["name"]: row["reason"] for row in csv.DictReader(file)}
    table = {one.removeprefix(f"{collection}:") for one in CATALOG.select([f"{collection}:*"])}
    assert all(reasons.values())
    assert not table & set(reasons)
    assert table | set(reasons) == set(import_module(f"{name}.candidates").names())


def test_no_layer_is_left_out_at_random() -> None:
    spec = CATALOG.spec("hf:M2M100ForConditionalGeneration")
    skip_without_its_libraries(spec)
    small = load_model_class(spec).small()
    assert small is not None
    modules = small(Mode.TRAIN, "meta", 1).networks()["network"].modules()
    assert {one.layerdrop for one in modules if hasattr(one, "layerdrop")} == {0.0}  # 0.05 by default


def test_a_size_is_that_of_the_published_weights() -> None:
    spec = CATALOG.spec("hf:GPT2LMHeadModel:distil")
    skip_without_its_libraries(spec)
    assert CATALOG.spec("hf:MistralForCausalLM:7b").parameters == 7_248_023_552
    assert CATALOG.spec("hf:Gemma3ForConditionalGeneration:4b").parameters == 4_300_079_472
    assert spec.parameters == 81_912_576  # distilgpt2
    model = load_model_class(spec)(Mode.TRAIN, "meta", 1)
    assert isinstance(model, SupervisedModel)
    assert sum(one.numel() for one in model.network.parameters()) == spec.parameters
    assert model.batch.inputs["input_ids"].shape == (1, 512)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "reads_all_weights"),
    [
        ("hf:LlamaForCausalLM:3.2-1b", True),
        ("hf:Gemma2ForCausalLM:2b", True),
        ("hf:Qwen3ForCausalLM:0.6b", True),
        ("hf:MistralForCausalLM:7b", True),
        ("hf:Gemma3ForConditionalGeneration:4b", False),  # the part that sees images has no token to read
        ("hf:GptOssForCausalLM:20b", False),  # a token goes to 4 experts of 32
    ],
)
def test_a_model_that_generates_takes_its_steps_in_a_small_form(name: str, reads_all_weights: bool) -> None:  # noqa: FBT001
    spec = CATALOG.spec(name)
    skip_without_its_libraries(spec)
    small = load_model_class(spec).small()
    assert small is not None
    for mode in (Mode.PREFILL, Mode.DECODE):
        model = small(mode, "cpu", 2)
        assert contract.check_step(model, spec) == []
    assert (model.bytes_read_per_step is not None) == reads_all_weights


@pytest.mark.parametrize(
    ("suite", "counts"),
    [
        ("dynamo_hf", {"hf": 39}),
        ("dynamo_timm", {"timm": 18}),
        ("dynamo_hf_2022", {"hf": 52}),
        ("dynamo_timm_2022", {"timm": 62}),
        ("pt2_163", {"hf": 45, "timm": 61, "": 56}),
    ],
)
def test_suites_have_as_many_models_as_their_sources(suite: str, counts: dict[str, int]) -> None:
    names = CATALOG.select([], [suite])
    assert names == list(read_suite(suite).models)
    assert Counter(name.partition(":")[0] if ":" in name else "" for name in names) == counts


def test_every_model_of_the_claim_can_be_trained() -> None:
    specs, errors = CATALOG.specs_of(read_suite("pt2_163").models)
    assert errors == []
    assert [spec.name for spec in specs if Mode.TRAIN not in spec.batch_size] == []
