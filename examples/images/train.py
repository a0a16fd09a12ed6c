"""Learn from which picture a crop was taken: JPEG files, decoded and augmented while training.

A plain PyTorch script that knows nothing of Penstock. The pictures ship inside scikit-image; the
training and test crops are cut from them at random places. Decoding and augmenting take about half
of the time, as they do with real photographs: this is a job whose input pipeline is worth moving
elsewhere.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import torch
from PIL import Image
from skimage import data
from torch import nn
from torch.utils.data import DataLoader, Dataset

PICTURES = (
    "astronaut",
    "brick",
    "chelsea",
    "coffee",
    "grass",
    "gravel",
    "hubble_deep_field",
    "immunohistochemistry",
    "retina",
    "rocket",
)
CROP_PIXELS = 320
INPUT_PIXELS = 48


def write_crops(folder: Path, per_picture: int, seed: int) -> None:
    """Write the crops of every picture as JPEG files, unless they are there already."""
    complete = folder / f"complete-{per_picture}-{seed}"
    if complete.exists():
        return
    chance = random.Random(seed)
    for name in PICTURES:
        picture = Image.fromarray(getattr(data, name)()).convert("RGB")
        size = min(CROP_PIXELS, picture.width, picture.height)
        for part, count in (("train", per_picture), ("test", per_picture // 4)):
            target = folder / part / name
            target.mkdir(parents=True, exist_ok=True)
            for number in range(count):
                left = chance.randint(0, picture.width - size)
                top = chance.randint(0, picture.height - size)
                crop = picture.crop((left, top, left + size, top + size))
                crop.save(target / f"{number:04}.jpg", quality=90)
    complete.touch()


class Crops(Dataset):
    """JPEG files below one folder per picture; each item is (image, number of the picture).

    Images are float tensors of shape (3, INPUT_PIXELS, INPUT_PIXELS) in [0, 1].
    """

    def __init__(self, folder: Path, augment: bool, read_seconds: float = 0.0) -> None:
        self.files = sorted(folder.glob("*/*.jpg"))
        self.augment = augment
        self.read_seconds = read_seconds

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        file = self.files[index]
        time.sleep(self.read_seconds)
        image = Image.open(file).convert("RGB")
        if self.augment:
            size = int(torch.randint(int(image.width * 0.6), image.width + 1, ()))
            left = int(torch.randint(0, image.width - size + 1, ()))
            top = int(torch.randint(0, image.height - size + 1, ()))
            image = image.crop((left, top, left + size, top + size))
            if torch.rand(()) < 0.5:
                image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = image.resize((INPUT_PIXELS, INPUT_PIXELS), Image.Resampling.BILINEAR)
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        pixels = pixels.view(INPUT_PIXELS, INPUT_PIXELS, 3).permute(2, 0, 1)
        return pixels.float() / 255, PICTURES.index(file.parent.name)


def make_model(width: int = 16) -> nn.Module:
    """A small convolutional network with one output per picture."""

    def block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )

    return nn.Sequential(
        block(3, width),
        block(width, 2 * width),
        block(2 * width, 4 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, len(PICTURES)),
    )


@torch.no_grad()
def accuracy(model: nn.Module, loader: DataLoader, device: str) -> float:
    """The share of test crops that the model names rightly."""
    model.eval()
    right = total = 0
    for images, targets in loader:
        right += int((model(images.to(device)).argmax(1).cpu() == targets).sum())
        total += len(targets)
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("build/images"), help="folder of crops")
    parser.add_argument("--crops", type=int, default=96, help="training crops of each picture")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--width", type=int, default=16, help="channels of the first layer")
    parser.add_argument(
        "--read-ms", type=float, default=0.0, help="delay of each read, as of storage far away"
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="begin no epoch after so long"
    )
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    write_crops(options.data, options.crops, options.seed)
    order = torch.Generator().manual_seed(options.seed)
    train = DataLoader(
        Crops(options.data / "train", augment=True, read_seconds=options.read_ms / 1000),
        batch_size=options.batch,
        shuffle=True,
        generator=order,
    )
    test = DataLoader(Crops(options.data / "test", augment=False), batch_size=64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = make_model(options.width).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    started = time.perf_counter()
    for epoch in range(options.epochs):
        if time.perf_counter() - started > options.seconds:
            break
        model.train()
        began, waited, seen = time.perf_counter(), 0.0, 0
        asked = time.perf_counter()
        for images, targets in train:
            waited += time.perf_counter() - asked
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            seen += len(targets)
            asked = time.perf_counter()
        seconds = time.perf_counter() - began
        print(
            f"epoch {epoch + 1}/{options.epochs}: loss {loss.item():.3f}, "
            f"accuracy {accuracy(model, test, device):.3f}, {seen / seconds:.0f} images/s, "
            f"waited for data {waited / seconds:.0%} of the time",
            flush=True,
        )


if __name__ == "__main__":
    main()
