"""Declare the changes of the step as backends, as data that needs no torch. Their code is in `step_changes.py`."""

from __future__ import annotations

from torchzoo.backends import BackendInfo
from torchzoo.case import Mode

BACKENDS = {
    "optimizer": BackendInfo(
        module="step_changes",
        makes_updates=True,
        options=("for-loop", "foreach", "fused"),
        modes=(Mode.TRAIN,),
        why_limited="only training has an optimizer, and nothing is compiled",
    ),
    "zero_grad": BackendInfo(
        module="step_changes",
        options=("kernels", "foreach", "none"),
        modes=(Mode.TRAIN,),
        why_limited="only training has gradients to reset, and nothing is compiled",
    ),
    "rsqrt": BackendInfo(
        module="step_changes",
        models=("hf_Reformer",),
        why_limited="of the models, only hf_Reformer had the square root of a number computed on the device",
    ),
    "offload": BackendInfo(
        module="step_changes",
        modes=(Mode.EVAL,),
        devices=("cuda", "xpu"),
        why_limited="networks are moved to the host and back in inference, from an accelerator",
    ),
}
