"""Classes of transformers (Wolf et al., 2020, arXiv:1910.03771) at their own defaults, with random weights.

`hf:BertForMaskedLM` is the class with the defaults of its configuration class, `hf:BertForMaskedLM:large` with a size
of `sizes.py`. The task follows from the name of the class: a language model is trained by its own loss on random
tokens, a classifier on random classes, and so on. Sequences have the length that `work.py` names: 512 tokens, or that
of PyTorch's own `benchmarks/dynamo` (huggingface.py there) where it has the model. The optimizer is Adam.

What differs from the defaults: nothing is cached, except by models that generate; encoders that are causal language
models (`BertLMHeadModel`) have a causal mask (`is_decoder`); a configuration without a padding token gets token 0; no
layer is left out at random (M2M100 and others leave out 5%, so that steps differ in their work); Reformer's seeds
follow from PyTorch's (`models/_shared/reformer.py`); and where a class numbers positions from behind the padding
token's number, it gets as many positions as the sequences need.

Where `benchmarks/dynamo` does other work: it gives labels in evaluation, too, and so computes the loss there; its
causal language models of RoBERTa, ELECTRA and Megatron-BERT have no causal mask; it gives RoBERTa nothing but padding;
its Adam is capturable and has a learning rate of 0.01 instead of 0.001 (for twelve models it takes SGD, because their
results with Adam differ too much to be compared); and the decoders of `GENERATING` generate 2,000 tokens behind a
prompt of 1,000, while here reading the prompt, and one token with a cache of 3,000, are steps of their own. It sets the
dropout of a configuration to 1e-30 when the network has been built, and most networks do not read it again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import transformers
from torch import Tensor, nn

from torchzoo.case import Mode
from torchzoo.model.tasks import (
    Batch,
    LanguageModel,
    QuestionAnswerer,
    Seq2SeqLM,
    SequenceClassifier,
    SupervisedModel,
    TokenClassifier,
)
from torchzoo_models._shared.causal_lm import CausalLM
from torchzoo_models._shared.reformer import seed_layers

from .sizes import SIZES
from .work import CACHE, GENERATING, PROMPT, WORK, length

#: Beginnings of the names of classes that number positions from behind the padding token's number.
POSITIONS_BEHIND_PADDING = (
    "Camembert",
    "Data2VecText",
    "IBert",
    "LayoutLMv3",
    "Lilt",
    "Longformer",
    "Luke",
    "MPNet",
    "MarkupLM",
    "Roberta",
    "XLMRoberta",
    "Xmod",
)

#: Values of a configuration that make a network small enough for a test on the CPU. Each counts where it is less.
SMALL = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model"), 256),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim", "d_ff", "d_inner"), 512),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "attention_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads", "num_local_experts"), 4),
    "dim": 256,
    "hidden_dim": 512,
    "n_layers": 2,
    "n_heads": 4,  # of DistilBERT
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
}
TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
#: Chances to leave out a whole layer.
LAYER_DROPS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
#: Ends of the names of causal language models. Those made of encoders are causal if their configuration says so.
CAUSAL = ("ForCausalLM", "LMHeadModel", "GenerationDecoder")
#: Beginnings of the names of classes that put masks together themselves, so that they need transformers' own.
OWN_MASKS = ("T5Gemma2",)
#: More values of small networks: how each of two layers attends; positions in two dimensions, for 32 tokens.
SMALL_OF = {
    "GPTNeoConfig": {"attention_types": [[["global", "local"], 1]]},
    "ReformerConfig": {"axial_pos_shape": [4, 8]},
}


class FromConfig(LanguageModel):
    """A class of transformers with its configuration class's defaults, but for `sizes`."""

    member: ClassVar[str]  # the name in the collection
    class_name: ClassVar[str]
    sizes: ClassVar[dict[str, Any]] = {}

    @classmethod
    def config_class(cls) -> Any:
        return getattr(transformers, cls.class_name).config_class

    @classmethod
    def small(cls) -> type[SupervisedModel] | None:
        if cls.member not in WORK:
            return None
        lengths = {"train_length": 32, "eval_length": 32, "prompt_length": 16, "cache_length": 32}
        return type("Small", (cls,), {"sizes": small_sizes(cls.config_class(), cls.sizes), **lengths})

    def build_network(self) -> nn.Module:
        config = self.config_class()(**self.sizes)
        config.use_cache = self.mode.generates
        if getattr(config, "pad_token_id", 0) is None:  # a configuration of several parts may have none of its own
            config.pad_token_id = 0
        if config.is_encoder_decoder and getattr(config, "decoder_start_token_id", None) is None:
            config.decoder_start_token_id = config.pad_token_id
        for name in LAYER_DROPS:
            if hasattr(config, name):
                setattr(config, name, 0.0)
        if self.class_name.endswith(CAUSAL) and hasattr(config, "is_decoder"):
            config.is_decoder = True
        if self.class_name.startswith(POSITIONS_BEHIND_PADDING):
            needed = self.length + config.pad_token_id + 1
            config.max_position_embeddings = max(config.max_position_embeddings, needed)
        network: nn.Module = getattr(transformers, self.class_name)(config)
        if self.class_name.startswith("Reformer"):
            seed_layers(network)
        return network

    def tokens(self) -> Tensor:
        """(B, T) random tokens of the network's vocabulary, or of that of the part that reads text."""
        config = self.network.config.get_text_config()  # type: ignore[union-attr, operator]
        return self.data.tokens(self.batch_size, self.length, config.vocab_size)

    @property
    def bytes_read_per_step(self) -> int | None:
        """None where a token does not need all weights: some belong to other experts, or to a part that sees images."""
        needs_all = not {"num_local_experts", "vision_config"} & self.sizes.keys()
        return super().bytes_read_per_step if needs_all else None


def small_sizes(config_class: Any, sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes with the values of `SMALL`. Parts of a configuration are small, too."""
    values = config_class(**sizes).to_dict()
    small: dict[str, Any] = {
        name: least for name, least in SMALL.items() if isinstance(values.get(name), int) and values[name] > least
    }
    if "vocab_size" in small:
        small |= {name: number for number, name in enumerate(TOKENS) if (values.get(name) or 0) >= SMALL["vocab_size"]}
    for name, part in sizes.items():
        if name.endswith("_config"):
            small[name] = part | {key: least for key, least in SMALL.items() if part.get(key, 0) > least}
    return sizes | small | SMALL_OF.get(config_class.__name__, {})


class SpeechToText(FromConfig, Seq2SeqLM):
    """Whisper: spectrograms of 30 s (B, M, 3000) and the tokens of a transcript (B, T)."""

    sample_unit = "utterances"
    frames: ClassVar[int] = 3000

    def build_batch(self) -> Batch:
        bins: int = self.network.config.num_mel_bins  # type: ignore[union-attr, assignment]
        inputs = {"input_features": self.data.normal(self.batch_size, bins, self.frames)}
        inputs["labels" if self.mode is Mode.TRAIN else "decoder_input_ids"] = self.tokens()
        return Batch(inputs)


#: The task base by the end of a class's name. The first one that fits counts.
TASKS: dict[str, type] = {
    "ForSequenceClassification": SequenceClassifier,
    "ForTokenClassification": TokenClassifier,
    "ForQuestionAnswering": QuestionAnswerer,
    "ForQuestionAnsweringSimple": QuestionAnswerer,
    "ForConditionalGeneration": Seq2SeqLM,
    "ForTextToText": Seq2SeqLM,
    "MTModel": Seq2SeqLM,
    "": LanguageModel,
}


def bases(name: str) -> tuple[type, ...]:
    """What a model of this name derives from."""
    class_name = name.partition(":")[0]
    if class_name == "WhisperForConditionalGeneration":
        return (SpeechToText,)
    if name in GENERATING:
        return FromConfig, CausalLM
    return FromConfig, next(base for end, base in TASKS.items() if class_name.endswith(end))


def model_class(name: str) -> type[FromConfig]:
    """The class of one model: `BertForMaskedLM`, or `BertForMaskedLM:large`."""
    class_name, _, size = name.partition(":")
    config_class = getattr(transformers, class_name).config_class
    attributes: dict[str, Any] = {
        "__module__": __name__,
        "member": name,
        "class_name": class_name,
        "own_attention": class_name.startswith(OWN_MASKS),
        "sizes": SIZES[config_class.__name__][size] if size else {},
        "train_length": length(name),
        "eval_length": length(name),
        "prompt_length": PROMPT,
        "cache_length": CACHE,
    }
    return type("Model", bases(name), attributes)
