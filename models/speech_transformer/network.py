"""The encoder of Speech-Transformer (Dong, Xu and Xu, 2018, ICASSP, doi:10.1109/ICASSP.2018.8462506).

Shape letters: B batch, S stacked frames, I inputs per stacked frame, C width.
"""

from torch import Tensor, nn

from .._shared.transformer import Config, EncoderLayers, padding, sinusoids


class SpeechEncoder(nn.Module):
    """Stacked frames (B, S, I) and lengths (B,) to (B, S, C) and the mask that hides the padding."""

    positions: Tensor

    def __init__(self, inputs: int, config: Config) -> None:
        super().__init__()
        c = config
        self.projection = nn.Linear(inputs, c.width)
        self.norm = nn.LayerNorm(c.width)
        self.register_buffer("positions", sinusoids(c.longest, c.width), persistent=False)
        self.dropout = nn.Dropout(c.dropout)
        self.layers = EncoderLayers(c)

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        length = frames.shape[1]
        hidden = padding(lengths, length)
        x = self.dropout(self.norm(self.projection(frames)) + self.positions[:length])
        return self.layers(x, hidden), hidden
