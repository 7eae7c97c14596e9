"""A replay memory of pixels that is resident on the device, and the random shifts of what is drawn from it.

Shape letters: E episodes, L steps of an episode, A action size, B batch, C channels, S image side.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from torchzoo.model.data import SyntheticData

from .network import Config


class Episodes(NamedTuple):
    frames: Tensor  # (E, L + 1, 3, S, S) bytes
    action: Tensor  # (E, L, A)
    reward: Tensor  # (E, L)
    terminal: Tensor  # (E, L) 1 where a step ended in a terminal state: never, episodes only run out of time


class Transitions(NamedTuple):
    observation: Tensor  # (B, C, S, S) bytes
    action: Tensor  # (B, A)
    reward: Tensor  # (B,)
    next_observation: Tensor  # (B, C, S, S) bytes
    terminal: Tensor  # (B,)


def random_episodes(data: SyntheticData, count: int, config: Config) -> Episodes:
    length, size = config.episode_length, config.image_size
    frames = [data.uniform(length + 1, config.colours, size, size, high=256.0).to(torch.uint8) for _ in range(count)]
    return Episodes(
        torch.stack(frames),
        data.uniform(count, length, config.action_size, low=-1.0),
        data.uniform(count, length),
        torch.zeros(count, length, device=data.device),
    )


def sample_transitions(episodes: Episodes, count: int, frames: int) -> Transitions:
    """`count` transitions, drawn with replacement on the device."""
    episode_count, length = episodes.reward.shape
    device = episodes.reward.device
    episode = torch.randint(episode_count, (count,), device=device)
    step = torch.randint(length, (count,), device=device)
    return Transitions(
        stack_frames(episodes.frames, episode, step, frames),
        episodes.action[episode, step],
        episodes.reward[episode, step],
        stack_frames(episodes.frames, episode, step + 1, frames),
        episodes.terminal[episode, step],
    )


def stack_frames(frames: Tensor, episode: Tensor, step: Tensor, count: int) -> Tensor:
    """(B, C, S, S): the `count` frames up to `step` (B,), an episode's first one taking the place of any before it."""
    steps = step[:, None] + torch.arange(1 - count, 1, device=step.device)  # (B, count)
    return frames[episode[:, None], steps.clamp(min=0)].flatten(1, 2)


def random_shift(images: Tensor, max_shift: int) -> Tensor:
    """Each of (B, C, S, S) moved by up to `max_shift` pixels along both axes, its edges repeated."""
    batch_size, channels, size, _ = images.shape
    device = images.device
    shift = torch.randint(-max_shift, max_shift + 1, (2, batch_size, 1), device=device)
    rows, columns = (torch.arange(size, device=device) + shift).clamp(0, size - 1)  # (B, S) each
    image = torch.arange(batch_size, device=device)
    channel = torch.arange(channels, device=device)
    return images[
        image[:, None, None, None], channel[None, :, None, None], rows[:, None, :, None], columns[:, None, None, :]
    ]
