"""A small gpt-oss (OpenAI, 2025, arXiv:2508.10925), trained on next tokens.

Nobody published this size. It is gpt-oss-20b with 6 of 24 layers and 8 of 32 experts in each, so that training fits
into a GPU with 80 GB. Everything else is as there: the width, the size of an expert, the heads, the vocabulary, four
experts for each token. That makes 2,512,551,792 parameters. Each expert gets a half of all tokens (there: an eighth).

The model card does not name the optimizer: it is that of `CausalLM`. There is no auxiliary loss that balances the
experts, as there is none in the published configuration (`output_router_logits` is false).
"""

from typing import Any, ClassVar

from torchzoo.networks.gpt_oss import GptOss


class Model(GptOss):
    train_length = 1024
    sizes: ClassVar[dict[str, Any]] = GptOss.sizes | {"num_hidden_layers": 6, "num_local_experts": 8}
