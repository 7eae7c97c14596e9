"""The paintings under way and the memory of their transitions, on the device (Huang et al., 2019, arXiv:1903.04411).

Shape letters: B environments (or transitions drawn), T steps of an episode, A action size, S side in pixels, I images.
Canvases and targets hold colours in [0, 1]; bytes, where they are stored.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Paintings(NamedTuple):
    """What the actor sees."""

    canvas: Tensor  # (B, 3, S, S)
    target: Tensor  # (B, 3, S, S)
    step: Tensor  # (B,) painting steps done


class Transitions(NamedTuple):
    canvas: Tensor  # (B, 3, S, S)
    action: Tensor  # (B, A)
    next_canvas: Tensor  # (B, 3, S, S)
    target: Tensor  # (B, 3, S, S)
    step: Tensor  # (B,) painting steps done before the action


class Memory(NamedTuple):
    """The last T transitions of each environment: slot t holds the latest one that was step t of an episode."""

    canvas: Tensor  # (B, T, 3, S, S) bytes
    action: Tensor  # (B, T, A)
    next_canvas: Tensor  # (B, T, 3, S, S) bytes
    choice: Tensor  # (B, T) which image was the target

    def remember(self, paintings: Paintings, action: Tensor, next_canvas: Tensor, choice: Tensor) -> None:
        """Keep what `action` (B, A) made of `paintings`, in place of the transition T steps ago."""
        slots = (torch.arange(len(choice), device=choice.device), paintings.step)
        self.canvas[slots] = to_bytes(paintings.canvas)
        self.action[slots] = action.to(self.action.dtype)
        self.next_canvas[slots] = to_bytes(next_canvas)
        self.choice[slots] = choice

    def recall(self, environment: Tensor, step: Tensor, images: Tensor) -> Transitions:
        """The transitions at `step` (B,) of `environment` (B,)."""
        slots = (environment, step)
        action = self.action[slots]
        return Transitions(
            to_colours(self.canvas[slots], action.dtype),
            action,
            to_colours(self.next_canvas[slots], action.dtype),
            to_colours(images[self.choice[slots]], action.dtype),
            step,
        )


def to_bytes(colours: Tensor) -> Tensor:
    return (colours * 255.0).round().to(torch.uint8)


def to_colours(images: Tensor, dtype: torch.dtype) -> Tensor:
    return images.to(dtype) / 255.0


def begin_paintings(images: Tensor) -> Paintings:
    """Blank canvases for target images (B, 3, S, S), bytes."""
    target = to_colours(images, torch.get_default_dtype())
    return Paintings(torch.zeros_like(target), target, torch.zeros(len(images), dtype=torch.int64))


def finish_or_continue(paintings: Paintings, canvas: Tensor, choice: Tensor, images: Tensor, length: int) -> None:
    """Go on with the new `canvas`; after `length` steps with a blank one and another of `images` (I, 3, S, S).

    All changes are in place. The work is the same whether a painting is finished or not: nothing waits for the device.
    """
    paintings.step.add_(1)
    finished = paintings.step == length  # (B,)
    paintings.step.masked_fill_(finished, 0)
    paintings.canvas.copy_(canvas.masked_fill(finished[:, None, None, None], 0.0))
    choice.copy_(torch.where(finished, torch.randint_like(choice, len(images)), choice))
    paintings.target.copy_(to_colours(images[choice], paintings.target.dtype))


def imagine_memory(images: Tensor, choice: Tensor, action: Tensor) -> Memory:
    """A full memory to begin with, of paintings that brightened evenly from black to the image of `choice` (B, T)."""
    count, length = choice.shape
    canvas = images.new_empty(count, length, *images.shape[1:])
    next_canvas = torch.empty_like(canvas)
    for step in range(length):
        target = images[choice[:, step]]
        canvas[:, step] = (target * (step / length)).to(torch.uint8)
        next_canvas[:, step] = (target * ((step + 1) / length)).to(torch.uint8)
    return Memory(canvas, action, next_canvas, choice)
