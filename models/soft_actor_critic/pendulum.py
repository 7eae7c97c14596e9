"""The pendulum to be swung up, as Gymnasium's Pendulum-v1 has it (https://gymnasium.farama.org): data for the memory.

Shape letters: N number of transitions. A state is (cos angle, sin angle, angular velocity), an action the torque over
its largest value, so that it lies in [-1, 1].
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from torchzoo.model.data import SyntheticData

GRAVITY = 10.0
MASS = 1.0
LENGTH = 1.0
MAX_SPEED = 8.0
MAX_TORQUE = 2.0
TIME_STEP_S = 0.05


class Transitions(NamedTuple):
    state: Tensor  # (N, 3)
    action: Tensor  # (N, 1)
    reward: Tensor  # (N,)
    next_state: Tensor  # (N, 3)
    terminal: Tensor  # (N,) 1 where the episode ended in a terminal state: never, the pendulum only runs out of time


def random_states(data: SyntheticData, count: int) -> Tensor:
    """(N, 3) states, uniform in angle and velocity."""
    return observe(*_angle_and_velocity(data, count))


def random_transitions(data: SyntheticData, count: int) -> Transitions:
    """What random torques do in random states."""
    angle, velocity = _angle_and_velocity(data, count)
    action = data.uniform(count, low=-1.0, high=1.0)
    torque = MAX_TORQUE * action
    reward = -(angle.square() + 0.1 * velocity.square() + 0.001 * torque.square())

    pull = 3.0 * GRAVITY / (2.0 * LENGTH) * angle.sin()
    push = 3.0 / (MASS * LENGTH**2) * torque
    next_velocity = (velocity + (pull + push) * TIME_STEP_S).clamp(-MAX_SPEED, MAX_SPEED)
    next_angle = angle + next_velocity * TIME_STEP_S
    return Transitions(
        observe(angle, velocity), action[:, None], reward, observe(next_angle, next_velocity), torch.zeros_like(reward)
    )


def observe(angle: Tensor, velocity: Tensor) -> Tensor:
    return torch.stack([angle.cos(), angle.sin(), velocity], dim=-1)


def _angle_and_velocity(data: SyntheticData, count: int) -> tuple[Tensor, Tensor]:
    angle = data.uniform(count, low=-math.pi, high=math.pi)
    return angle, data.uniform(count, low=-MAX_SPEED, high=MAX_SPEED)
