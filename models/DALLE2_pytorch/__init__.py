"""unCLIP, known as DALL-E 2 (Ramesh et al., 2022, arXiv:2204.06125): images of 256 x 256 from captions.

This is a small instance. Decoder and upsampler have the published depth and multipliers of the width; their widths are
a quarter and three tenths of the published ones. The prior has 6 layers, not 24, and is 512 wide. CLIP is its ViT-B/32,
frozen. That makes 379,416,617 parameters instead of more than 5,000,000,000. The instance that benchmarks take from
another implementation has the same number within 0.1%.

A train step takes one denoising loss of each of the three networks at random times, and updates each with its own Adam:
the prior predicts the embedding of the image that CLIP sees, the decoder the noise and its variance in the image at
64 x 64, and the upsampler the noise in a random 64 x 64 crop of the image at 256 x 256. Conditions are dropped at
random, as guidance needs it. The loss returned is the decoder's. An eval step makes an image from a caption: the prior
samples two embeddings, the one that is nearer to the caption's is kept, and decoder and upsampler make the image of it.
They take `prior_steps`, `decoder_steps` and `upsampler_steps` strides. Prior and decoder are guided: each of their
strides is computed with and without conditions, on a doubled batch. All networks stay on the device.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import torchzoo.model
from torchzoo.case import Mode

from .._shared.optimizers import adam
from .diffusion import (
    add_noise,
    ancestral_step,
    hybrid_loss,
    implicit_step,
    learned_log_variance,
    posterior,
    random_times,
    remove_noise,
    sampling_times,
)
from .network import Config, Decoder, ImageEncoder, Prior, TextEncoder, Upsampler


class Model(torchzoo.model.Model):
    sample_unit = "images"
    learning_rate = 1.2e-4
    betas = (0.9, 0.999)
    text_drop = 0.1  # how often the prior learns without a caption
    image_drop = 0.1  # and the decoder without an image embedding
    caption_drop = 0.5  # and without a caption
    clip_image_size = 224
    crop_size = 64
    prior_steps = 8
    decoder_steps = 8
    upsampler_steps = 4
    prior_guidance = 4.0
    decoder_guidance = 3.0
    candidates = 2  # embeddings per caption
    end_of_text = 49407  # the last of CLIP's tokens

    def build(self) -> None:
        self.config = config = Config()
        self.text_encoder = TextEncoder(config)
        self.prior, self.decoder, self.upsampler = Prior(config), Decoder(config), Upsampler(config)
        self.batch = {"captions": self.build_captions()}
        if self.mode is Mode.TRAIN:
            size = config.upsampler_size
            self.batch["images"] = self.data.uniform(self.batch_size, 3, size, size, low=-1.0)
            self.image_encoder = ImageEncoder(config)
            self.prior_optimizer = adam(self.prior, lr=self.learning_rate, betas=self.betas)
            self.decoder_optimizer = adam(self.decoder, lr=self.learning_rate, betas=self.betas)
            self.upsampler_optimizer = adam(self.upsampler, lr=self.learning_rate, betas=self.betas)

    def build_captions(self) -> Tensor:
        """(B, T) tokens, the last of which ends the text."""
        captions = self.data.tokens(self.batch_size, self.config.caption_length, self.end_of_text - 1)
        captions[:, -1] = self.end_of_text
        return captions

    def networks(self) -> dict[str, nn.Module]:
        networks = {
            "text_encoder": self.text_encoder,
            "prior": self.prior,
            "decoder": self.decoder,
            "upsampler": self.upsampler,
        }
        return networks if self.mode is Mode.EVAL else networks | {"image_encoder": self.image_encoder}

    @property
    def example_inputs(self) -> tuple[Tensor]:
        return (self.batch["captions"],)

    def train_step(self) -> Tensor:
        with self.autocast(), torch.no_grad():
            images = self.batch["images"]
            text, states = self.text_encoder(self.batch["captions"])
            image = self.image_encoder(F.interpolate(images, self.clip_image_size, mode="bilinear"))
        self.update_prior(image, text, states)
        loss = self.update_decoder(images, image, text, states)
        self.update_upsampler(images)
        return loss

    def update_prior(self, image: Tensor, text: Tensor, states: Tensor) -> None:
        self.prior_optimizer.zero_grad()
        with self.autocast():
            (text, states), time = drop(self.text_drop, text, states), random_times(image)
            noisy = add_noise(image, torch.randn_like(image), time)
            loss = F.mse_loss(self.prior(noisy, time, text, states), image)
        self.backward(loss)
        self.step(self.prior_optimizer)

    def update_decoder(self, images: Tensor, image: Tensor, text: Tensor, states: Tensor) -> Tensor:
        self.decoder_optimizer.zero_grad()
        with self.autocast():
            small = F.interpolate(images, self.config.decoder_size, mode="area")
            (image,), (text, states) = drop(self.image_drop, image), drop(self.caption_drop, text, states)
            time, noise = random_times(small), torch.randn_like(small)
            output = self.decoder(add_noise(small, noise, time), time, image, text, states)
            loss = hybrid_loss(output, small, noise, time)
        self.backward(loss)
        self.step(self.decoder_optimizer)
        return loss.detach()

    def update_upsampler(self, images: Tensor) -> None:
        self.upsampler_optimizer.zero_grad()
        with self.autocast():
            blurred = enlarge(F.interpolate(images, self.config.decoder_size, mode="area"), images.shape[-1])
            crop, blurred_crop = random_crop(self.crop_size, images, blurred)
            time, noise = random_times(crop), torch.randn_like(crop)
            loss = F.mse_loss(self.upsampler(add_noise(crop, noise, time), time, blurred_crop), noise)
        self.backward(loss)
        self.step(self.upsampler_optimizer)

    @torch.no_grad()
    def eval_step(self) -> Tensor:
        """Images (B, 3, 256, 256) in [-1, 1]."""
        with self.autocast():
            text, states = self.text_encoder(self.batch["captions"])
            image = self.sample_embeddings(text, states)
            small = self.sample_images(image, text, states)
            return self.sample_large_images(small)

    def sample_embeddings(self, text: Tensor, states: Tensor) -> Tensor:
        """Image embeddings (B, E): for each caption, the one of `candidates` that CLIP finds closest to it."""
        many_texts, many_states = (x.repeat_interleave(self.candidates, dim=0) for x in (text, states))
        conditions = with_dropped(many_texts), with_dropped(many_states)
        x = torch.randn_like(many_texts)
        for start, stop in sampling_times(self.prior_steps):
            time, earlier = self.times(x, start), self.times(x, stop)
            clean = guided(self.prior(twice(x), twice(time), *conditions), self.prior_guidance)
            mean, log_variance, _ = posterior(x, clean, time, earlier)
            x = ancestral_step(mean, log_variance, earlier).to(x.dtype)
        found = x.view(len(text), self.candidates, -1)  # (B, candidates, E)
        best = (found * text[:, None]).sum(-1).argmax(dim=1)  # (B,)
        return found[torch.arange(len(text), device=text.device), best]

    def sample_images(self, image: Tensor, text: Tensor, states: Tensor) -> Tensor:
        """Images (B, 3, 64, 64) in [-1, 1]."""
        conditions = with_dropped(image), with_dropped(text), with_dropped(states)
        size = self.config.decoder_size
        x = torch.randn(len(image), 3, size, size, device=image.device, dtype=image.dtype)
        for start, stop in sampling_times(self.decoder_steps):
            time, earlier = self.times(x, start), self.times(x, stop)
            output = self.decoder(twice(x), twice(time), *conditions)
            noise = guided(output[:, :3], self.decoder_guidance)
            clean = remove_noise(x, noise, time).clamp(-1.0, 1.0)
            mean, least, most = posterior(x, clean, time, earlier)
            log_variance = learned_log_variance(output[: len(x), 3:], least, most)
            x = ancestral_step(mean, log_variance, earlier).to(x.dtype)
        return x

    def sample_large_images(self, small: Tensor) -> Tensor:
        """Images (B, 3, 256, 256) in [-1, 1]."""
        blurred = enlarge(small, self.config.upsampler_size)
        x = torch.randn_like(blurred)
        for start, stop in sampling_times(self.upsampler_steps):
            time, earlier = self.times(x, start), self.times(x, stop)
            noise = self.upsampler(x, time, blurred)
            clean = remove_noise(x, noise, time).clamp(-1.0, 1.0)
            x = implicit_step(noise, clean, earlier).to(blurred.dtype)
        return x

    @staticmethod
    def times(x: Tensor, time: int) -> Tensor:
        return torch.full((len(x),), time, device=x.device)


def drop(probability: float, *conditions: Tensor) -> list[Tensor]:
    """Conditions (B, ...) of the same samples. For a random part of the samples, all of them are set to zero."""
    kept = torch.rand(len(conditions[0]), device=conditions[0].device) >= probability
    return [condition * kept.view(-1, *[1] * (condition.ndim - 1)) for condition in conditions]


def with_dropped(condition: Tensor) -> Tensor:
    """(B, ...) to (2 B, ...): the condition, then its absence."""
    return torch.cat([condition, torch.zeros_like(condition)])


def twice(x: Tensor) -> Tensor:
    return torch.cat([x, x])


def guided(prediction: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance (Ho and Salimans, 2022, arXiv:2207.12598): (2 B, ...) to (B, ...)."""
    conditional, unconditional = prediction.chunk(2)
    return unconditional + scale * (conditional - unconditional)


def enlarge(images: Tensor, size: int) -> Tensor:
    return F.interpolate(images, size, mode="bilinear")


def random_crop(size: int, *images: Tensor) -> list[Tensor]:
    """The same square of all `images` (B, 3, S, S), somewhere, drawn on the device."""
    side, device = images[0].shape[-1], images[0].device
    inside = torch.arange(size, device=device)
    row = torch.randint(side - size + 1, (1,), device=device) + inside
    column = torch.randint(side - size + 1, (1,), device=device) + inside
    return [image.index_select(2, row).index_select(3, column) for image in images]
