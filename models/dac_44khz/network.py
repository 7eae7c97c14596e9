"""transformers' DAC, whose quantizer takes all codebooks in training, too."""

from transformers import DacModel


class Codec(DacModel):  # type: ignore[no-untyped-call]
    """In training mode the quantizer draws numbers of codebooks on the host. In evaluation mode it takes all of them.

    Nothing else in it depends on the mode.
    """

    def train(self, mode: bool = True) -> "Codec":  # noqa: FBT001, FBT002 - as in PyTorch
        super().train(mode)
        self.quantizer.eval()
        return self
