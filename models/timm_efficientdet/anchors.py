"""Anchors of EfficientDet (Tan, Pang and Le, 2019, arXiv:1911.09070) that no cast of the network reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from effdet.anchors import Anchors
from torch import Tensor


class Fp32Anchors(Anchors):  # type: ignore[misc]
    """effdet's anchors, in fp32 like the offsets and scores that effdet casts before it makes boxes of them.

    With anchors in fp64 its boxes would be in fp64 beside scores in fp32, which `nms` refuses. In 16 bits they would be
    off by up to 2 pixels.
    """

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        """Follow the network to its device, and not to its precision."""
        return super()._apply(lambda tensor: tensor.to(fn(tensor).device), *args, **kwargs)
