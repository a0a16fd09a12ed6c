"""Ordinary training programs, of which a part is stateless, or looks as if it were.

    penstock run --partition auto -- python train.py NAME ... --workers 2

`tokenise` and `augment` know of Penstock: what they move works on texts, or draws, and is declared.
Prints one JSON object for each program: digests of all losses and of the trained parameters, what
became of its loader's steps, and the seconds of each epoch, with those of the processor, here and
in local workers. Weights are random: what is computed with them is not what they are for.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import json
import random
import resource
import time
from collections.abc import Callable
from typing import Any

import psutil
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

BATCH = 8
Step = Callable[[Any], torch.Tensor]
Program = tuple[Dataset, nn.Module, Step]
F = nn.functional


class Samples(Dataset):
    """Samples that are made of their index alone."""

    def __init__(self, make: Callable[[torch.Generator], Any], size: int) -> None:
        self.make, self.size = make, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        return self.make(torch.Generator().manual_seed(index))


def image(generator: torch.Generator, side: int = 48) -> Any:
    pixels = torch.randint(0, 256, (3, side, side), dtype=torch.uint8, generator=generator)
    return pixels, int(torch.randint(0, 10, (), generator=generator))


def convolutions(out: int = 16) -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for stride in (1, 2, 1, 2):
        layers += [nn.Conv2d(channels, 32, 3, stride, 1), nn.BatchNorm2d(32), nn.SiLU()]
        channels = 32
    return nn.Sequential(*layers, nn.Conv2d(channels, out, 1))


def frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(requires_grad=False)


def pooled(hidden: torch.Tensor) -> torch.Tensor:
    return hidden.mean((2, 3))


def classify(head: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(F.dropout(head(features), 0.1), labels)


def on_images(
    size: int, look: Callable[[torch.Tensor, nn.Module], torch.Tensor], encoder: nn.Module
) -> Program:
    """Pictures, normalised, through an encoder that is or looks frozen, and a head."""
    head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 10))

    def step(batch: Any) -> torch.Tensor:
        pixels, labels = batch
        return classify(head, look(pixels, encoder), labels)

    return Samples(image, size), head, step


MEAN = torch.tensor([0.485, 0.456, 0.406]).view(1, 3, 1, 1)


def normalised(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels.float() / 255 - MEAN) / 0.25


@torch.no_grad()
def encoded(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
    return pooled(encoder(normalised(pixels)))


def frozen_cnn(size: int) -> Program:
    return on_images(size, encoded, frozen(convolutions()))


def two_stage(size: int) -> Program:
    first, second = frozen(convolutions()), frozen(nn.Conv2d(16, 16, 3, padding=1))

    @torch.no_grad()
    def look(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
        return pooled(second(F.gelu(first(normalised(pixels)))))

    return on_images(size, look, first)


def diffusion(size: int) -> Program:
    """A latent diffusion step, as it is commonly written: two encoders, a draw, autocast."""
    vae = frozen(convolutions(8))
    words, layer = nn.Embedding(100, 32), nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    frozen(nn.ModuleList([words, layer]))
    unet = nn.Sequential(
        nn.Conv2d(4, 16, 3, padding=1), nn.SiLU(), nn.Dropout(0.1), nn.Conv2d(16, 4, 3, padding=1)
    )
    project = nn.Linear(32, 4)

    def sample(generator: torch.Generator) -> Any:
        text = torch.randint(0, 100, (12,), generator=generator)
        return {"pixel_values": image(generator)[0], "input_ids": text}

    def step(batch: Any) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                mean, log = vae(batch["pixel_values"].to(torch.float32) / 127.5 - 1).chunk(2, 1)
                text = layer(words(batch["input_ids"])).mean(1)
            latents = (mean + torch.exp(0.5 * log) * torch.randn_like(mean)) * 0.18215
            noise = torch.randn_like(latents)
            at = torch.randint(0, 1000, (latents.shape[0],))
            noisy = latents + noise * (at / 1000.0)[:, None, None, None]
            guess = unet(noisy.to(latents.dtype)) + project(text)[:, :, None, None]
            return F.mse_loss(guess.float(), noise.float())

    return Samples(sample, size), nn.ModuleList([unet, project]), step


def clip_probe(size: int) -> Program:
    """A linear probe on two frozen encoders."""
    see = frozen(convolutions(32))
    read = frozen(nn.Sequential(nn.Embedding(200, 32), nn.TransformerEncoderLayer(
        32, 4, 64, batch_first=True, dropout=0.0)))  # fmt: skip
    head = nn.Linear(64, 10)

    def sample(generator: torch.Generator) -> Any:
        pixels, label = image(generator)
        return pixels, torch.randint(0, 200, (16,), generator=generator), label

    def step(batch: Any) -> torch.Tensor:
        pixels, text, labels = batch
        with torch.no_grad():
            seen = F.normalize(pooled(see(normalised(pixels))), dim=-1)
            meant = F.normalize(read(text)[:, 0], dim=-1)
        return classify(head, torch.cat([seen, meant], 1), labels)

    return Samples(sample, size), head, step


def clicks(size: int) -> Program:
    """Wide and deep: hashed, crossed and bucketised features, then embeddings that are trained."""
    table, deep = nn.Embedding(4096, 8), nn.Linear(26 * 8 + 13, 1)
    edges = torch.linspace(-2, 2, 30)

    def sample(generator: torch.Generator) -> Any:
        raw = torch.randint(0, 1 << 40, (26, 512), generator=generator)
        return raw, torch.randn(13, generator=generator), float(raw[0, 0] % 2)

    def step(batch: Any) -> torch.Tensor:
        raw, dense, clicked = batch
        hashed = raw
        for _ in range(6):
            hashed = (hashed * 1103515245 + 12345) ^ (hashed >> 13)
        crossed = (hashed.sum(2) & 0x7FFFFFFF) % 4096
        found, places = torch.unique(crossed, return_inverse=True)
        wide = torch.bucketize(dense, edges).float() / 30
        rows = table(found)[places].flatten(1)
        return F.binary_cross_entropy_with_logits(
            deep(torch.cat([rows, wide], 1)).squeeze(1), clicked.float()
        )

    return Samples(sample, size), nn.ModuleList([table, deep]), step


def mel(size: int) -> Program:
    """A log-mel spectrogram in the loop, as speech programs have it."""
    window = torch.hann_window(400)
    bank = torch.rand(80, 201, generator=torch.Generator().manual_seed(3))
    head = nn.Sequential(nn.Conv1d(80, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
                         nn.Linear(16, 10))  # fmt: skip

    def sample(generator: torch.Generator) -> Any:
        label = int(torch.randint(0, 10, (), generator=generator))
        return torch.randn(16_000, generator=generator), label

    def step(batch: Any) -> torch.Tensor:
        sound, labels = batch
        power = torch.stft(sound, 400, 160, window=window, return_complex=True).abs() ** 2
        logged = torch.clamp(bank @ power, min=1e-10).log10()
        return F.cross_entropy(head((logged + 4) / 4), labels)

    return Samples(sample, size), head, step


def hashed_words(texts: list[str]) -> torch.Tensor:
    """A tokeniser that costs what tokenisers cost."""
    rows = []
    for text in texts:
        row = [int(hashlib.md5(word.encode()).hexdigest()[:8], 16) % 500 for word in text.split()]
        rows.append(row)
    return torch.tensor(rows)


def tokenise(size: int) -> Program:
    """The one that declares what is to move."""
    import penstock.data

    tokens = penstock.data.offload(hashed_words)
    head = nn.Sequential(nn.Embedding(500, 16), nn.Flatten(), nn.Linear(16 * 400, 10))

    def sample(generator: torch.Generator) -> Any:
        words = torch.randint(0, 5000, (400,), generator=generator).tolist()
        return {"text": " ".join(f"w{one}" for one in words), "label": int(words[0]) % 10}

    def step(batch: Any) -> torch.Tensor:
        began = time.process_time()
        ids = tokens(batch["text"])
        vars(head)["declared_seconds"] += time.process_time() - began
        return F.cross_entropy(head(ids), batch["label"])

    vars(head)["declared_seconds"] = 0.0
    vars(head)["offloaded"] = getattr(tokens, "offloaded", None)
    return Samples(sample, size), head, step


def augmented(pixels: torch.Tensor) -> torch.Tensor:
    """A whole batch: flipped, shifted, with other colours and noise, as on a device."""
    flips = torch.rand(len(pixels), 1, 1, 1) < 0.5
    images = torch.where(flips, pixels.flip(-1), pixels).float() / 255
    across, down = torch.randint(-4, 5, (2,)).tolist()
    images = images.roll((across, down), (2, 3))
    images = (images * (0.8 + 0.4 * torch.rand(len(pixels), 3, 1, 1))).clamp(0, 1)
    blurred = F.avg_pool2d(F.pad(images, (2, 2, 2, 2), "reflect"), 5, 1)
    return images + random.uniform(0, 1) * (images - blurred) + 0.02 * torch.randn_like(images)


def augment(size: int) -> Program:
    """It declares augmentation of whole batches, which draws."""
    import penstock.data

    change = penstock.data.offload(augmented, random="batch")
    head = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(8, 10))  # fmt: skip

    def step(batch: Any) -> torch.Tensor:
        pixels, labels = batch
        began = time.process_time()
        images = change(pixels)
        vars(head)["declared_seconds"] += time.process_time() - began
        return F.cross_entropy(F.dropout(head(images), 0.1), labels)

    vars(head)["declared_seconds"] = 0.0
    vars(head)["offloaded"] = getattr(change, "offloaded", None)
    return Samples(image, size), head, step


def ema_teacher(size: int) -> Program:
    """A teacher without gradients that follows the student, past PyTorch's versions."""
    student, teacher = convolutions(), frozen(convolutions())
    head = nn.ModuleList([student, nn.Linear(16, 10)])

    def step(batch: Any) -> torch.Tensor:
        pixels, labels = batch
        inputs = normalised(pixels)
        with torch.no_grad():
            for own, its in zip(teacher.parameters(), student.parameters(), strict=True):
                own.data.mul_(0.9).add_(its.data, alpha=0.1)
            target = pooled(teacher(inputs))
        hidden = pooled(student(inputs))
        return F.mse_loss(hidden, target) + F.cross_entropy(head[1](hidden), labels)

    return Samples(image, size), head, step


def bn_train(size: int) -> Program:
    """Weights without gradients whose statistics still follow the data."""
    return on_images(size, encoded, convolutions().requires_grad_(requires_grad=False).train())


def python_random(size: int) -> Program:
    @torch.no_grad()
    def look(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
        return pooled(encoder(normalised(pixels) * random.random()))

    return on_images(size, look, frozen(convolutions()))


def step_constant(size: int) -> Program:
    steps = iter(range(1_000_000))

    @torch.no_grad()
    def look(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
        return pooled(encoder(normalised(pixels) * (1 + next(steps) / 100)))

    return on_images(size, look, frozen(convolutions()))


def dropout_first(size: int) -> Program:
    @torch.no_grad()
    def look(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
        return pooled(encoder(F.dropout(normalised(pixels), 0.1)))

    return on_images(size, look, frozen(convolutions()))


def branch_on_data(size: int) -> Program:
    @torch.no_grad()
    def look(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
        inputs = normalised(pixels)
        if inputs[0, 0, 0, 0] > 0:
            inputs = inputs.flip(-1)
        return pooled(encoder(inputs))

    return on_images(size, look, frozen(convolutions()))


def custom_extension(size: int) -> Program:
    """What a compiled extension does: it reads memory by its address."""

    @torch.no_grad()
    def look(pixels: torch.Tensor, encoder: nn.Module) -> torch.Tensor:
        inputs = normalised(pixels)
        first = ctypes.c_float.from_address(inputs.data_ptr()).value
        return pooled(encoder(inputs)) + first

    return on_images(size, look, frozen(convolutions()))


PROGRAMS: dict[str, Callable[[int], Program]] = {
    name.__name__.replace("_", "-"): name
    for name in (
        frozen_cnn, diffusion, clip_probe, clicks, mel, tokenise, augment, two_stage, ema_teacher,
        bn_train, python_random, step_constant, dropout_first, branch_on_data, custom_extension,
    )
}  # fmt: skip
PROGRAMS["ragged-last-batch"] = frozen_cnn


def digest(tensors: Any) -> str:
    found = hashlib.sha256()
    for one in tensors:
        found.update(one.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def seconds() -> tuple[float, float, float]:
    """Of the clock, of the processor in this process, and in its children, up to now."""
    gone = resource.getrusage(resource.RUSAGE_CHILDREN)
    children = gone.ru_utime + gone.ru_stime
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = child.cpu_times()
            children += times.user + times.system
    return time.perf_counter(), time.process_time(), children


def looked(planned: Any) -> list[dict[str, Any]]:
    """The calls of a step as they were recorded."""
    return [
        {
            "label": one.name.partition(": ")[2],
            "moves": one.moves,
            "why": one.why,
            "seconds": one.seconds,
        }
        for one in (planned.items if planned else ())
    ]


def crossing(planned: Any) -> dict[str, int]:
    """Bytes of a batch, and of what crosses by Algorithm 1 and by the plan."""
    if not planned:
        return {"raw": 0, "maximal": 0, "chosen": 0}
    from penstock.data.partition.graph import Trait
    from penstock.data.partition.maximal import maximal
    from penstock.data.torchpartition.plan import graph_of

    graph = graph_of(planned.recording)
    stays = set(maximal(graph, frozenset(Trait)).train)
    read = {name for node in graph.nodes if node.name in stays for name in node.inputs}
    made = sum(node.size_bytes for node in graph.nodes if node.name in read - stays)
    batch = {node.name for node in graph.nodes if node.kind == "batch"}
    raw = dict(zip(sorted(batch, key=[one.name for one in graph.nodes].index),
                   (one.size_bytes for one in planned.recording.metas), strict=False))  # fmt: skip
    # A part of the batch that the training reads itself crosses too.
    made += sum(size for name, size in raw.items() if name in read)
    return {"raw": planned.batch_bytes, "maximal": made, "chosen": planned.crossing_bytes}


def cuts(planned: Any) -> list[dict[str, float]]:
    """Bytes that cross and seconds that move, of the cheapest cut for each price of a byte.

    ``byte_seconds`` is the price from which on it is the cheapest, of nothing to nearly a
    millisecond, where a second of a data worker costs nothing: the first cut is of all that may
    move, and what follows moves less and sends less.
    """
    if not planned:
        return []
    from penstock.data.partition.cut import Prices, cheapest
    from penstock.data.partition.state import stateless
    from penstock.data.torchpartition.plan import graph_of, plan

    graph = graph_of(planned.recording)
    reasons, batch = stateless(graph), len(planned.recording.paths)
    found: dict[tuple[int, ...], dict[str, float]] = {}
    for price in (0.0, *(1e-10 * 1.25**power for power in range(72))):
        stages = cheapest(graph, Prices((0.0, 1.0), (price,)), reasons).stages
        calls = range(len(planned.recording.calls))
        moved = tuple(place for place in calls if stages[batch + place] == 0)
        its = plan(planned.recording, moved)
        if its.moved == moved:
            row = {"bytes": its.crossing_bytes, "seconds": its.moved_seconds, "byte_seconds": price}
            found.setdefault(moved, row)
    return list(found.values())


def train(name: str, workers: int, steps: int, epochs: int) -> dict[str, Any]:
    """One program, from its beginning to its end."""
    torch.manual_seed(1)
    random.seed(1)
    ragged = 3 if name == "ragged-last-batch" else 0
    dataset, trained, step = PROGRAMS[name](steps * BATCH + ragged)
    optimizer = torch.optim.AdamW(trained.parameters(), 1e-3)
    loader = DataLoader(dataset, BATCH, shuffle=True, num_workers=workers)
    losses, spent = [], []
    for _ in range(epochs):
        before = seconds()
        for batch in loader:
            loss = step(batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().clone())
        spent.append([b - a for a, b in zip(before, seconds(), strict=True)])
    work: Any = getattr(loader.__dict__.get("_penstock_epochs"), "calls", None)
    counts: Any = getattr(trained, "offloaded", None) or work
    proof = getattr(getattr(work, "state", None), "proof", None)
    planned: Any = getattr(work, "plan", None)
    return {
        "name": name,
        "steps": len(losses),
        "losses": digest(losses),
        "parameters": digest(trained.parameters()),
        "moved": getattr(counts, "moved", 0),
        "compared": getattr(counts, "compared", 0),
        "epochs": spent,
        "recorded": [planned.moved_seconds, planned.step_seconds] if planned else [0.0, 0.0],
        "calls": looked(planned),
        "bytes": crossing(planned),
        "cuts": cuts(planned) if planned and planned.moved else [],
        "declared_seconds": vars(trained).get("declared_seconds", 0.0),
        "state": str(proof.phase) if proof is not None else "",
        "why": proof.why if proof is not None else getattr(counts, "why", ""),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="+", choices=PROGRAMS)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--epochs", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [train(name, options.workers, options.steps, options.epochs) for name in options.names]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
