"""One recorded call of a network: what the ahead-of-time backends compile for."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn


@dataclass(frozen=True)
class Call:
    """The inputs and the kind of output of a network's first call in an eager step."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    output_type: type

    def as_kwargs(self, network: nn.Module) -> dict[str, Any]:
        """All inputs by the names `network.forward` gives them."""
        return dict(inspect.signature(network.forward).bind(*self.args, **self.kwargs).arguments)
