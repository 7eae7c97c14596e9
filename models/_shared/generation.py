"""A transformers network together with the static cache that it generates with."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache, PreTrainedModel, StaticCache

from torchzoo.model.attention import attends_alike
from torchzoo.model.tensors import stored_bytes

#: So many tokens are read once to make the cache: they show its dtype, its heads and the states of recurrent layers.
FIRST_TOKENS = 4
#: What holds the number of cached tokens in the layers of transformers' caches: tensors, and whole numbers beside them.
_LENGTHS, _LENGTHS_ON_HOST = ("cumulative_length", "indexer_cumulative_length"), "cumulative_length_int"
#: What networks call the argument for a cache: all of them since transformers 5.24; most of them before; Mamba before.
_ARGUMENTS = ("cache", "past_key_values", "cache_params")


class CachedNetwork(nn.Module):
    """A network with a cache of fixed size, which moves and is cast with it. It gives the logits of the last position.

    States of recurrent layers are at least fp32 after a cast: transformers computes them so, whatever the weights are.

    A call writes its tokens behind those in the cache. `rewind` makes the next call begin at the same length. States of
    recurrent layers, and windows that are full, go on from where the last call left them: the work is the same, the
    numbers are not.

    Args:
        network: a decoder with a language model's head.
        prompt: (B, T) tokens; the first few are read once to make the cache.
        length: the most tokens of a sequence that the cache holds.
        cached: how many tokens of each sequence are in the cache before a call. With 0, a call is a prefill. With
            `torchzoo.model.attention`, nothing masks places behind a token, so it must be 0 or `length - 1`.
        cache: another cache than a static one of `length` tokens in each layer.
        others: what a call needs beside the tokens to make the cache.

    Raises:
        TypeError: the network takes no cache.
        ValueError: the token of a call would see places of the cache that are empty.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        prompt: Tensor,
        *,
        length: int,
        cached: int,
        cache: Cache | None = None,
        **others: Tensor,
    ) -> None:
        super().__init__()
        if cached not in (0, length - 1) and attends_alike(network):
            raise ValueError(f"{cached} of {length} places of the cache are filled, and no mask hides the others")
        self.network: PreTrainedModel = network.eval()  # type: ignore[no-untyped-call]
        self.cache = StaticCache(config=network.config, max_cache_len=length) if cache is None else cache
        self.cached = cached
        self._argument = _argument_for_a_cache(network)
        with torch.no_grad():
            self(prompt[:, :1].expand(-1, min(FIRST_TOKENS, length)), **others)
        self._find_lengths()

    def forward(self, input_ids: Tensor, **others: Tensor) -> Tensor:
        """Tokens (B, T) to the logits (B, 1, V) of the last one. `others` are further inputs, such as images."""
        outputs = self.network(input_ids=input_ids, logits_to_keep=1, **self._use_of_cache(), **others)
        logits: Tensor = outputs.logits
        return logits

    def fill(self, draw: Callable[..., Tensor]) -> None:
        """Put random values into the keys and values of the cache: `draw(*shape)`."""
        for layer in self._layers():
            for name in ("keys", "values"):
                held = getattr(layer, name, None)
                if isinstance(held, Tensor):
                    held.copy_(draw(*held.shape))

    def rewind(self) -> None:
        """Make the next call begin with `cached` tokens in the cache. On a device, this is one kernel."""
        if self._lengths:  # recurrent layers have none
            torch._foreach_copy_(self._lengths, self._starts)
        for layer in self._growing_layers():
            if hasattr(layer, _LENGTHS_ON_HOST):
                setattr(layer, _LENGTHS_ON_HOST, self.cached)
            if hasattr(layer, "has_previous_state"):
                layer.has_previous_state = dict.fromkeys(layer.has_previous_state, self.cached > 0)

    def cache_bytes(self) -> int:
        """The size of the cache."""
        return sum(tensor.nbytes for *_, tensor in self._held())

    def cache_tensors(self) -> dict[str, Tensor]:
        """All tensors of the cache, by names that are the same in each network of this kind."""
        return {f"cache.{number}.{key}": tensor for number, (_, key, tensor) in enumerate(self._held())}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CachedNetwork:  # noqa: FBT001, FBT002  nn.Module's
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        states = [getattr(layer, "recurrent_states", None) for layer in self._layers()]
        for holder, key, tensor in list(self._held()):
            changed = fn(tensor)
            if changed.dtype != tensor.dtype and any(holder is state for state in states):
                changed = tensor.to(changed.device, torch.promote_types(changed.dtype, torch.float32))
            if changed is not tensor:
                torch._dynamo.mark_static_address(changed)  # as transformers does: CUDA graphs may change it in place
            if isinstance(holder, dict):
                holder[key] = changed
            else:
                setattr(holder, key, changed)
        self._find_lengths()
        return self

    def _use_of_cache(self) -> dict[str, Any]:
        """The arguments with which the network reads and writes the cache."""
        return {self._argument: self.cache, "use_cache": True}

    def _growing_layers(self) -> list[Any]:
        """The layers of the cache that a call writes its tokens to."""
        return self.cache.layers

    def _layers(self) -> list[Any]:
        """All layers of the cache."""
        return self._growing_layers()

    def _held(self) -> Iterator[tuple[Any, Any, Tensor]]:
        """Each tensor of the cache with where it is: a layer and an attribute, or a dict and a key."""
        for layer in self._layers():
            for name, value in vars(layer).items():
                if isinstance(value, Tensor):
                    yield layer, name, value
                elif isinstance(value, dict):
                    yield from ((value, key, one) for key, one in value.items() if isinstance(one, Tensor))

    def _find_lengths(self) -> None:
        layers = self._growing_layers()
        self._lengths = [getattr(layer, name) for layer in layers for name in _LENGTHS if hasattr(layer, name)]
        self._starts = [torch.full_like(length, self.cached) for length in self._lengths]


def _argument_for_a_cache(network: PreTrainedModel) -> str:
    """What the network calls it. An argument with another name would be ignored: most networks take any."""
    takes = inspect.signature(network.forward).parameters
    for name in _ARGUMENTS:
        if name in takes:
            return name
    raise TypeError(f"{type(network).__name__} takes no cache: it has no argument {' or '.join(_ARGUMENTS)}")


def weight_bytes_read(network: PreTrainedModel, without: str | None = None) -> int:
    """The bytes of the weights that one token needs: all but a table of embeddings, of which it reads one row.

    A table that is also the output layer's weight is read whole. The part of the network named `without` is not read.
    """
    weights = sum(map(stored_bytes, network.parameters()))  # shared ones once
    if without is not None:
        weights -= sum(map(stored_bytes, network.get_submodule(without).parameters()))
    table, head = network.get_input_embeddings(), network.get_output_embeddings()  # type: ignore[no-untyped-call]
    assert isinstance(table.weight, Tensor)
    return weights if head is not None and head.weight is table.weight else weights - table.weight.nbytes
