"""wav2vec 2.0 base (Baevski et al., 2020, arXiv:2006.11477) learning letters from 10 s of speech by CTC.

Sizes are transformers' defaults, those of https://huggingface.co/facebook/wav2vec2-base-960h. The paper says 95 million
parameters. Ours has 94,395,552: 768 are missing, the embedding of masked frames. As in the paper's fine-tuning, the
convolutional feature encoder is frozen. Adam (1e-5, betas of 0.9 and 0.98) and dropout, which is 0.1 after the
activations and nowhere else, are those of fairseq's base_960h.yaml. Two random parts that the host draws in each step
are left out: the masks of SpecAugment, with their one embedding, and LayerDrop. 150 letters are what LibriSpeech has in
10 s.

A step of evaluation has 1,185.3 GFLOP for 8 utterances, by our count and by hand: per utterance the feature encoder
49.1, the projection 0.4, the convolution of positions 4.7, and 12 layers 93.9. A step of training has 346.3 per
utterance by hand: the feature encoder once, and the rest, 99.1, three times. That makes 2,771 for 8. By our count it
has 2,807, because the CPU's attention computes its scores once more in the backward pass.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import Wav2Vec2Config, Wav2Vec2ForCTC

from torchzoo.case import Mode
from torchzoo.model.tasks import Batch, SupervisedModel

FIRST_LETTER = 5  # after padding, the ends of sentences, unknown letters and spaces


class Model(SupervisedModel):
    sample_unit = "utterances"
    samples = 160_000  # 10 s at 16 kHz
    letters = 150

    def build_network(self) -> nn.Module:
        config = Wav2Vec2Config(
            activation_dropout=0.1,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            final_dropout=0.0,
            layerdrop=0.0,
            mask_time_prob=0.0,
            ctc_loss_reduction="mean",
        )
        network = Wav2Vec2ForCTC(config)
        network.freeze_feature_encoder()  # type: ignore[no-untyped-call]
        return network

    def build_batch(self) -> Batch:
        inputs = {"input_values": self.data.normal(self.batch_size, self.samples)}
        if self.mode is Mode.TRAIN:
            inputs["labels"] = self.data.integers(FIRST_LETTER, 32, self.batch_size, self.letters)
        return Batch(inputs)

    def compute_loss(self, outputs: Any, targets: None) -> Tensor:
        return outputs.loss

    def build_optimizer(self) -> torch.optim.Optimizer:
        trainable = [parameter for parameter in self.network.parameters() if parameter.requires_grad]
        return torch.optim.Adam(trainable, lr=1e-5, betas=(0.9, 0.98))

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            return self.forward().logits
