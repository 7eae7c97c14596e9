"""Background Matting (Sengupta et al., 2020, arXiv:2004.00626) of 512 x 512 photographs, learning from real videos.

A student network learns from a frozen teacher's mattes and from a discriminator (Wang et al., 2018, arXiv:1711.11585),
which sees the student's foreground on another background. A train step is one iteration of the second, adversarial
stage: teacher, student update, discriminator update. The authors run the discriminator's backward pass and update in
every fifth iteration only; the step here is the iteration that has both. The person is moved sideways at random, as far
as the segmentation permits. The new background is by chance that of another photograph of the batch, or a separate one.
All of this is drawn on the device. The teacher's weights are random, too, so its mattes are no better than the
student's. An eval step is one matte.
"""

import torch
from torch import Tensor, nn

import torchzoo.model
from torchzoo.case import Mode

from .._shared.image_translation import PatchDiscriminator, least_squares_loss
from .composition import compose, edge_distance, masked_l1, random_shift, shift_columns
from .network import Config, Matte, MattingNetwork, Teacher, View, initialise


class Model(torchzoo.model.Model):
    sample_unit = "images"
    size = 512
    student_learning_rate = 1e-4
    discriminator_learning_rate = 1e-5
    supervision_weight = 0.05
    opaque = 0.95  # alpha above this counts as all foreground
    transparent = -0.98  # and below this as all background

    def build(self) -> None:
        config = Config()
        self.student = MattingNetwork(config).apply(initialise)
        person = self.build_person()
        blurred = nn.functional.avg_pool2d(person, 9, stride=1, padding=4, count_include_pad=False)
        self.batch = {"view": View(self.build_images(3), self.build_images(3), blurred, self.build_images(4))}
        if self.mode is Mode.TRAIN:
            self.batch["person"] = person
            self.batch["new_background"] = self.build_images(3)
            self.teacher = Teacher(MattingNetwork(config).apply(initialise))
            self.discriminator = PatchDiscriminator(padding=2).apply(initialise)
            self.student_optimizer = torch.optim.Adam(self.student.parameters(), lr=self.student_learning_rate)
            self.discriminator_optimizer = torch.optim.Adam(
                self.discriminator.parameters(), lr=self.discriminator_learning_rate
            )

    def build_images(self, channels: int) -> Tensor:
        return self.data.uniform(self.batch_size, channels, self.size, self.size, low=-1.0)

    def build_person(self) -> Tensor:
        """(B, 1, S, S): 1 in a box, where the person is, else -1."""
        x1, y1, x2, y2 = self.data.boxes(self.batch_size, self.size, self.size).view(-1, 4, 1, 1, 1).unbind(1)
        x = torch.arange(self.size, device=self.device)
        inside = (x >= x1) & (x < x2) & (x[:, None] >= y1) & (x[:, None] < y2)
        return 2.0 * inside - 1.0

    def networks(self) -> dict[str, nn.Module]:
        if self.mode is Mode.EVAL:
            return {"student": self.student}
        return {"student": self.student, "teacher": self.teacher, "discriminator": self.discriminator}

    @property
    def example_inputs(self) -> View:
        view: View = self.batch["view"]
        return view

    def train_step(self) -> Tensor:
        loss, composite = self.update_student()
        self.update_discriminator(composite)
        return loss

    def update_student(self) -> tuple[Tensor, Tensor]:
        """The loss, and the composites that the discriminator learns to tell from photographs."""
        view: View = self.batch["view"]
        self.student_optimizer.zero_grad()
        with self.autocast():
            wanted = self.teacher(*view)
            matte = self.student(*view)
            composite = self.compose_elsewhere(view, matte)
            adversarial = least_squares_loss(self.discriminator(composite), 1.0)
            loss = adversarial + self.supervision_weight * self.supervised_loss(view, matte, wanted)
        self.backward(loss)
        self.step(self.student_optimizer)
        return loss.detach(), composite.detach()

    def supervised_loss(self, view: View, matte: Matte, wanted: Matte) -> Tensor:
        alpha_loss = (matte.alpha - wanted.alpha).abs().mean() + 0.5 * edge_distance(matte.alpha, wanted.alpha)
        visible = (wanted.alpha > self.transparent).to(matte.alpha.dtype)
        foreground_loss = masked_l1(matte.foreground, wanted.foreground, visible)
        person = (self.batch["person"] > self.opaque).to(matte.alpha.dtype)
        composite = compose(matte.alpha, matte.foreground, view.background)
        return alpha_loss + foreground_loss + masked_l1(composite, view.image, person)

    def compose_elsewhere(self, view: View, matte: Matte) -> Tensor:
        """The person, moved, before another background; the foreground is the photograph's own where alpha is high."""
        opaque = (matte.alpha > self.opaque).to(view.image.dtype)
        foreground = opaque * view.image + (1 - opaque) * matte.foreground
        order = torch.rand(self.batch_size, device=self.device).argsort()
        coin = torch.rand(1, 1, 1, 1, device=self.device) < 0.5
        background = torch.where(coin, view.background[order], self.batch["new_background"])
        shift = random_shift(view.segmentation)
        return compose(shift_columns(matte.alpha, shift), shift_columns(foreground, shift), background)

    def update_discriminator(self, composite: Tensor) -> None:
        view: View = self.batch["view"]
        self.discriminator_optimizer.zero_grad()
        with self.autocast():
            fake_loss = least_squares_loss(self.discriminator(composite), 0.0)
            real_loss = least_squares_loss(self.discriminator(view.image), 1.0)
            loss = 0.5 * (fake_loss + real_loss)
        self.backward(loss)
        self.step(self.discriminator_optimizer)

    @torch.no_grad()
    def eval_step(self) -> Matte:
        with self.autocast():
            matte: Matte = self.student(*self.batch["view"])
        return matte
