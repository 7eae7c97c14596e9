"""How long the sequences of a model are, and how many are in a batch."""

from typing import NamedTuple

#: Tokens of a sequence, for a model that `WORK` does not have.
LENGTH = 512

#: Beginnings of the names of classes that have fewer positions than that, and how many.
POSITIONS = {"CTRL": 256, "WhisperForCausalLM": 448}

#: Decoders of the lists of PyTorch's `benchmarks/dynamo` that generate there, and how: it reads prompts of 1,000 tokens
#: and generates 2,000, with a static cache.
GENERATING = (
    "LlamaForCausalLM:3.2-1b",
    "Gemma2ForCausalLM:2b",
    "Gemma3ForConditionalGeneration:4b",
    "Qwen3ForCausalLM:0.6b",
    "MistralForCausalLM:7b",
    "GptOssForCausalLM:20b",
)
PROMPT, CACHE = 1000, 3000


class Work(NamedTuple):
    """The work of a model in PyTorch's `benchmarks/dynamo`."""

    length: int
    batch_size: int


#: The models of PyTorch's `benchmarks/dynamo` (huggingface_models_list.txt and huggingface.py, 2022 to 2026): tokens of
#: a sequence, and the batch of the last list that had the model, divided as it is divided there.
WORK = {
    "AlbertForMaskedLM": Work(512, 4),
    "AlbertForQuestionAnswering": Work(512, 4),
    "BartForCausalLM": Work(1024, 4),
    "BartForConditionalGeneration": Work(1024, 2),
    "BertForMaskedLM": Work(512, 16),
    "BertForQuestionAnswering": Work(512, 16),
    "BigBirdForMaskedLM": Work(1024, 8),
    "BlenderbotForCausalLM": Work(128, 4),
    "BlenderbotForConditionalGeneration": Work(128, 16),
    "BlenderbotSmallForCausalLM": Work(128, 64),
    "BlenderbotSmallForConditionalGeneration": Work(128, 64),
    "CamembertForMaskedLM:base": Work(512, 16),  # CamemBert there
    "ConvBertForMaskedLM": Work(512, 16),  # YituTechConvBert, whose configuration is the default
    "DebertaForMaskedLM": Work(512, 8),
    "DebertaForQuestionAnswering": Work(512, 16),
    "DebertaV2ForMaskedLM": Work(512, 2),
    "DebertaV2ForQuestionAnswering": Work(512, 1),
    "DistilBertForMaskedLM": Work(128, 128),
    "DistilBertForQuestionAnswering": Work(128, 256),
    "ElectraForCausalLM": Work(512, 32),
    "ElectraForQuestionAnswering": Work(512, 64),
    "FNetForMaskedLM": Work(512, 16),  # GoogleFnet, whose configuration is the default
    "GPT2ForSequenceClassification": Work(1024, 4),
    "GPT2LMHeadModel:distil": Work(512, 16),  # DistillGPT2
    "GPTJForCausalLM": Work(128, 1),
    "GPTJForQuestionAnswering": Work(128, 1),
    "GPTNeoForCausalLM": Work(128, 32),
    "GPTNeoForSequenceClassification": Work(128, 32),
    "LayoutLMForMaskedLM": Work(512, 16),
    "LayoutLMForSequenceClassification": Work(512, 16),
    "LongformerForMaskedLM:base": Work(1024, 4),  # AllenaiLongformerBase
    "M2M100ForConditionalGeneration": Work(128, 16),
    "MBartForCausalLM": Work(1024, 4),
    "MBartForConditionalGeneration": Work(1024, 2),
    "MT5ForConditionalGeneration": Work(128, 16),
    "MegatronBertForCausalLM": Work(512, 4),
    "MegatronBertForQuestionAnswering": Work(512, 8),
    "MobileBertForMaskedLM": Work(128, 128),
    "MobileBertForQuestionAnswering": Work(128, 128),
    "OPTForCausalLM": Work(2048, 2),
    "PLBartForCausalLM": Work(1024, 8),
    "PLBartForConditionalGeneration": Work(1024, 4),
    "PegasusForCausalLM": Work(128, 32),
    "PegasusForConditionalGeneration": Work(128, 32),
    "ReformerForMaskedLM": Work(4096, 64),  # Reformer
    "RobertaForCausalLM": Work(512, 16),
    "RobertaForQuestionAnswering": Work(512, 16),
    "T5ForConditionalGeneration": Work(1024, 4),
    "T5ForConditionalGeneration:small": Work(1024, 4),  # T5Small
    "TrOCRForCausalLM": Work(256, 32),
    "WhisperForConditionalGeneration": Work(448, 1),  # openai/whisper-tiny, whose configuration is the default
    "XGLMForCausalLM": Work(128, 8),
    "XLNetLMHeadModel": Work(512, 8),
    **dict.fromkeys(GENERATING, Work(PROMPT, 1)),
}


def length(name: str) -> int:
    """How many tokens a sequence of a model has."""
    if name in WORK:
        return WORK[name].length
    return next((most for start, most in POSITIONS.items() if name.startswith(start)), LENGTH)
