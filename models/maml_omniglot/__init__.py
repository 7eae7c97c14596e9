"""MAML (Finn, Abbeel and Levine, 2017, arXiv:1703.03400), second order, on 5-way 1-shot Omniglot tasks.

The batch is the meta-batch, counted in tasks; a task has one support image and 15 query images of each of its five
classes. A train step is one meta-update: each task in turn is learned by five steps of SGD on its support images, the
loss of the adapted weights on its query images is differentiated through those steps, and one Adam step follows on the
mean over tasks. An eval step adapts to each task in the same way and gives the logits of its query images. Tasks are
adapted to one after another, as the published implementations do; `functorch_maml_omniglot` does all at once.
"""

from torch import nn

from .._shared.maml import InnerLoop, MetaLearner, MetaLearning, OmniglotClassifier


class Model(MetaLearning):
    def build_learner(self) -> nn.Module:
        return MetaLearner(OmniglotClassifier(), InnerLoop(steps=5, learning_rate=0.1))
