"""A host of a run that was spread over several."""

from __future__ import annotations

from typing import Any

import msgspec

from torchzoo.bounds import PositiveSeconds


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a run that was spread over several hosts."""

    name: str
    environment: dict[str, Any]  # its machine and its software
    lanes: tuple[str, ...]
    undisturbed_loop_s: PositiveSeconds | None = None  # `environment.host_loop_s` before the node's first case
