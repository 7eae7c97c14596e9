"""CM3Leon (Yu et al., 2023, arXiv:2309.02591) generating 64 tokens after a prompt of 64.

CM3Leon writes text and images as one sequence of tokens, with the decoder of OPT (Zhang et al., 2022,
arXiv:2205.01068). The paper leaves out its biases and the weights of its normalisations; TorchBench's
`cm3leon_generate` (https://github.com/pytorch/benchmark at 0e83c44), whose sizes these are, keeps them: 24 layers of 16
heads, width 1,536, 2,048 words and positions, the output layer tied to the embeddings. That makes 686,251,008
parameters: 679,956,480 in the layers, the rest in the two tables and the last normalisation. A step takes 175.4 GFLOP
by our count. By hand: 2 operations for each of 127 tokens (64 of the prompt, 63 chosen ones) and 679,477,248 weights of
the layers make 172.6. Attention to all 128 places adds 4 x 128 x 1,536 for each token and layer: 2.4. The head, which
computes logits 64 times, adds 0.4. (We found no count of the authors' for these sizes.)

An eval step reads the prompt into a static cache, then chooses the most probable token 64 times, each time with a pass
of the whole network over one token. TorchBench's caches grow by a token in each pass (here they have 128 places from
the start), and its first pass reads the last token of the prompt only, so that it has 65 passes over one token; here
there are 63 and the prompt's. Its table of positions has 2,048 rows more, which nothing reads.
"""

import torch

from torchzoo.model.tasks import Batch, NetworkModel

from .._shared.greedy import Generated, greedy
from .network import Config, Decoder


class Model(NetworkModel):
    sample_unit = "sequences"
    config = Config()
    prompt_length = 64
    generated_length = 64

    @classmethod
    def small(cls) -> type["Model"]:
        config = Config(layers=2, heads=2, width=64)
        return type("Small", (cls,), {"config": config, "prompt_length": 8, "generated_length": 8})

    def build_network(self) -> Decoder:
        return Decoder(self.config, self.batch_size, self.prompt_length + self.generated_length)

    def build_batch(self) -> Batch:
        tokens = self.data.tokens(self.batch_size, self.prompt_length, self.config.vocabulary_size)
        return Batch((tokens, 0))

    @torch.no_grad()
    def eval_step(self) -> Generated:
        with self.autocast():
            logits = self.forward()
            return greedy(self.network, logits, first=self.prompt_length, count=self.generated_length)
