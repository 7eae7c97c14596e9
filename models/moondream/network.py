"""moondream (Korrapati, 2024, https://github.com/vikhyat/moondream), put together from transformers' SigLIP and Phi.

Shape letters: B batch, T tokens of text, I tokens of the image, S pixels of a side, V vocabulary size.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PhiConfig, PhiForCausalLM, SiglipVisionConfig, SiglipVisionModel

from torchzoo.model.attention import attend_alike


class Moondream(nn.Module):
    """Images (B, 3, S, S) and tokens (B, T) to Phi's output, with logits (B, I + T, V).

    The image stands behind the first token, which begins the text.
    """

    def __init__(self, vision: SiglipVisionConfig, text: PhiConfig) -> None:
        super().__init__()
        self.vision = SiglipVisionModel(vision)
        self.projection = nn.Sequential(
            nn.Linear(vision.hidden_size, 4 * text.hidden_size),
            nn.GELU(approximate="tanh"),
            nn.Linear(4 * text.hidden_size, text.hidden_size),
        )
        self.language = PhiForCausalLM(text)
        attend_alike(self)

    def forward(self, pixel_values: Tensor, input_ids: Tensor) -> Any:
        image = self.projection(self.vision(pixel_values).last_hidden_state)
        text = self.language.get_input_embeddings()(input_ids)
        return self.language(inputs_embeds=torch.cat([text[:, :1], image, text[:, 1:]], dim=1))
