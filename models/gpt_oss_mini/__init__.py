"""A small gpt-oss (OpenAI, 2025, arXiv:2508.10925), trained on next tokens.

Nobody published this size. It is gpt-oss-20b with 6 of 24 layers and 8 of 32 experts in each, so that training fits
into a GPU with 80 GB. Everything else is as there: the width, the size of an expert, the heads, the vocabulary, four
experts for each token. Each expert gets a half of all tokens (there: an eighth). That makes 2,512,551,792 parameters.
By hand: 225,713,672 in each layer (26,550,144 of attention, 24,891,840 of each expert, 28,808 of router and
normalisations), 579,133,440 in each of two tables, and 2,880 in the last normalisation.

A step of 2 x 1,024 tokens takes 17.0 TFLOP by our count. By hand: 6 operations for each token and active weight make
9.3 in the layers and 7.1 in the head. Attention adds 12 T x T x 4,096 for each sequence and layer (what mask and window
hide counts, too): 0.6.

The model card does not name the optimizer: it is that of `CausalLM`. There is no auxiliary loss that balances the
experts, as there is none in the published configuration (`output_router_logits` is false).
"""

from typing import Any, ClassVar

from .._shared.gpt_oss import GptOss


class Model(GptOss):
    train_length = 1024
    sizes: ClassVar[dict[str, Any]] = GptOss.sizes | {"num_hidden_layers": 6, "num_local_experts": 8}
