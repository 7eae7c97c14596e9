"""T5-small (Raffel et al., 2019, arXiv:1910.10683) generating 256 tokens from a text of 2,048.

The network is that of `hf_T5`: 60,506,624 parameters (the paper says 60 million). A step takes 168.7 GFLOP by our
count. The lengths are those of TorchBench's `hf_T5_generate` (https://github.com/pytorch/benchmark at 0e83c44): greedy
decoding of exactly 256 tokens, since no token ends the text. By hand, the encoder takes 2 operations for each of 2,048
tokens and 18.9 million weights: 77.3. Its attention takes 4 x 2,048 x 2,048 x 512 in each of 6 layers: 51.5. The keys
and values of its output take 12.9. The decoder's 256 passes take 11.3 for the layers, 8.4 for the head, and 7.2 for
attention to its own 256 places and the text's 2,048.

TorchBench calls transformers' `generate`. Its cache grows with each token, and it asks on the host, token by token,
whether all texts have ended. Here the cache has 256 places from the start and the loop is written out, so all passes
but the first have the same shapes and none waits for the device. The first one also runs the encoder and computes the
keys and values that the decoder looks up in its output.
"""

import torch
from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from torchzoo.model.tasks import Batch, NetworkModel

from .._shared.greedy import Generated, greedy
from .network import CachedT5


class Model(NetworkModel):
    sample_unit = "sequences"
    network: CachedT5
    vocabulary_size = 32_128
    source_length = 2048
    generated_length = 256
    start_token = 0

    def build_network(self) -> CachedT5:
        config = T5Config(  # type: ignore[call-arg]
            vocab_size=self.vocabulary_size,
            d_model=512,
            d_kv=64,
            d_ff=2048,
            num_layers=6,
            num_heads=8,
            decoder_start_token_id=self.start_token,
        )
        like_source = torch.zeros(self.batch_size, self.source_length, dtype=torch.int64)
        return CachedT5(T5ForConditionalGeneration(config), like_source, length=self.generated_length)

    def build_batch(self) -> Batch:
        start = torch.full((self.batch_size, 1), self.start_token)
        return Batch((start, self.data.tokens(self.batch_size, self.source_length, self.vocabulary_size)))

    @torch.no_grad()
    def eval_step(self) -> Generated:
        self.network.rewind()
        with self.autocast():
            logits, encoded = self.forward()

            def step(tokens: Tensor, _position: Tensor) -> Tensor:
                return self.network(tokens, encoded=encoded)[0]

            return greedy(step, logits, first=1, count=self.generated_length)
