"""Which classes the table of this collection is made of, and what is known of them before they are built."""

from typing import Any

import transformers
from transformers.models.auto import modeling_auto

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


def tasks() -> dict[str, str]:
    """The task of each class."""
    found: dict[str, str] = {}
    for task, name in LISTS.items():
        for classes in getattr(modeling_auto, f"MODEL_FOR_{name}_MAPPING_NAMES").values():
            found |= dict.fromkeys([classes] if isinstance(classes, str) else classes, task)
    return found | OTHERS


def names() -> list[str]:
    """All classes of these tasks, each with the sizes of its configuration class."""
    found = []
    for class_name in tasks():
        config_class = getattr(getattr(transformers, class_name, None), "config_class", None)
        sizes = SIZES.get(getattr(config_class, "__name__", ""), {})
        found += [class_name, *(f"{class_name}:{size}" for size in sizes)]
    return sorted(found)


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
