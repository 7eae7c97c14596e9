"""Learning to paint by model-based DDPG (Huang, Heng and Zhou, 2019, arXiv:1903.04411).

An agent paints a 128 x 128 target image on a blank canvas in 40 steps of five strokes each; a frozen neural renderer
draws the strokes, so that the reward, how much the discriminator prefers the new canvas to the old, is differentiable
in the action.

A train step is a tenth of the authors' cycle of one episode and ten policy updates. First come four painting steps of
all `batch_size` environments; their transitions go to the replay memory (actor in evaluation mode, no exploration
noise, as published). Then comes one policy update on `batch_size` transitions drawn from the memory: discriminator
(WGAN-GP), critic (TD error), actor (through renderer, discriminator and critic), and the three targets (tau 0.001).
Learning rates are the initial ones of the authors' code. A finished painting is replaced by a blank canvas with a new
target.

Everything stays on the device. Canvases that are being painted are floating-point. The memory holds bytes, as the
authors' does; they become numbers in [0, 1] when they are drawn. It holds the last 40 steps of each environment, 3840
transitions at the default size. The authors' memory has 32000, and drawing from it is the same work. Their stored
reward is left out, because updates never read it. An eval step is one episode, 40 painting steps of `batch_size`
canvases without learning.

The renderer's weights are random, too: its strokes are no Bézier curves, but they cost the same. The parameters counted
include the discriminator and its target, 274,886 each; without those two there are 55,818,066.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .._shared.target_networks import MovingAverage, frozen_copy
from .environment import Memory, Paintings, Transitions, begin_paintings, finish_or_continue, imagine_memory
from .loss import WassersteinLoss
from .network import Actor, Config, Critic, Discriminator, Painter


class Model(torchzoo.model.Model):
    sample_unit = "painting steps"
    painting_steps_per_update = 4  # the authors' 40 steps per 10 updates
    images_per_painting = 4  # target images to choose from, per environment
    actor_learning_rate = 1e-3
    critic_learning_rate = 3e-4
    discriminator_learning_rate = 3e-4
    discount = 0.95**5  # of five strokes
    tau = 0.001

    def build(self) -> None:
        self.config = config = Config()
        self.actor = Actor(config)
        self.painter = Painter(config).requires_grad_(requires_grad=False)
        if self.mode is Mode.EVAL:
            self.batch = {"paintings": begin_paintings(self.build_images(self.batch_size))}
            return
        images = self.build_images(self.images_per_painting * self.batch_size)
        choices = self.data.integers(0, len(images), self.batch_size, config.episode_length)
        actions = self.data.uniform(self.batch_size, config.episode_length, config.action_size)
        self.batch = {
            "images": images,
            "paintings": begin_paintings(images[: self.batch_size]),
            "choice": torch.arange(self.batch_size),  # (B,) each environment's target, out of the images
            "memory": imagine_memory(images, choices, actions),
        }
        self.critic = Critic(config)
        self.discriminator = WassersteinLoss(Discriminator(config))
        self.target_actor = frozen_copy(self.actor)
        self.target_critic = frozen_copy(self.critic)
        self.target_discriminator = frozen_copy(self.discriminator.score)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), lr=self.actor_learning_rate)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), lr=self.critic_learning_rate)
        self.discriminator_optimizer = torch.optim.Adam(
            self.discriminator.parameters(), lr=self.discriminator_learning_rate, betas=(0.5, 0.999)
        )
        self.average = MovingAverage(1.0 - self.tau)

    def build_images(self, count: int) -> Tensor:
        """(count, 3, S, S) bytes."""
        size = self.config.image_size
        return self.data.uniform(count, 3, size, size, high=256.0).to(torch.uint8)

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"actor": self.actor, "painter": self.painter}
        return {
            "actor": self.actor,
            "painter": self.painter,
            "critic": self.critic,
            "discriminator": self.discriminator,
            "target_actor": self.target_actor,
            "target_critic": self.target_critic,
            "target_discriminator": self.target_discriminator,
        }

    @property
    def example_inputs(self) -> Paintings:
        paintings: Paintings = self.batch["paintings"]
        return paintings

    @property
    def samples_per_step(self) -> int:
        if self.mode is Mode.EVAL:
            return self.config.episode_length * self.batch_size
        return self.painting_steps_per_update * self.batch_size

    def train_step(self) -> Tensor:
        self.actor.eval()
        for _ in range(self.painting_steps_per_update):
            self.paint()
        self.actor.train()
        transitions = self.recall()
        self.update_discriminator(transitions)
        self.update_critic(transitions)
        loss = self.update_actor(transitions)
        self.update_targets()
        return loss

    @torch.no_grad()
    def paint(self) -> None:
        """One step of every environment. The memory keeps it."""
        memory: Memory = self.batch["memory"]
        paintings: Paintings = self.batch["paintings"]
        choice: Tensor = self.batch["choice"]
        with self.autocast():
            action = self.actor(*paintings)
            canvas = self.painter(paintings.canvas, action)
        memory.remember(paintings, action, canvas, choice)
        finish_or_continue(paintings, canvas, choice, self.batch["images"], self.config.episode_length)

    def recall(self) -> Transitions:
        """`batch_size` transitions, drawn with replacement."""
        memory: Memory = self.batch["memory"]
        environment = torch.randint(self.batch_size, (self.batch_size,), device=self.device)
        step = torch.randint(self.config.episode_length, (self.batch_size,), device=self.device)
        return memory.recall(environment, step, self.batch["images"])

    def update_discriminator(self, transitions: Transitions) -> None:
        """Real pairs are a target beside itself, fake ones a target beside its canvas."""
        target, canvas = transitions.target, transitions.next_canvas
        self.discriminator_optimizer.zero_grad()
        with self.autocast():
            mix = torch.rand_like(target[:, :1, :1, :1])
            loss = self.discriminator(torch.cat([target, target], 1), torch.cat([target, canvas], 1), mix)
        self.backward(loss)
        self.step(self.discriminator_optimizer)
        self.average.follow(self.target_discriminator, self.discriminator.score)

    def evaluate(
        self, critic: nn.Module, canvas: Tensor, action: Tensor, target: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The value (B,) of painting `action` (B, A) on `canvas`, and the reward (B,) that is part of it.

        The reward is known, from the renderer and the discriminator: the critic only predicts what comes after.
        """
        painted = self.painter(canvas, action)
        better = self.target_discriminator(torch.cat([target, painted], 1))
        reward = better - self.target_discriminator(torch.cat([target, canvas], 1))
        return reward + critic(canvas, painted, target, step), reward

    def update_critic(self, transitions: Transitions) -> None:
        canvas, action, next_canvas, target, step = transitions
        self.critic_optimizer.zero_grad()
        with self.autocast():
            with torch.no_grad():
                next_action = self.target_actor(next_canvas, target, step + 1)
                next_value, _ = self.evaluate(self.target_critic, next_canvas, next_action, target, step + 1)
                to_come = self.discount * next_value * (step + 1 < self.config.episode_length)
            value, reward = self.evaluate(self.critic, canvas, action, target, step)
            loss = F.mse_loss(value, reward + to_come)
        self.backward(loss)
        self.step(self.critic_optimizer)

    def update_actor(self, transitions: Transitions) -> Tensor:
        self.actor_optimizer.zero_grad()
        with self.autocast():
            canvas, target, step = transitions.canvas, transitions.target, transitions.step
            value, _ = self.evaluate(self.critic, canvas, self.actor(canvas, target, step), target, step)
            loss = -value.mean()
        self.backward(loss)  # the gradients that reach the critic are cleared before its next update
        self.step(self.actor_optimizer)
        return loss.detach()

    def update_targets(self) -> None:
        self.average.follow(self.target_actor, self.actor)
        self.average.follow(self.target_critic, self.critic)

    @torch.no_grad()
    def eval_step(self) -> tuple[Tensor, Tensor]:
        """The finished canvases (B, 3, 128, 128), and their mean squared distance (B,) to the targets."""
        canvas, target, step = self.batch["paintings"]
        with self.autocast():
            for _ in range(self.config.episode_length):
                canvas = self.painter(canvas, self.actor(canvas, target, step))
                step = step + 1
        return canvas, (canvas - target).square().mean(dim=(1, 2, 3))
