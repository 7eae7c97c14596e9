"""Speech-Transformer (Dong, Xu and Xu, 2018, ICASSP, doi:10.1109/ICASSP.2018.8462506) transcribing Mandarin speech.

Frames of 80 mel channels, four stacked to one (320 inputs), 4,233 characters, embedding and projection shared; no
convolutions before the encoder, as in the PyTorch implementation in use. (That one, trained on a sample of the corpus
with 1,014 characters, counts 44,823,040 parameters; 3,219 more characters of 512 make the rest.) Utterances are 150 to
200 stacked frames, 6 to 8 s, and 15 to 20 characters long, padded.

A train step is one update: label smoothing, Adam, learning rate warmed up. An eval step really decodes: beam search
with a beam of 5 over 100 steps, always all of them, so that the work does not depend on the weights.

It decodes with caches: a step computes one position of all hypotheses together, and the keys and values of what the
encoder made are computed once. The implementation in use (https://github.com/kaituoxu/Speech-Transformer, commit
43d83ea, `recognize_beam` in `src/transformer/decoder.py`) has no caches. For each character it goes through its
hypotheses one by one and computes the whole prefix again, and those keys and values too. The logits are the same, but
the work is not: with the same lengths it does 52 times the operations (1.8 TFLOP instead of 0.035), and it calls the
decoder 496 times instead of 100. So an eval step here tells how fast such a model decodes, not how fast that code does.
"""

from torch import Tensor, nn

from .._shared.transformer import Config, Transformer
from .._shared.transformer_model import TransformerModel
from .network import SpeechEncoder


class Model(TransformerModel):
    sample_unit = "utterances"
    config = Config(vocabulary_size=4233, tied_projection=True)
    inputs = 320
    shortest_source = 150
    longest_source = 200
    shortest_target = 15
    longest_target = 20
    beam_size = 5
    decoding_length = 100

    def build_network(self) -> nn.Module:
        return Transformer(SpeechEncoder(self.inputs, self.config), self.config)

    def build_source(self) -> tuple[Tensor, Tensor]:
        frames = self.data.normal(self.batch_size, self.longest_source, self.inputs)
        return frames, self.data.integers(self.shortest_source, self.longest_source + 1, self.batch_size)
