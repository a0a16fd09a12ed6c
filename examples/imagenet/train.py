"""Train ResNet-50 on a folder of JPEG files: the program whose GPU is to be fed.

A plain PyTorch script that knows nothing of Penstock. On a GPU it trains in bfloat16 with channels
last, and its DataLoader pins what it makes. torchvision's datasets, transforms and network are used
where it is installed; without it the script has its own of the same kind.

``--uint8`` leaves pictures as bytes until they are on the device and normalises them there: a
quarter of the bytes for the input pipeline to move.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

try:
    import torchvision
    from torchvision.transforms import v2
except ImportError:
    torchvision = None

PIXELS = 224
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
Transform = Callable[[Image.Image], torch.Tensor]


class Folder(Dataset):
    """JPEG files in one folder per class, as torchvision's ImageFolder: (picture, class)."""

    def __init__(self, root: Path, transform: Transform) -> None:
        self.files = sorted(root.glob("*/*.jpg"))
        self.classes = sorted({file.parent.name for file in self.files})
        self.transform = transform

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self.files[index]
        with Image.open(file) as image:
            return self.transform(image.convert("RGB")), self.classes.index(file.parent.name)


class Crop:
    """Crop (at random, of random size, flipped half of the time, in training), and normalise."""

    def __init__(self, pixels: int, augment: bool, as_bytes: bool) -> None:
        self.pixels, self.augment, self.as_bytes = pixels, augment, as_bytes

    def __call__(self, image: Image.Image) -> torch.Tensor:
        side = min(image.size)
        left, top = (image.width - side) // 2, (image.height - side) // 2
        if self.augment:
            side = int(torch.randint(side // 2, side + 1, ()))
            left = int(torch.randint(0, image.width - side + 1, ()))
            top = int(torch.randint(0, image.height - side + 1, ()))
        image = image.resize(
            (self.pixels, self.pixels),
            Image.Resampling.BILINEAR,
            (left, top, left + side, top + side),
        )
        if self.augment and torch.rand(()) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return pixels if self.as_bytes else normalise(pixels)


def normalise(pixels: torch.Tensor) -> torch.Tensor:
    """Bytes to float32 of mean 0 and deviation 1, wherever they are; (..., 3, H, W)."""
    mean = torch.tensor(MEAN, device=pixels.device).view(3, 1, 1) * 255
    deviation = torch.tensor(DEVIATION, device=pixels.device).view(3, 1, 1) * 255
    return (pixels - mean) / deviation


def make_dataset(root: Path, pixels: int, augment: bool, as_bytes: bool) -> Any:
    """The pictures below a folder."""
    if torchvision is None:
        return Folder(root, Crop(pixels, augment, as_bytes))
    crop = (
        [v2.RandomResizedCrop(pixels, antialias=True), v2.RandomHorizontalFlip()]
        if augment
        else [v2.Resize(pixels * 8 // 7, antialias=True), v2.CenterCrop(pixels)]
    )
    last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    if as_bytes:
        last = [v2.PILToTensor()]
    return torchvision.datasets.ImageFolder(root, v2.Compose([*crop, *last]))


class Bottleneck(nn.Module):
    """Three convolutions beside a shortcut: the block of He et al., 2015, section 4.1."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(images) + self.shortcut(images))


def make_model(name: str, classes: int) -> nn.Module:
    """``resnet50``, or ``small``: the same with one block a stage and a quarter of the channels."""
    if name == "resnet50" and torchvision is not None:
        return torchvision.models.resnet50(weights=None, num_classes=classes)
    width, depths = {"resnet50": (64, (3, 4, 6, 3)), "small": (16, (1, 1, 1, 1))}[name]
    layers: list[nn.Module] = [
        nn.Conv2d(3, width, 7, 2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, padding=1),
    ]
    inputs = width
    for stage, depth in enumerate(depths):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            layers.append(Bottleneck(inputs, width << stage, stride))
            inputs = 4 * width << stage
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)]
    return nn.Sequential(*layers)


class Trainer:
    """Model, optimizer and the device that they are on."""

    def __init__(self, options: argparse.Namespace, classes: int) -> None:
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        name = options.model or ("resnet50" if self.device == "cuda" else "small")
        self.model = make_model(name, classes).to(self.device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4
        )

    def forward(self, images: torch.Tensor, targets: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """Outputs and targets on the device; in bfloat16 where that is a GPU."""
        images = images.to(self.device, non_blocking=True)
        targets = targets.to(self.device, non_blocking=True)
        if images.dtype == torch.uint8:
            images = normalise(images)
        images = images.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            return self.model(images), targets

    def step(self, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """One step of training; the loss, on the device."""
        outputs, targets = self.forward(images, targets)
        loss = nn.functional.cross_entropy(outputs.float(), targets)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def accuracy(self, loader: DataLoader) -> float:
        """The share of validation pictures that are named rightly."""
        self.model.eval()
        right = total = 0
        for batch in loader:
            outputs, targets = self.forward(*batch)
            right += int((outputs.argmax(1) == targets).sum())
            total += len(targets)
        self.model.train()
        return right / total


def make_loader(options: argparse.Namespace, part: str, augment: bool) -> DataLoader:
    """The pictures of one part of the data set."""
    dataset = make_dataset(options.data / part, options.pixels, augment, options.uint8)
    return DataLoader(
        dataset,
        options.batch,
        shuffle=augment,
        num_workers=options.workers,
        pin_memory=torch.cuda.is_available(),
        drop_last=augment,
        persistent_workers=options.workers > 0,
        generator=torch.Generator().manual_seed(options.seed),
    )


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("build/imagenet"))
    parser.add_argument("--model", choices=("resnet50", "small"), help="small without a GPU")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--pixels", type=int, default=PIXELS)
    parser.add_argument("--workers", type=int, default=2, help="of each DataLoader")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--uint8", action="store_true", help="normalise on the device")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    options = parse()
    torch.manual_seed(options.seed)
    train = make_loader(options, "train", augment=True)
    validate = make_loader(options, "val", augment=False)
    trainer = Trainer(options, len(train.dataset.classes))
    for epoch in range(options.epochs):
        began = asked = time.perf_counter()
        waited, seen, losses = 0.0, 0, []
        for images, targets in train:
            waited += time.perf_counter() - asked
            losses.append(trainer.step(images, targets))
            seen += len(images)
            asked = time.perf_counter()
        loss = torch.stack(losses).mean().item()  # waits for the device
        seconds = time.perf_counter() - began
        print(
            f"epoch {epoch + 1}/{options.epochs}: loss {loss:.4f}, "
            f"accuracy {trainer.accuracy(validate):.3f}, {seen / seconds:.0f} images/s, "
            f"waited for data {waited / seconds:.0%} of the time",
            flush=True,
        )


if __name__ == "__main__":
    main()
