"""Declare the other values as a backend, as data that needs no torch. `other_values.py` draws them."""

from __future__ import annotations

from torchzoo.backends import BackendInfo
from torchzoo.case import Mode

BACKENDS = {
    "values": BackendInfo(
        module="other_values",
        options=("trained", "pruned", "zeros"),
        modes=(Mode.EVAL, Mode.PREFILL),
        takes_ranks=False,
        takes_quantized=False,
        why_limited="weights are exchanged around steps of inference on one device",
    ),
}
