"""DrQ, soft actor-critic from pixels (Kostrikov, Yarats and Fergus, 2020, arXiv:2004.13649), swinging up a cart-pole.

A train step is one full update: `batch_size` transitions are drawn, on the device, from a replay memory that is
resident there, and shifted by random numbers of pixels; the soft Bellman target is averaged over two shifts of the next
observation (K) and regressed on from two of the observation (M); then actor, temperature and target networks follow.
The authors do the last three in every second step only; here a step is always the one that has them. The convolutions
learn from the critic alone, and the actor reads their features. As in the authors' code (github.com/denisyarats/drq,
commit dd040f1, `drq.py`), actor and critic encode what they see themselves, with the same convolutions: the actor's
update runs them twice on the same images, a whole step eight times with those of the target network.

The environment is not simulated in the step: the memory is filled at build time with episodes of random frames, one of
125 steps per sample of the batch. It keeps every frame once, as bytes; three in a row make an observation. An eval step
chooses the policy's deterministic action, the squashed mean, for `batch_size` observations. The policy is an object of
torch.distributions, as the authors' is: it checks its parameters and samples, for which the host waits.

Another implementation counts 11,470,920 parameters: its observations have 27 channels (10,368 more in two first
convolutions) and it leaves the temperature out.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from torchzoo.case import Mode

from .._shared.soft_actor_critic import SoftActorCritic, Temperature
from .._shared.target_networks import MovingAverage, frozen_copy
from .network import Actor, Config, Critic, Encoder
from .replay import Episodes, Transitions, random_episodes, random_shift, sample_transitions


class Model(SoftActorCritic):
    sample_unit = "observations"
    learning_rate = 1e-3
    discount = 0.99
    tau = 0.01
    initial_temperature = 0.1
    target_shifts = 2  # K
    value_shifts = 2  # M

    def build(self) -> None:
        self.config = config = Config()
        self.encoder, self.actor = Encoder(config), Actor(config)
        shape = (self.batch_size, config.frames * config.colours, config.image_size, config.image_size)
        self.batch = {"observations": self.data.uniform(*shape, high=256.0).to(torch.uint8)}  # what evaluation acts on
        if self.mode is Mode.EVAL:
            return
        self.batch["replay"] = random_episodes(self.data, self.batch_size, config)
        self.critic = Critic(config)
        self.target_encoder = frozen_copy(self.encoder)
        self.target_critic = frozen_copy(self.critic)
        self.temperature = Temperature(self.initial_temperature)
        self.entropy_target = -float(config.action_size)
        self.critic_optimizer = self.build_optimizer(self.encoder, self.critic)
        self.actor_optimizer = self.build_optimizer(self.actor)
        self.temperature_optimizer = self.build_optimizer(self.temperature)
        self.average = MovingAverage(1.0 - self.tau)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"encoder": self.encoder, "actor": self.actor}
        return {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "target_encoder": self.target_encoder,
            "target_critic": self.target_critic,
            "temperature": self.temperature,
        }

    @property
    def example_inputs(self) -> tuple[Tensor]:
        return (self.batch["observations"],)

    def train_step(self) -> Tensor:
        replay: Episodes = self.batch["replay"]
        transitions = sample_transitions(replay, self.batch_size, self.config.frames)
        shifted = [random_shift(transitions.observation, self.config.max_shift) for _ in range(self.value_shifts)]
        self.update_critic(transitions, shifted)
        loss, log_density = self.update_actor(shifted[0])
        self.update_temperature(log_density)
        self.update_targets()
        return loss

    def update_critic(self, transitions: Transitions, shifted: list[Tensor]) -> None:
        """Equations 1 to 3: both Q-functions, at every shift, regress on the same averaged target."""
        self.critic_optimizer.zero_grad()
        with self.autocast():
            with torch.no_grad():
                targets = [self.soft_bellman_target(transitions) for _ in range(self.target_shifts)]
                target = torch.stack(targets).mean(dim=0)
            losses = []
            for observation in shifted:
                value1, value2 = self.critic(self.encoder(observation), transitions.action)
                losses.append(F.mse_loss(value1, target) + F.mse_loss(value2, target))
            loss = torch.stack(losses).sum()
        self.backward(loss)
        self.step(self.critic_optimizer)

    def soft_bellman_target(self, transitions: Transitions) -> Tensor:
        """(B,) at one random shift of the next observation."""
        observation = random_shift(transitions.next_observation, self.config.max_shift)
        action, log_density = self.act(self.encoder(observation))
        value = torch.minimum(*self.target_critic(self.target_encoder(observation), action))
        soft_value = value - self.temperature() * log_density
        return transitions.reward + self.discount * (1.0 - transitions.terminal) * soft_value

    def update_actor(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        """Returns the loss and the log-densities (B,) of the actions drawn, both detached."""
        self.actor_optimizer.zero_grad()
        with self.autocast():
            action, log_density = self.act(self.encoder(observation).detach())
            value = torch.minimum(*self.critic(self.encoder(observation).detach(), action))
            loss = (self.temperature().detach() * log_density - value).mean()
        self.backward(loss)  # the gradients that reach the critic are cleared before its next update
        self.step(self.actor_optimizer)
        return loss.detach(), log_density.detach()

    def update_targets(self) -> None:
        self.average.follow(self.target_encoder, self.encoder)
        self.average.follow(self.target_critic, self.critic)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        with self.autocast():
            mean, _ = self.actor(self.encoder(self.batch["observations"]))
            return torch.tanh(mean)
