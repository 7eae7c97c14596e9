"""The Transformer (Vaswani et al., 2017, arXiv:1706.03762), base size, translating sentences of up to 30 words.

Vocabularies of 9,521 words on both sides, as the Multi30k corpus gives them; embeddings and projection share nothing.
As in the PyTorch implementation that the model is named after, attention has no biases, and embedded sentences are
normalised. Batches are as a bucket iterator makes them: sentences of 20 to 30 tokens, padded. Training is the paper's:
label smoothing, Adam, learning rate warmed up. Evaluation is the teacher-forced forward pass; set `beam_size` for real
decoding, 1 for greedy, more for beam search.
"""

from torch import Tensor, nn

from .._shared.transformer import Config, TextEncoder, Transformer
from .._shared.transformer_model import TransformerModel


class Model(TransformerModel):
    sample_unit = "sentences"
    config = Config(vocabulary_size=9521, attention_bias=False, embedding_norm=True)
    source_vocabulary_size = 9521
    shortest_target = 20
    longest_target = 30
    decoding_length = 30

    def build_network(self) -> nn.Module:
        return Transformer(TextEncoder(self.source_vocabulary_size, self.config), self.config)

    def build_source(self) -> tuple[Tensor, Tensor]:
        return self.random_sentences(20, 30, self.source_vocabulary_size)
