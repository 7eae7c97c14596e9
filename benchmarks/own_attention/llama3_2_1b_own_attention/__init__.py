"""Llama 3.2 1B (Meta, 2024) as `llama3_2_1b`, with attention as transformers has it.

    python run.py llama3_2_1b llama3_2_1b_own_attention --models-dir benchmarks/own_attention -d cuda --backend inductor

Compiled, its attention gets masks, reads all places of the cache in a prefill, and copies the cache in decoding. In
eager it does none of it: see `torchzoo/model/attention.py`. So the speedup compares unequal work, and its difference
to that of `llama3_2_1b` is what transformers' own way costs.
"""

from typing import Any

from torchzoo.zoo.catalog import find_models, load_model_class

Llama: Any = load_model_class(find_models().spec("llama3_2_1b"))


class Model(Llama):  # type: ignore[misc]
    own_attention = True
