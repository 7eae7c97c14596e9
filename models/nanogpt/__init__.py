"""GPT-2 124M (Radford et al., 2019) with nanoGPT's sampling (https://github.com/karpathy/nanoGPT, 2022).

The network is that of `nanogpt_gpt2`, here with biases: 124,475,904 parameters. The published 124,439,808 have 50,257
words; here there are 50,304, as nanoGPT rounds them up. The work is another: it is TorchBench's `nanogpt`
(https://github.com/pytorch/benchmark at 0e83c44), a single sequence of 64 tokens. An eval step samples 32 tokens after
them at a temperature of 0.8 from the 200 most probable ones. nanoGPT has no cache: for each token, the whole sequence
is computed again, one token longer than before, and the logits of its last token: 442 GFLOP by our count. By hand: the
32 passes have 64 to 95 tokens, 2,544 in all. Each token takes 2 operations for each of the layers' 84.9 million
weights: 432.1. The head (38.6 million weights) reads one token in each pass: 2.5. Attention adds 4 T x T x 768 in each
layer: 7.6.

A train step is nanoGPT's update on 64 tokens, with the loss of all of them: 47.9 GFLOP by our count. By hand: 6
operations for each token and each of 123.6 million weights in layers and head make 47.45. Attention adds 0.45.
(TorchBench minimises the mean of the last token's logits, which trains nothing, and does not clip gradients.)
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from .._shared.gpt import Config
from .._shared.gpt_model import GPTModel, MicroBatch
from .._shared.greedy import Generated


class Model(GPTModel):
    config = Config(vocabulary_size=50_304, length=1024, layers=12, heads=12, width=768, dropout=0.0, bias=True)
    learning_rate = 6e-4
    betas = (0.9, 0.95)
    prompt_length = 64
    generated_length = 32
    temperature = 0.8
    candidates = 200

    def build_micro_batch(self) -> MicroBatch:
        text = self.data.tokens(self.batch_size, self.prompt_length + 1, self.config.vocabulary_size)
        return MicroBatch(text[:, :-1].contiguous(), text[:, 1:].contiguous())

    @torch.no_grad()
    def eval_step(self) -> Generated:  # type: ignore[override]
        tokens, scores = self.batch[0].tokens, []
        for _ in range(self.generated_length):
            with self.autocast():
                logits = self.network(tokens, last_only=True)[0][:, -1]
            token, score = self.sample(logits)
            tokens = torch.cat([tokens, token], dim=1)
            scores.append(score)
        return Generated(tokens[:, self.prompt_length :], torch.cat(scores, dim=1))

    def sample(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """From logits (B, V), a token (B, 1) and its log-probability (B, 1)."""
        logits = logits / self.temperature
        least = logits.topk(self.candidates).values[:, -1:]
        log_probabilities = F.log_softmax(logits.masked_fill(logits < least, float("-inf")), dim=1)
        token = torch.multinomial(log_probabilities.exp(), 1)
        return token, log_probabilities.gather(1, token)
