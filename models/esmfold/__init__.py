"""ESMFold v1 (Lin et al., 2022, doi:10.1126/science.ade2574) folding a protein of 256 amino acids.

Sizes: the configuration of https://huggingface.co/facebook/esmfold_v1: ESM-2 with 3 billion parameters (36 layers,
width 2560), a folding trunk of 48 blocks, and a structure module of 8. It has 3,525,038,915 parameters. All but the
language model are 693 million; the authors give 690 million (https://github.com/facebookresearch/esm). The trunk runs
four times, each time on its own output (recycling), and its triangle attention goes in chunks of 128 rows; both are
transformers' defaults. The published weights keep the language model in half precision; here it has the precision of
the case.

A step takes 20.7 TFLOP by hand; it is not counted, because the step waits for the device. With L = 256 amino acids: the
language model has 258 tokens times 36 layers of 12 x 2,560^2 weights, 1.5 TFLOP with attention. A block of the trunk
has, for L^2 pairs, 31 x 128^2 weights and 5,120 more, 6 x 128 L^3 multiply-adds in the triangles, and 13 x 1,024^2
weights for L amino acids; 48 blocks, four times, take 19.2. The structure module and the heads, which are small, are
left out.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import EsmConfig, EsmForProteinFolding

from torchzoo.model.tasks import Batch, LanguageModel

VOCABULARY = ["<cls>", "<pad>", "<eos>", "<unk>", *"LAGVSERTIDPKQNFYMHWCXBUZO.-", "<null_1>", "<mask>"]
EXCEPT_SIZES: dict[str, Any] = {
    "vocab_size": 33,
    "vocab_list": VOCABULARY,
    "pad_token_id": 1,
    "mask_token_id": 32,
    "token_dropout": True,
    "max_position_embeddings": 1026,
    "position_embedding_type": "rotary",
    "layer_norm_eps": 1e-5,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "is_folding_model": True,
}


class Model(LanguageModel):
    sample_unit = "proteins"
    eval_length = 256
    sizes: ClassVar[dict[str, Any]] = {
        "hidden_size": 2560,
        "num_hidden_layers": 36,
        "num_attention_heads": 40,
        "intermediate_size": 10240,
    }
    trunk: ClassVar[dict[str, Any]] = {}  # transformers' defaults are the published sizes

    @classmethod
    def small(cls) -> type["Model"]:
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        trunk = {"num_blocks": 2, "sequence_state_dim": 32, "pairwise_state_dim": 32, "max_recycles": 2}
        return type("Small", (cls,), {"sizes": sizes, "trunk": trunk, "eval_length": 16})

    def build_network(self) -> nn.Module:
        folding = {"fp16_esm": False, "trunk": self.trunk}
        network: Any = EsmForProteinFolding(EsmConfig(**EXCEPT_SIZES, **self.sizes, esmfold_config=folding))
        # transformers makes these buffers in the first call. Made there by compiled code, they would be no buffers.
        network.trunk.structure_module._init_residue_constants(network.dtype, network.device)
        return network

    def build_batch(self) -> Batch:
        return Batch({"input_ids": self.data.tokens(self.batch_size, self.eval_length, 20)})

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        with self.autocast():
            outputs = self.forward()
        return outputs.positions, outputs.plddt
