"""Find out whether training stays finite. A step with NaN or infinity is not the work that its label names.

The rule is the same for every model, precision and backend, and is applied by running. Only training is checked: the
outputs of an evaluation may have infinities by nature, such as the -inf of a mask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from torch import Tensor

from torchzoo.backends import NotFiniteByBackend, NotRunnable
from torchzoo.case import EAGER, Case, Mode
from torchzoo.model import Model
from torchzoo.model.tensors import is_finite


class NotFinite(Exception):
    """The loss, a parameter or a buffer of a model in training is not finite.

    Args:
        what: the loss, or the name of the parameter or buffer.
        steps: how many steps the model has taken, at most.
        candidate_stepped: whether the candidate took some of these steps.
    """

    def __init__(self, what: str, steps: int, *, candidate_stepped: bool) -> None:
        super().__init__(f"not finite within {steps:,} training steps: {what}")
        self.steps = steps
        self.candidate_stepped = candidate_stepped


#: Loss and model can stay finite while the gradients are not, since then nothing is learned.
SKIPS_UPDATES = "the gradients, so that the GradScaler skips each update"


class FiniteWatch:
    """Watch the parameters of a model and those buffers that are finite before the first step.

    A mask of -inf or the empty range of an observer is not finite by nature. Integers are not checked.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._is_training = model.mode is Mode.TRAIN
        self._buffers = {name for name, buffer in _buffers(model) if self._is_training and is_finite(buffer)}

    def not_finite(self) -> str | None:
        """Return the first parameter or buffer that is not finite, in words: `parameter network.conv1.weight`."""
        for name, parameter in _parameters(self._model):
            if not is_finite(parameter):
                return f"parameter {name}"
        for name, buffer in _buffers(self._model):
            if name in self._buffers and not is_finite(buffer):
                return f"buffer {name}"
        return None

    def require(self, steps: int, *, loss_is_finite: bool, candidate_stepped: bool, makes_updates: bool = True) -> None:
        """Raise `NotFinite` if the loss or a part of the model is not finite after so many steps. Never raise in eval.

        `makes_updates` says whether the last step made its update. A GradScaler skips it if a gradient is not finite.
        """
        if self._is_training:
            what = self.not_finite() if loss_is_finite else "the loss"
            what = SKIPS_UPDATES if what is None and not makes_updates else what
            if what is not None:
                raise NotFinite(what, steps, candidate_stepped=candidate_stepped)


def loss_scale(model: Model) -> float:
    """Return the factor of the loss; a GradScaler that skips an update reduces it."""
    return 1.0 if model.scaler is None else float(model.scaler.get_scale())


def why_not_measured(found: NotFinite, case: Case, build: Callable[[], Model]) -> NotRunnable | NotFiniteByBackend:
    """Return why a case whose training is not finite can't be measured. The caller must have dropped its model.

    Eager takes as many steps as the case did, alone and on a new model, with a check after each step. If eager is not
    finite either, the case is skipped, and the reason names what is not finite first. If eager is finite, the backend
    is to blame. (Eager that stays finite only this time depends on chance; such a case is skipped, too.)
    """
    model = build()
    watch = FiniteWatch(model)
    scale = loss_scale(model)
    for step in range(1, found.steps + 1):
        scale = loss_scale(model)
        what = "the loss" if not is_finite(model.train_step()) else watch.not_finite()
        if what is not None:
            return NotRunnable(f"not finite after {step:,} training step{'s' * (step > 1)}: {what}")
    if loss_scale(model) < scale:
        return NotRunnable(f"not finite after {found.steps:,} training steps: {SKIPS_UPDATES}")
    if not found.candidate_stepped:
        return NotRunnable(str(found))
    assert case.backend != EAGER
    return NotFiniteByBackend(f"{case.backend}: {found}; eager alone stays finite for as many from the same start")


def _parameters(model: Model) -> Iterator[tuple[str, Tensor]]:
    for network_name, network in model.networks().items():
        for name, parameter in network.named_parameters():
            yield f"{network_name}.{name}", parameter


def _buffers(model: Model) -> Iterator[tuple[str, Tensor]]:
    for network_name, network in model.networks().items():
        for name, buffer in network.named_buffers():
            yield f"{network_name}.{name}", buffer
