"""Which classes the table of this collection is made of, and what is known of them before they are built."""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

import transformers
from transformers.models.auto import modeling_auto
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

from .sizes import SIZES
from .work import CACHE, GENERATING, PROMPT, WORK

#: The largest batch of a model that PyTorch's `benchmarks/dynamo` does not have.
LARGEST_BATCH = 64

#: Transformers' own lists of classes by task.
LISTS = {
    "masked_lm": "MASKED_LM",
    "causal_lm": "CAUSAL_LM",
    "seq2seq_lm": "SEQ_TO_SEQ_CAUSAL_LM",
    "text_classification": "SEQUENCE_CLASSIFICATION",
    "token_classification": "TOKEN_CLASSIFICATION",
    "question_answering": "QUESTION_ANSWERING",
}
#: Tasks of models that are not in these lists, or do something else there.
OTHERS = {
    "GPTJForQuestionAnswering": "question_answering",
    "Gemma3ForConditionalGeneration": "text_generation",
    "LayoutLMForMaskedLM": "masked_lm",
    "TrOCRForCausalLM": "causal_lm",
    "WhisperForConditionalGeneration": "speech_recognition",
}

#: Models whose step here would not be their work, and why.
OTHER_WORK = {
    "without its CUDA kernel, which has to be downloaded, its attention is zero": "Mra*",
    "a train step leaves some of its parameters as they are": "BloomForQuestionAnswering Doge* Funnel* RoCBert*",
    "it puts two other models together": "EncoderDecoderModel",
    "a step on tokens alone leaves its part for images or sound unused": """
        AudioFlamingo3* Fuyu* Gemma3ForConditionalGeneration Gemma3ForSequenceClassification*
        Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration GlmAsr*
        GotOcr2* GraniteSpeech* MllamaForCausalLM ModernVBert* MossTranscribe* MusicFlamingo* NeoMME* Phi4Multimodal*
        Qwen2Audio* Qwen3ASR* Qwen3_5ForTokenClassification UltraVBert* VibeVoice* Voxtral*
    """,
}


def other_work(name: str) -> str | None:
    """Why the model is left out although it builds."""
    for reason, patterns in OTHER_WORK.items():
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            return reason
    return None


def tasks() -> dict[str, str]:
    """The task of each class."""
    return {class_name: task for class_name, task, _ in listed()} | OTHERS


def listed() -> Iterator[tuple[str, str, str]]:
    """Each class of these lists, its task, and its configuration class's name. No module of a model is imported."""
    for task, name in LISTS.items():
        for model_type, classes in getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES").items():
            for class_name in [classes] if isinstance(classes, str) else classes:
                yield class_name, task, CONFIG_MAPPING_NAMES.get(model_type, "")


def names() -> list[str]:
    """All classes of these tasks, each with the sizes of its configuration class."""
    configurations = {class_name: {getattr(transformers, class_name).config_class.__name__} for class_name in OTHERS}
    for class_name, _, configuration in listed():
        configurations.setdefault(class_name, set()).add(configuration)
    sized = {
        f"{class_name}:{size}"
        for class_name, several in configurations.items()
        for configuration in several
        for size in SIZES.get(configuration, {})
    }
    return sorted({*configurations, *sized})


def batch_size(name: str) -> int | None:
    """The batch of PyTorch's `benchmarks/dynamo`."""
    return WORK[name].batch_size if name in WORK else None


def cells(name: str, inputs: dict[str, Any]) -> dict[str, object]:
    """The task, and what stands in the table for people: the length of a sequence."""
    class_name = name.partition(":")[0]
    domain = "speech" if class_name.startswith("Whisper") else ""
    tokens = inputs["labels" if domain else "input_ids"].shape[1]
    return {"domain": domain, "task": tasks()[class_name], "tokens": tokens}


def row(name: str) -> dict[str, object] | None:
    """The line of a model that generates: its steps need a cache with values, so that they are not looked at."""
    if name not in GENERATING:
        return None
    reason = "PyTorch's lists have this model for what it generates: see its prefill and decode steps"
    batch_size = WORK[name].batch_size
    return {
        "task": "text_generation",
        "tokens": PROMPT,
        "prefill": batch_size,
        "decode": batch_size,
        "prompt": PROMPT,
        "cache": CACHE,
        "no_train": reason,
        "no_eval": reason,
    }
