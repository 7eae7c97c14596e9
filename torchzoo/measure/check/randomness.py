"""Give all runs the same random numbers, whatever their precision, and turn dropout off."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch._inductor.config
from torch import Tensor, nn

from torchzoo.devices import device_of
from torchzoo.model import Model
from torchzoo.model.dispatch import OperatorMode
from torchzoo.model.tensors import tensors_in

#: Operators that return random numbers, or a random choice.
RANDOM_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli"),
        *("normal_", "uniform_", "bernoulli_", "exponential_", "random_", "cauchy_", "log_normal_", "geometric_"),
        *("multinomial", "poisson", "binomial", "_standard_gamma", "_sample_dirichlet"),
    )
)


def seed_everything(seed: int) -> None:
    """Seed the generators of PyTorch (the host's and all devices'), NumPy and Python."""
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  libraries use the global generator
    random.seed(seed)


def generator_states(device: torch.device) -> tuple[Tensor, ...]:
    """Return the states of PyTorch's generators for steps on this device, and of NumPy's. Drawing changes them.

    NumPy's state is the words of a Mersenne Twister, and the position in them. Python's generator is left out: compiled
    code draws the same numbers from it as eager.
    """
    _, words, position, *_ = np.random.get_state()  # noqa: NPY002  libraries use the global generator
    return (torch.get_rng_state(), *device_of(device).random_states(), torch.tensor([*map(int, words), position]))


def has_drawn(before: tuple[Tensor, ...], device: torch.device) -> bool:
    """Whether a step has drawn random numbers since the generators had these states."""
    return not all(map(torch.equal, before, generator_states(device)))


def _dropout_rates(model: Model) -> Iterator[tuple[nn.Module, str]]:
    """Yield the dropout probabilities that are not zero, each as a module and the name of its attribute.

    These are those of dropout modules, and floats named `...drop...`: `nn.LSTM.dropout`, `drop_prob` of stochastic
    depth, `attention_dropout` of transformers ...
    """
    for network in model.networks().values():
        for module in network.modules():
            for name, value in list(vars(module).items()):
                is_named_so = "drop" in name and isinstance(value, float)
                if value and (is_named_so or (name == "p" and isinstance(module, nn.modules.dropout._DropoutNd))):
                    yield module, name


def has_dropout(model: Model) -> bool:
    """Whether any dropout probability is not zero."""
    return any(True for _ in _dropout_rates(model))


def without_dropout(model: Model) -> None:
    """Set every dropout probability to zero."""
    for module, name in list(_dropout_rates(model)):
        setattr(module, name, 0.0)


@contextlib.contextmanager
def compiled_draws_as_eager(*, if_draws: bool) -> Iterator[None]:
    """Let code that is compiled inside draw the random numbers that eager draws from the same state of the generator.

    `fallback_random` does so for all operators but `bernoulli`: inductor replaces it by `rand < p`, and the two kernels
    of a GPU need not draw the same numbers. So inductor keeps the operator here. Dynamo traces NumPy's functions as
    PyTorch's, so that numbers come from other generators than in eager, and `np.random.seed` seeds PyTorch (BigBird
    seeds NumPy in each layer). Here Dynamo leaves them to NumPy.
    A step that draws no random numbers (`if_draws` is False) is compiled as the timed step is.
    """
    import torch._dynamo.config
    from torch._inductor import lowering
    from torch._inductor.decomposition import decompositions  # imports Dynamo, which takes a second

    bernoulli = torch.ops.aten.bernoulli.default
    decomposition = decompositions.pop(bernoulli, None) if if_draws else None
    if if_draws and bernoulli not in lowering.lowerings:
        # Inductor does so by itself; but where `CI` is set, it takes a missing decomposition for its own mistake.
        lowering.make_fallback(bernoulli, warn=False)  # type: ignore[no-untyped-call]
    of_numpy = torch._dynamo.config.patch(use_numpy_random_stream=if_draws)
    try:
        with torch._inductor.config.patch(fallback_random=if_draws), of_numpy:
            yield
    finally:
        if decomposition is not None:
            decompositions[bernoulli] = decomposition


class RecordRandomDraws(OperatorMode):
    """Keep the results of random operators on the host, in the order of their calls."""

    def __init__(self) -> None:
        super().__init__()
        self.draws: list[tuple[str, list[Tensor]]] = []  # names of operators, and their results

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if func._schema.name in RANDOM_OPERATORS:
            self.draws.append((func._schema.name, [leaf.detach().to("cpu", copy=True) for leaf in tensors_in(result)]))
        return result


class ReplayRandomDraws(OperatorMode):
    """Return recorded random numbers again, in the dtype of the call: a generator's numbers depend on the dtype.

    From the first call that does not match the record on, the run draws its own numbers.
    """

    def __init__(self, draws: list[tuple[str, list[Tensor]]]) -> None:
        super().__init__()
        self._left = list(reversed(draws))

    def see(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = func(*args, **kwargs)
        if func._schema.name in RANDOM_OPERATORS:
            name, recorded = self._left.pop() if self._left else ("", [])
            leaves = tensors_in(result)
            if name == func._schema.name and [t.shape for t in leaves] == [t.shape for t in recorded]:
                for leaf, values in zip(leaves, recorded, strict=True):
                    leaf.detach().copy_(values)
            else:
                self._left.clear()
        return result
