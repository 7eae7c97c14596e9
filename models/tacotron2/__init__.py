"""Tacotron 2 (Shen et al., 2017, arXiv:1712.05884) turning text into mel spectrograms, teacher-forced.

Texts are padded to 165 symbols and spectrograms to 863 frames (10 s at 22,050 Hz and a hop of 256): what 64 random
clips of LJ Speech are padded to, in the median of 4,000 draws. (The training code in use, github.com/NVIDIA/tacotron2,
makes batches of 64 clips without sorting them by length. Its list of 12,500 texts has 100 symbols in the mean and at
most 187; the longest of 64 has 152 to 182 in 90% of the draws. The durations of all 13,100 clips, `alignments.zip` in
github.com/xcmyz/FastSpeech, are 567 frames in the mean and at most 870; the longest of 64 has 841 to 870.) Here lengths
are uniform with the same means. Attention is masked, and the loss leaves out what follows an utterance's end. The
encoder's LSTM also reads the padding. The training code skips it, which saves 40% of this LSTM's operations; the LSTM
has 1% of all operations of a step.

The decoder is one network that is called once per frame, and not the loop around it, so that a compiler is given what
it can compile: unrolled, the loop is one graph of tens of thousands of operators.

A train step is the paper's: squared errors and stop token, Adam with L2 regularisation; and gradients are clipped to a
norm of 1, as the training code in use does. An eval step is the same forward pass: fed the true frames too, so that its
length does not depend on the weights.
"""

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .loss import Spectrograms, spectrogram_loss
from .network import Config, Decoder, Encoder, Postnet, State


class Model(torchzoo.model.Model):
    sample_unit = "utterances"
    config = Config()
    text_length = 165
    shortest_text_length = 35
    frame_count = 863
    shortest_frame_count = 270

    def build(self) -> None:
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)
        self.postnet = Postnet(self.config)
        self.batch = {
            "text": self.data.tokens(self.batch_size, self.text_length, self.config.symbols),
            "padding": self.end_texts(),
            "mels": self.data.normal(self.batch_size, self.config.mel_channels, self.frame_count),
        }
        if self.mode is Mode.TRAIN:
            self.batch |= self.end_utterances(self.batch["mels"])
            parameters = chain.from_iterable(network.parameters() for network in self.networks().values())
            self.optimizer = torch.optim.Adam(parameters, lr=1e-3, eps=1e-6, weight_decay=1e-6)

    def end_texts(self) -> Tensor:
        """Where the texts have ended, after random lengths: (B, T)."""
        lengths = self.data.integers(self.shortest_text_length, self.text_length + 1, self.batch_size, 1)
        return torch.arange(self.text_length) >= lengths

    def end_utterances(self, mels: Tensor) -> dict[str, Tensor]:
        """Spectrograms that end after random lengths, and the stop targets and masks (B, F) to go with them."""
        lengths = self.data.integers(self.shortest_frame_count, self.frame_count + 1, self.batch_size, 1)
        frames = torch.arange(1, self.frame_count + 1)
        mask = (frames <= lengths).to(mels.dtype)
        return {"mels": mels * mask.unsqueeze(1), "stop": (frames == lengths).to(mels.dtype), "mask": mask}

    def networks(self) -> dict[str, nn.Module]:
        return {"encoder": self.encoder, "decoder": self.decoder, "postnet": self.postnet}

    @property
    def example_inputs(self) -> tuple[Any, ...]:
        return (self.batch["text"],)

    def predict(self) -> Spectrograms:
        """The spectrograms of the batch, each frame made from the true one before it; zeros come before the first."""
        memory, keys = self.encoder(self.batch["text"])
        state = State.start(memory, self.config)
        previous_frames = F.pad(self.batch["mels"], (1, -1)).permute(2, 0, 1).contiguous()  # (F, B, M)
        frames, stop_logits = [], []
        for previous_frame in previous_frames:
            frame, stop_logit, state = self.decoder(previous_frame, memory, keys, self.batch["padding"], state)
            frames.append(frame)
            stop_logits.append(stop_logit)
        before = torch.stack(frames, dim=2)  # (B, M, F)
        return Spectrograms(before, before + self.postnet(before), torch.stack(stop_logits, dim=1))

    def train_step(self) -> Tensor:
        self.optimizer.zero_grad()
        with self.autocast():
            loss = spectrogram_loss(self.predict(), self.batch["mels"], self.batch["stop"], self.batch["mask"])
        self.backward(loss)
        self.step(self.optimizer, max_grad_norm=1.0)
        return loss.detach()

    @torch.no_grad()
    def eval_step(self) -> Spectrograms:
        with self.autocast():
            return self.predict()
