"""Learn to draw coloured shapes from captions: latent diffusion with two frozen encoders.

A plain PyTorch script that knows nothing of Penstock. As in the scripts that people fine-tune
Stable Diffusion with, each step encodes its pictures with a frozen autoencoder and its captions
with a frozen text encoder, draws noise, and trains a denoiser. The encoders have random weights, so
that nothing is downloaded: it is the shape of the computation that is real, and the pictures that
come of it are not.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

PIXELS = 64
SHAPES = ("circle", "square", "diamond", "ring")
COLOURS = ("red", "green", "blue", "yellow", "white", "violet")
RGB = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 1, 1), (0.6, 0, 1))
WORDS = ("<pad>", "a", "on", *SHAPES, *COLOURS)
TOKENS = 16


class Shapes(Dataset):
    """Pictures of (3, PIXELS, PIXELS) in [-1, 1] with the ids of their captions' words."""

    def __init__(self, size: int, *, augment: bool) -> None:
        self.size = size
        self.augment = augment

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        shape, ground = index % len(SHAPES), (index // 4) % len(COLOURS)
        colour = (ground + 1 + (index // 24) % 5) % len(COLOURS)
        radius, shift = 0.3 + 0.4 * (index % 97) / 97, torch.zeros(2)
        if self.augment:
            radius, shift = radius * float(0.8 + 0.4 * torch.rand(())), 0.4 * torch.rand(2) - 0.2
        caption = f"a {COLOURS[colour]} {SHAPES[shape]} on {COLOURS[ground]}"
        return {
            "pixels": picture(SHAPES[shape], RGB[colour], RGB[ground], radius, shift),
            "ids": ids_of(caption),
        }


def picture(
    shape: str,
    colour: tuple[float, ...],
    ground: tuple[float, ...],
    radius: float,
    shift: torch.Tensor,
) -> torch.Tensor:
    """Draw one shape."""
    axis = torch.linspace(-1, 1, PIXELS)
    y, x = torch.meshgrid(axis - shift[0], axis - shift[1], indexing="ij")
    distance = {
        "circle": (x * x + y * y).sqrt(),
        "ring": ((x * x + y * y).sqrt() - 0.75 * radius).abs() + 0.75 * radius,
        "square": torch.maximum(x.abs(), y.abs()),
        "diamond": x.abs() + y.abs(),
    }[shape]
    inside = ((radius - distance) * PIXELS / 4).clamp(0, 1)
    ends = torch.tensor(colour).view(3, 1, 1), torch.tensor(ground).view(3, 1, 1)
    return 2 * (inside * ends[0] + (1 - inside) * ends[1]) - 1


def ids_of(caption: str) -> torch.Tensor:
    """The numbers of a caption's words, padded to TOKENS."""
    found = [WORDS.index(word) for word in caption.split()]
    return torch.tensor(found + [0] * (TOKENS - len(found)))


class Autoencoder(nn.Module):
    """Its encoder alone: pictures to mean and log-variance of latents, an eighth as wide."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1)]
        for factor in (1, 2, 4):
            layers += [
                nn.GroupNorm(8, factor * width),
                nn.SiLU(),
                nn.Conv2d(factor * width, 2 * factor * width, 3, stride=2, padding=1),
            ]
        layers += [nn.GroupNorm(8, 8 * width), nn.SiLU(), nn.Conv2d(8 * width, 8, 1)]
        self.encoder = nn.Sequential(*layers)

    def encode(self, pixels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(pixels).chunk(2, dim=1)
        return mean, log_variance.clamp(-6, 2)


class TextEncoder(nn.Module):
    """Captions' ids to a state for each word."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), width)
        self.places = nn.Parameter(torch.randn(TOKENS, width) / 10)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        states: torch.Tensor = self.layers(self.words(ids) + self.places)
        return states


class Denoiser(nn.Module):
    """Noisy latents, times and captions to the noise."""

    def __init__(self, width: int, text_width: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.time = nn.Linear(32, width)
        self.attention = nn.MultiheadAttention(
            width, 4, kdim=text_width, vdim=text_width, batch_first=True
        )
        self.inner = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 1))
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(
        self, noisy: torch.Tensor, times: torch.Tensor, states: torch.Tensor
    ) -> torch.Tensor:
        waves = times[:, None] * torch.exp(torch.linspace(0, math.log(100), 16))
        hidden = self.enter(noisy)
        hidden = hidden + self.time(torch.cat([waves.sin(), waves.cos()], 1))[:, :, None, None]
        places = hidden.flatten(2).transpose(1, 2)
        read = self.attention(places, states, states, need_weights=False)[0]
        hidden = hidden + read.transpose(1, 2).reshape(hidden.shape)
        out: torch.Tensor = self.leave(hidden + self.inner(hidden))
        return out


def main() -> None:
    """Train for some epochs; print the loss and the pictures a second of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pictures", type=int, default=1920)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--workers", type=int, default=0, help="of the DataLoader")
    parser.add_argument("--width", type=int, default=24, help="of the autoencoder")
    parser.add_argument("--no-augment", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(0)
    autoencoder, text_encoder = Autoencoder(options.width), TextEncoder(64, 2)
    for frozen in (autoencoder, text_encoder):
        frozen.eval().requires_grad_(False)
    denoiser = Denoiser(64, 64)
    optimizer = torch.optim.AdamW(denoiser.parameters(), lr=2e-3)
    loader = DataLoader(
        Shapes(options.pictures, augment=not options.no_augment),
        batch_size=options.batch,
        shuffle=True,
        num_workers=options.workers,
    )
    for epoch in range(options.epochs):
        began, total = time.perf_counter(), 0.0
        for batch in loader:
            with torch.no_grad():
                mean, log_variance = autoencoder.encode(batch["pixels"])
                states = text_encoder(batch["ids"])
            latents = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
            noise, times = torch.randn_like(latents), torch.rand(len(latents))
            kept = torch.cos(0.5 * math.pi * times).view(-1, 1, 1, 1)
            noisy = kept * latents + (1 - kept * kept).sqrt() * noise
            loss = functional.mse_loss(denoiser(noisy, times, states), noise)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.item()
        rate = len(loader.dataset) / (time.perf_counter() - began)
        print(f"epoch {epoch}: loss {total / len(loader):.9f}, {rate:.0f} pictures/s", flush=True)


if __name__ == "__main__":
    main()
