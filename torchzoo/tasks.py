"""The former place of `torchzoo.model.tasks`, for model folders outside of this repository that import from here."""

from torchzoo.model.tasks import *  # noqa: F403
