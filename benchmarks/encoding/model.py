"""Pictures, captions, two frozen encoders and what is trained on their results.

The shape of a latent diffusion step: a convolutional autoencoder's encoder at 256 pixels, a text
encoder whose table of words is most of the weights, and a denoiser of latents. Weights are random,
from a seed, and the encoders are built where they are first called: a training process that calls
them never has them otherwise.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import default_collate

PIXELS: Final = 256
WORDS: Final = 49_408
TEXT_WIDTH: Final = 512
TOKENS: Final = 16
BATCH: Final = 8


class Pictures:
    """Pictures with the ids of their captions' words, by the number of the sample."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        chance = torch.Generator().manual_seed(index)
        shape = (3, PIXELS, PIXELS)
        return {
            "pixels": torch.randint(0, 256, shape, dtype=torch.uint8, generator=chance),
            "ids": torch.randint(0, WORDS, (TOKENS,), generator=chance),
        }


def collated(samples: list[Any]) -> Any:
    """A batch, as PyTorch's loader makes it."""
    return default_collate(samples)


class Encoders(nn.Module):
    """Both of them."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in ((3, 16), (16, 32), (32, 64)):
            layers += [nn.Conv2d(before, after, 3, 2, 1), nn.GroupNorm(8, after), nn.SiLU()]
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.SiLU(), nn.Conv2d(64, 8, 1)]
        self.pictures = nn.Sequential(*layers)
        self.words = nn.Embedding(WORDS, TEXT_WIDTH)
        self.text = nn.TransformerEncoderLayer(
            TEXT_WIDTH, 8, 2 * TEXT_WIDTH, dropout=0.0, batch_first=True
        )

    def forward(self, pixels: torch.Tensor, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        mean, spread = self.pictures(pixels.float() / 127.5 - 1).chunk(2, dim=1)
        return {"mean": mean, "spread": spread.clamp(-6, 2), "text": self.text(self.words(ids))}


@cache
def encoders() -> Encoders:
    """Frozen, and the same in each process; what others draw is not touched."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        found = Encoders()
    return found.eval().requires_grad_(requires_grad=False)


@cache
def weight_bytes() -> int:
    """Of both encoders; they are not built for it."""
    with torch.device("meta"):
        return sum(one.numel() * one.element_size() for one in Encoders().parameters())


@torch.no_grad()
def encode(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What the step reads of a batch."""
    found: dict[str, torch.Tensor] = encoders()(batch["pixels"], batch["ids"])
    return found


class Denoiser(nn.Module):
    """What is trained."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.enter = nn.Conv2d(4, width, 3, padding=1)
        self.text = nn.Linear(TEXT_WIDTH, width)
        self.inner = nn.Sequential(
            *(
                layer
                for _ in range(3)
                for layer in (nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, 1, 1))
            )
        )
        self.leave = nn.Conv2d(width, 4, 3, padding=1)

    def forward(self, noisy: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        hidden = self.enter(noisy) + self.text(text.mean(1))[:, :, None, None]
        found: torch.Tensor = self.leave(functional.dropout(hidden + self.inner(hidden), 0.1))
        return found


class Training:
    """The trained part of the step."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.model = Denoiser()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)

    def step(self, encoded: dict[str, torch.Tensor]) -> torch.Tensor:
        """One; its loss."""
        mean, spread = encoded["mean"], encoded["spread"]
        latents = mean + torch.exp(0.5 * spread) * torch.randn_like(mean)
        noise = torch.randn_like(latents)
        guess = self.model(latents + noise, encoded["text"])
        loss = functional.mse_loss(guess, noise)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()
