"""Sizes that have a name, beside the default of a configuration class.

Each is that of published weights: the names are those of the weights on the hub without what the class says already.
"""

from typing import Any

#: Arguments of a configuration class by the name of the size.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "AlbertConfig": {  # albert-base-v2; the default is that of albert-xxlarge
        "base": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
    },
    "BertConfig": {  # bert-large-uncased
        "large": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    },
    "CamembertConfig": {  # camembert-base
        "base": {"vocab_size": 32_005, "max_position_embeddings": 514, "type_vocab_size": 1},
    },
    "GPT2Config": {
        "distil": {"n_layer": 6},  # distilgpt2
        "medium": {"n_embd": 1024, "n_layer": 24, "n_head": 16},
        "large": {"n_embd": 1280, "n_layer": 36, "n_head": 20},
        "xl": {"n_embd": 1600, "n_layer": 48, "n_head": 25},
    },
    "LongformerConfig": {  # allenai/longformer-base-4096
        "base": {"vocab_size": 50_265, "max_position_embeddings": 4098, "type_vocab_size": 1},
    },
    "RobertaConfig": {
        "base": {"max_position_embeddings": 514, "type_vocab_size": 1},
        "large": {
            "hidden_size": 1024,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
            "max_position_embeddings": 514,
            "type_vocab_size": 1,
        },
    },
    "T5Config": {
        "small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},  # as the default is
        "base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
        "large": {"d_model": 1024, "d_kv": 64, "d_ff": 4096, "num_layers": 24, "num_heads": 16},
    },
    "LlamaConfig": {
        "3.2-1b": {  # meta-llama/Llama-3.2-1B
            "vocab_size": 128_256,
            "hidden_size": 2048,
            "intermediate_size": 8192,
            "num_hidden_layers": 16,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "max_position_embeddings": 131_072,
            "rms_norm_eps": 1e-5,
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500_000.0,
                "factor": 32.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
            "tie_word_embeddings": True,
        },
    },
    "Gemma2Config": {  # google/gemma-2-2b
        "2b": {
            "vocab_size": 256_000,
            "hidden_size": 2304,
            "intermediate_size": 9216,
            "num_hidden_layers": 26,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "sliding_window": 4096,
        },
    },
    "Gemma3Config": {  # google/gemma-3-4b-it
        "4b": {
            "text_config": {
                "vocab_size": 262_208,
                "hidden_size": 2560,
                "intermediate_size": 10_240,
                "num_hidden_layers": 34,
                "num_attention_heads": 8,
                "num_key_value_heads": 4,
                "head_dim": 256,
                "sliding_window": 1024,
            },
            "vision_config": {
                "hidden_size": 1152,
                "intermediate_size": 4304,
                "num_hidden_layers": 27,
                "num_attention_heads": 16,
                "image_size": 896,
                "patch_size": 14,
                "vision_use_head": False,
            },
        },
    },
    "Qwen3Config": {  # Qwen/Qwen3-0.6B
        "0.6b": {
            "vocab_size": 151_936,
            "hidden_size": 1024,
            "intermediate_size": 3072,
            "num_hidden_layers": 28,
            "num_attention_heads": 16,
            "num_key_value_heads": 8,
            "head_dim": 128,
            "max_position_embeddings": 40_960,
            "tie_word_embeddings": True,
        },
    },
    "MistralConfig": {  # mistralai/Mistral-7B-Instruct-v0.3
        "7b": {
            "vocab_size": 32_768,
            "hidden_size": 4096,
            "intermediate_size": 14_336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 32_768,
            "sliding_window": None,
        },
    },
    "GptOssConfig": {  # openai/gpt-oss-20b
        "20b": {"num_hidden_layers": 24, "num_local_experts": 32},
    },
}
