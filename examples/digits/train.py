"""Train a small convolutional network on scikit-learn's handwritten digits.

Run it alone with ``python examples/digits/train.py``, or as an ElasticJob (job.yaml), where any
number of workers share each step and may come and go while it trains.
"""

from __future__ import annotations

import argparse

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from penstock.trainer import elastic

TEST_IMAGES = 360


def load() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training images and labels, then test images and labels; images are (N, 1, 8, 8) in 0..1."""
    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits.target).long()
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    return images[train], labels[train], images[test], labels[test]


def build_model(width: int) -> nn.Module:
    """Four convolutions on the 8 x 8 image; group normalisation does not depend on the batch."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.GroupNorm(8, width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(8, width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.GroupNorm(8, width),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(width * 16, 10),
    )


def main() -> None:
    """Train, then print the accuracy on the test images."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=36)
    parser.add_argument("--global-batch", type=int, default=144)
    parser.add_argument("--width", type=int, default=128, help="channels of the convolutions")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--samples", type=int, help="train on the first so many images only")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads per worker")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels, test_images, test_labels = (part.to(device) for part in load())
    count = options.samples or len(images)
    model = build_model(options.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)

    with elastic.session(
        model=model,
        optimizer=optimizer,
        dataset_size=count,
        global_batch=options.global_batch,
        epochs=options.epochs,
        slots_per_step=12,
        seed=1,
    ) as session:
        for step in session:
            for micro in step:
                loss = functional.cross_entropy(model(images[micro.indices]), labels[micro.indices])
                micro.backward(loss)
            step.commit()
        if session.is_chief:
            model.eval()
            with torch.no_grad():
                correct = (model(test_images).argmax(1) == test_labels).float().mean()
            session.report(accuracy=round(float(correct), 4))


if __name__ == "__main__":
    main()
