"""Soft actor-critic (Haarnoja et al., 2018, arXiv:1812.05905) with a learned temperature, swinging up a pendulum.

A train step is one gradient step of the paper's algorithm 1: `batch_size` transitions are drawn, on the device, from a
replay memory that is resident there; then both critics, the actor and the temperature are updated once each. The
target critics follow after every second step, so steps come in two kinds that differ by that one small operation; it
belongs to the step that does it. The environment is not simulated in the step: the memory is filled at build time with
transitions of the pendulum, 4096 per sample of the batch (2^20 in all at the default size, the paper's 10^6).
An eval step chooses the policy's deterministic action, the squashed mean, for `batch_size` states.

The policy is an object of torch.distributions, as in the code that TorchBench runs. It checks
its parameters and samples, for which the host waits; pull request 61056 of the paper's Table 4 was about these checks.

Networks are 1024 wide; learning rates, discount and tau are the paper's. SAC as published in this version keeps no
target actor: an implementation that does counts another 1,055,746 parameters.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode

from .._shared.soft_actor_critic import SoftActorCritic, Temperature
from .._shared.target_networks import MovingAverage, frozen_copy
from .network import Actor, Config, Critic
from .pendulum import Transitions, random_states, random_transitions


class Model(SoftActorCritic):
    sample_unit = "states"
    learning_rate = 3e-4
    discount = 0.99
    tau = 0.005
    updates_per_target_update = 2
    memory_per_sample = 4096

    def build(self) -> None:
        config = Config()
        self.actor = Actor(config)
        self.batch = {"states": random_states(self.data, self.batch_size)}  # what evaluation acts on
        if self.mode is Mode.EVAL:
            return
        self.batch["replay"] = random_transitions(self.data, self.memory_per_sample * self.batch_size)
        self.critic1, self.critic2 = Critic(config), Critic(config)
        self.target_critic1 = frozen_copy(self.critic1)
        self.target_critic2 = frozen_copy(self.critic2)
        self.temperature = Temperature()
        self.entropy_target = -float(config.action_size)
        self.actor_optimizer = self.build_optimizer(self.actor)
        self.critic_optimizer = self.build_optimizer(self.critic1, self.critic2)
        self.temperature_optimizer = self.build_optimizer(self.temperature)
        self.average = MovingAverage(1.0 - self.tau)
        self.updates = 0

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"actor": self.actor}
        return {
            "actor": self.actor,
            "critic1": self.critic1,
            "critic2": self.critic2,
            "target_critic1": self.target_critic1,
            "target_critic2": self.target_critic2,
            "temperature": self.temperature,
        }

    @property
    def example_inputs(self) -> tuple[Tensor]:
        return (self.batch["states"],)

    def train_step(self) -> Tensor:
        transitions = self.sample_transitions()
        self.update_critics(transitions)
        loss, log_density = self.update_actor(transitions.state)
        self.update_temperature(log_density)
        self.updates += 1
        if self.updates % self.updates_per_target_update == 0:
            self.update_targets()
        return loss

    def sample_transitions(self) -> Transitions:
        replay: Transitions = self.batch["replay"]
        index = torch.randint(len(replay.state), (self.batch_size,), device=self.device)
        return Transitions(*(field.index_select(0, index) for field in replay))

    def update_critics(self, transitions: Transitions) -> None:
        """Equations 5 and 6: both critics regress on the same soft Bellman target."""
        state, action, reward, next_state, terminal = transitions
        self.critic_optimizer.zero_grad()
        with self.autocast():
            with torch.no_grad():
                next_action, log_density = self.act(next_state)
                value1 = self.target_critic1(next_state, next_action)
                value2 = self.target_critic2(next_state, next_action)
                soft_value = torch.minimum(value1, value2) - self.temperature() * log_density
                target = reward + self.discount * (1.0 - terminal) * soft_value
            loss = F.mse_loss(self.critic1(state, action), target) + F.mse_loss(self.critic2(state, action), target)
        self.backward(loss)
        self.step(self.critic_optimizer)

    def update_actor(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Equation 9. Returns the loss and the log-densities (B,) of the actions drawn, both detached."""
        self.actor_optimizer.zero_grad()
        with self.autocast():
            action, log_density = self.act(state)
            value = torch.minimum(self.critic1(state, action), self.critic2(state, action))
            loss = (self.temperature().detach() * log_density - value).mean()
        self.backward(loss)  # the gradients that reach the critics are cleared before their next update
        self.step(self.actor_optimizer)
        return loss.detach(), log_density.detach()

    def update_targets(self) -> None:
        self.average.follow(self.target_critic1, self.critic1)
        self.average.follow(self.target_critic2, self.critic2)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            mean, _ = self.actor(self.batch["states"])
            return torch.tanh(mean)
