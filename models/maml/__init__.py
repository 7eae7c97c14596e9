"""MAML (Finn, Abbeel and Levine, 2017, arXiv:1703.03400), second order, with the paper's network of strided layers.

The batch is counted in tasks, each with one support image and 15 query images of each of its five classes. A train step
is one meta-update: each task in turn is learned by five steps of SGD at 0.4, the loss of the adapted weights on its
query images is differentiated through those steps, and one Adam step follows on the mean over tasks. An eval step
learns one new task in ten steps and gives the logits of its query images. The count of 92,293 parameters of another
implementation includes 512 running statistics, which are never used: tasks are normalised by their own.
"""

from torch import nn

from torchzoo.case import Mode

from .._shared.maml import InnerLoop, MetaLearner, MetaLearning
from .network import Classifier, Config


class Model(MetaLearning):
    def build_learner(self) -> nn.Module:
        steps = 5 if self.mode is Mode.TRAIN else 10
        return MetaLearner(Classifier(Config()), InnerLoop(steps=steps, learning_rate=0.4))
