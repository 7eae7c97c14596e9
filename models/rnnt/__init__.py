"""MLPerf's RNN-T (Graves, 2012, arXiv:1211.3711; He et al., 2018, arXiv:1811.06621) transcribing LibriSpeech.

The 49-million-parameter model of MLPerf Training (https://github.com/mlcommons/training, rnn_speech_recognition):
1,023 word pieces and the blank. Utterances are 400 to 500 frames of 30 ms (12 to 15 s), three 10 ms frames of 80 mel
channels spliced to one, and 48 to 60 word pieces long, padded.

A train step minimises the whole transducer loss, over all alignments, by one step of LAMB. MLPerf's augmentation of
spectrograms and its moving average of the weights do not belong to the step. An eval step really decodes, greedily, on
the device. It makes a fixed number of decisions, as many as there are encoded frames and word pieces in the longest
utterances, so that the work does not depend on the weights. Each decision steps the prediction network, too; its result
is kept where a word piece came out. A decoder of batches has to work like this.

Ours has 49,006,080 parameters. A step of evaluation has 31.67 GFLOP for one utterance, by our count and by hand: the
encoder 28.2, and 310 decisions 3.4. A step of training has 1,072.8 for 8 utterances. By hand it has 1,073.1: per
utterance three times the encoder's 28.2, the prediction network's 0.5 and the joint network's 16.3 (of which 250 x 61
rows of logits have 16.0), less the gradient of the frames, which nothing needs (1.0).
"""

from itertools import chain
from typing import Any

import torch
from timm.optim import Lamb  # type: ignore[attr-defined]
from torch import Tensor, nn

import torchzoo.model
from torchzoo.case import Mode

from .decoding import Transcripts, greedy_decode
from .loss import transducer_loss
from .network import Config, Encoder, Joint, Prediction


class Model(torchzoo.model.Model):
    sample_unit = "utterances"
    config = Config()
    shortest_utterance = 400
    longest_utterance = 500
    shortest_text = 48
    longest_text = 60

    def build(self) -> None:
        c = self.config
        self.encoder, self.prediction, self.joint = Encoder(c), Prediction(c), Joint(c)
        self.batch = {
            "frames": self.data.normal(self.batch_size, self.longest_utterance, c.inputs),
            "frame_counts": self.data.integers(self.shortest_utterance, self.longest_utterance + 1, self.batch_size),
        }
        if self.mode is Mode.TRAIN:
            self.batch["text"] = self.data.integers(1, c.vocabulary_size, self.batch_size, self.longest_text)
            self.batch["text_lengths"] = self.data.integers(self.shortest_text, self.longest_text + 1, self.batch_size)
            parameters = chain.from_iterable(network.parameters() for network in self.networks().values())
            self.optimizer = Lamb(parameters, lr=4e-3, eps=1e-9, weight_decay=1e-3, max_grad_norm=1.0)

    def networks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "prediction": self.prediction, "joint": self.joint}

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        return (self.batch["frames"],)

    def encode(self) -> tuple[Tensor, Tensor]:
        """Encoded frames (B, T, E), and how many of them belong to each utterance (B,)."""
        return self.encoder(self.batch["frames"]), self.batch["frame_counts"] // self.config.stacked_frames

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        text = self.batch["text"]
        with self.autocast():
            encoded, encoded_counts = self.encode()
            predicted, _ = self.prediction(self.prediction.after_start(text))
            logits = self.joint(encoded, predicted)
            loss = transducer_loss(logits, text, encoded_counts, self.batch["text_lengths"])
        self.backward(loss)
        self.step(self.optimizer)
        return loss.detach()

    @torch.no_grad()
    def eval_step(self) -> Transcripts:
        with self.autocast():
            encoded, encoded_counts = self.encode()
            decisions = encoded.shape[1] + self.longest_text
            return greedy_decode(self.prediction, self.joint, encoded, encoded_counts, decisions)
