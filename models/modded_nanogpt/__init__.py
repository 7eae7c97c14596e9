"""modded-nanogpt (https://github.com/KellerJordan/modded-nanogpt): the GPT that trains to GPT-2's loss in minutes.

It is the record of August 23, 2025, which TorchBench has as `modded_nanogpt` (https://github.com/pytorch/benchmark at
0e83c44): 12 layers, width 768, 275,743,566 parameters by our count, and Muon (Jordan et al., 2024,
https://kellerjordan.github.io/posts/muon/) on all matrices between embeddings and head. `network.py` says what is
unusual. TorchBench's sizes are taken over: one sequence of 6,144 tokens (the record has eight of 49,152) and windows of
7 and 3 blocks of 128, those of half-way through the training. TorchBench runs the forward and backward pass; a train
step here is the whole update, and an eval step the validation loss. Of the parameters, 82,576,152 are in the layers,
the rest in the head and in four tables of embeddings, of which three are mixed into values. We found no published
number; by hand, the head and a table have 38,633,472 each, and 54 scalars are left. Learning rates: 0.05 for Muon,
0.008 for Adam, times 75 for embeddings and 5 for scalars.

By our count, an eval step takes 1.60 TFLOP, a train step 6.37. By hand, evaluation takes 2 operations for each token
and weight: 1.015 for the layers' 82.6 million and 0.475 for the head's 38.6 million. Attention adds 4 x 6,144 x K x 768
for windows of K keys, 896 in three layers and 384 in eight: 0.109. Training takes three times as much, 4.79, and Muon's
five iterations on each matrix take 1.576. That is a quarter of the step, because it has one sequence. In the record
each of eight GPUs has eight times as many tokens, and an eighth of the matrices to update.

Different from the record:
- Attention goes block by block with SDPA: the 128 queries of a block meet the 7 or 3 blocks of keys in its window, with
  a mask for order and documents. The record's FlexAttention also leaves out what is of other documents. In eager mode
  it would write out all 6,144 x 6,144 scores, and on a CPU it has no backward pass.
- Precision is an axis, so the head does not multiply in FP8, and embeddings are not kept in bfloat16.
- Output projections, gates and the head begin with small random weights, not with zeros, so that the first update
  changes all parameters, as later ones do.
- The loss is the mean over tokens, not their sum. Both optimizers divide the scale out again.
- Scalars: those that pad them for eight GPUs are left out.
"""

from torch import Tensor

from torchzoo.model.tasks import Batch, SupervisedModel

from .muon import MuonAdam
from .network import Config, ModdedGPT


class Model(SupervisedModel):
    sample_unit = "sequences"
    network: ModdedGPT
    config = Config()
    document_length = 1024  # on average

    @classmethod
    def small(cls) -> type["Model"]:
        config = Config(vocabulary_size=512, length=64, heads=2, width=32, block=4, document_start=511)
        return type("Small", (cls,), {"config": config, "document_length": 16})

    def build_network(self) -> ModdedGPT:
        return ModdedGPT(self.config)

    def build_batch(self) -> Batch:
        c = self.config
        words = self.data.tokens(self.batch_size, c.length + 1, c.document_start)
        starts = self.data.uniform(self.batch_size, c.length + 1) < 1 / self.document_length
        text = words.masked_fill(starts, c.document_start)
        return Batch((text[:, :-1].contiguous(), text[:, 1:].contiguous()))

    def compute_loss(self, outputs: Tensor, targets: None) -> Tensor:
        return outputs

    def build_optimizer(self) -> MuonAdam:
        network = self.network
        embeddings = [*network.token.parameters(), *network.value_tables.parameters()]
        scalars = [network.skips, network.mixing, network.value_mixing]
        groups = [
            {"params": list(network.blocks.parameters()), "lr": 0.05, "is_matrix": True},
            {"params": embeddings, "lr": 75 * 0.008},
            {"params": scalars, "lr": 5 * 0.008},
            {"params": list(network.head.parameters()), "lr": 0.008},
        ]
        return MuonAdam(groups)
