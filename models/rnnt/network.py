"""The three networks of an RNN transducer (Graves, 2012, arXiv:1211.3711), with the sizes of MLPerf Training.

Shape letters: B batch, F spliced frames, T encoded frames, I inputs per frame, E encoder width, U word pieces + 1,
P prediction width, J joint width, V vocabulary size, blank included.
"""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

BLANK = 0
State = tuple[Tensor, Tensor]  # an LSTM's hidden and cell state, (layers, B, P) each


@dataclass(frozen=True, kw_only=True)
class Config:
    vocabulary_size: int = 1024
    inputs: int = 240

    encoder_width: int = 1024
    encoder_layers_before_stacking: int = 2
    encoder_layers_after_stacking: int = 3
    stacked_frames: int = 2
    encoder_dropout: float = 0.1

    prediction_width: int = 512
    prediction_layers: int = 2
    prediction_dropout: float = 0.3

    joint_width: int = 512
    joint_dropout: float = 0.3


class Encoder(nn.Module):
    """Frames (B, F, I) to (B, T, E); T is half of F. Padding at the end of an utterance does not change its frames."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c, width = config, config.encoder_width
        self.stacked_frames = c.stacked_frames
        self.before = lstm(c.inputs, width, c.encoder_layers_before_stacking, c.encoder_dropout)
        self.after = lstm(c.stacked_frames * width, width, c.encoder_layers_after_stacking, c.encoder_dropout)
        self.dropout = nn.Dropout(c.encoder_dropout)

    def forward(self, frames: Tensor) -> Tensor:
        x, _ = self.before(frames)
        x = self.dropout(x).unflatten(1, (-1, self.stacked_frames)).flatten(2)  # (B, T, 2 E)
        x, _ = self.after(x)
        encoded: Tensor = self.dropout(x)
        return encoded


class Prediction(nn.Module):
    """Word pieces (B, U) and the state before them to (B, U, P) and the state after; the blank is embedded as zeros."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.embedding = nn.Embedding(c.vocabulary_size - 1, c.prediction_width)
        self.lstm = lstm(c.prediction_width, c.prediction_width, c.prediction_layers, c.prediction_dropout)
        self.dropout = nn.Dropout(c.prediction_dropout)

    def forward(self, pieces: Tensor, state: State | None = None) -> tuple[Tensor, State]:
        is_piece = (pieces != BLANK).unsqueeze(2)
        x = self.embedding((pieces - 1).clamp(min=0)) * is_piece
        x, state = self.lstm(x, state)
        return self.dropout(x), state

    @staticmethod
    def after_start(pieces: Tensor) -> Tensor:
        """(B, U - 1) to (B, U): the text begins with the blank."""
        return F.pad(pieces, (1, 0), value=BLANK)


class Joint(nn.Module):
    """Encoded frames (B, T, E) and predictions (B, U, P) to logits (B, T, U, V) for each pair of them."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        c = config
        self.frame = nn.Linear(c.encoder_width, c.joint_width)
        self.prediction = nn.Linear(c.prediction_width, c.joint_width)
        self.dropout = nn.Dropout(c.joint_dropout)
        self.output = nn.Linear(c.joint_width, c.vocabulary_size)

    def forward(self, encoded: Tensor, predicted: Tensor) -> Tensor:
        both = self.frame(encoded).unsqueeze(2) + self.prediction(predicted).unsqueeze(1)  # (B, T, U, J)
        logits: Tensor = self.output(self.dropout(F.relu(both)))
        return logits


def lstm(input_size: int, width: int, layers: int, dropout: float) -> nn.LSTM:
    """An LSTM whose forget gates start with a bias of 1."""
    network = nn.LSTM(input_size, width, layers, dropout=dropout, batch_first=True)
    for name, parameter in network.named_parameters():
        if "bias" in name:
            nn.init.constant_(parameter[width : 2 * width], 1.0 if "bias_ih" in name else 0.0)
    return network
