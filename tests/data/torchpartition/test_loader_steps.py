"""Programs that declare nothing, with loader and data workers played by hand: what moves."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import cloudpickle
import pytest
import torch
from torch import nn

from penstock.data.partition.proof import Phase
from penstock.data.torchpartition import plan
from penstock.data.torchpartition.loader_steps import LoaderSteps
from penstock.data.torchpartition.observation.modules import unwatch

F = nn.functional
Step = Callable[[Any], torch.Tensor]


@pytest.fixture(autouse=True)
def _everything_is_worth_it(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Calls of a few microseconds move as well: what is judged here is whether they may."""
    monkeypatch.setattr(plan, "MATCH_SECONDS", 0.0)
    monkeypatch.setattr(plan, "WORKER_SECOND", 1e-9)
    monkeypatch.setattr(plan, "_worth", lambda *figures: "")
    plain = nn.Module.__call__
    yield
    while nn.Module.__call__ is not plain:
        unwatch()


def pairs(rows: int = 4) -> list[torch.Tensor]:
    return [torch.randint(0, 256, (rows, 3, 8, 8), dtype=torch.uint8), torch.arange(rows) % 5]


def frozen(module: nn.Module) -> nn.Module:
    return module.eval().requires_grad_(requires_grad=False)


def encoder() -> nn.Module:
    return frozen(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 16)))


class Training:
    """One program, that has made its losses before it is made again under observation."""

    def __init__(self, program: Callable[[], Step], batch: Callable[[], Any] = pairs) -> None:
        self.program, self.batch = program, batch
        self.loader = LoaderSteps("the loader")

    def run(self, epochs: int = 4, steps: int = 12, **options: Any) -> list[Any]:
        """Its losses, under observation; asserts that they are what they are without."""
        torch.manual_seed(1)
        random.seed(1)
        batches = [[self.batch() for _ in range(steps)] for _ in range(epochs)]
        alone = self._losses(copy.deepcopy(batches), lambda batch: batch, lambda: None)
        losses = self._watched(batches, **options)
        for number, (one, other) in enumerate(zip(losses, alone, strict=True)):
            assert torch.equal(one, other), f"step {number} of {len(alone)}: {self.loader.state}"
        return losses

    def _losses(self, batches: Any, deliver: Any, end: Any) -> list[Any]:
        torch.manual_seed(2)
        random.seed(2)
        step = self.program()
        losses = []
        for epoch in batches:
            for batch in epoch:
                losses.append(step(deliver(batch)).detach().clone())
                end()
        return losses

    def _watched(self, batches: Any, elsewhere: bool = True) -> list[Any]:
        torch.manual_seed(2)
        random.seed(2)
        step = self.program()
        losses = []
        for epoch in batches:
            stage = self.loader.begin_epoch()
            if stage is not None:
                stage = pickle.loads(cloudpickle.dumps(stage))
            for batch in epoch:
                made = stage(copy.deepcopy(batch)) if stage is not None and elsewhere else batch
                losses.append(step(self.loader.deliver(made)).detach().clone())
                self.loader.end_step()
        return losses


def trained(program: Callable[[nn.Module], Callable[[Any], torch.Tensor]], width: int = 16) -> Step:
    """A step that trains a head on what a program makes of a batch."""
    head = nn.Sequential(nn.Linear(width, 8), nn.Dropout(0.2), nn.Linear(8, 5))
    look = program(head)
    optimizer = torch.optim.AdamW(head.parameters(), 0.01)

    def step(batch: Any) -> torch.Tensor:
        loss = look(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step


def program(
    loss: Callable[[Any, Any, nn.Module], torch.Tensor],
    make: Callable[[], Any] = encoder,
    width: int = 16,
) -> Callable[[], Step]:
    """A program of a loss, given a batch, what it has frozen, and a head that is trained."""

    def made() -> Step:
        own = make()
        return trained(lambda head: lambda batch: loss(batch, own, head), width)

    return made


MEAN = torch.rand(1, 3, 1, 1)


def normal(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels.float() / 255 - MEAN) / 0.3


def plain_loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
    pixels, labels = batch
    with torch.no_grad():
        hidden = encode(normal(pixels))
    return F.cross_entropy(head(hidden), labels)


def moved_names(loader: LoaderSteps) -> list[str]:
    assert loader.plan is not None, loader.state.proof.why
    return [item.name.split(": ")[1] for item in loader.plan.items if item.moves]


def test_a_frozen_encoder_moves_with_what_is_before_it() -> None:
    training = Training(program(plain_loss))
    training.run()
    loader = training.loader
    assert loader.state.phase is Phase.ON, loader.state.proof.why
    assert moved_names(loader) == [
        "Tensor.float", "Tensor.div", "Tensor.sub", "Tensor.div", "Sequential"
    ]  # fmt: skip
    assert (loader.compared, loader.moved) == (11, 25)


def diffusion_loss(batch: Any, own: Any, head: nn.Module) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            mean, log = own["see"](batch["pixels"] / 127.5 - 1).chunk(2, 1)
            text = own["layer"](own["words"](batch["ids"])).mean(1)
        latent = mean + torch.exp(0.5 * log) * torch.randn_like(mean)
        guess = head(latent.flatten(1)[:, :16] + text)
        return F.mse_loss(guess.float(), torch.randn(guess.shape))


def diffusion_parts() -> Any:
    return frozen(
        nn.ModuleDict(
            {
                "see": nn.Conv2d(3, 4, 3),
                "words": nn.Embedding(20, 16),
                "layer": nn.TransformerEncoderLayer(16, 2, 32, batch_first=True),
            }
        )
    )


def described_pictures(rows: int = 4) -> dict[str, Any]:
    return {
        "pixels": torch.randint(0, 256, (rows, 3, 8, 8), dtype=torch.uint8),
        "ids": torch.randint(0, 20, (rows, 6)),
        "name": ["a"] * rows,
    }


def test_a_diffusion_step_moves_up_to_its_draws_under_autocast() -> None:
    training = Training(program(diffusion_loss, diffusion_parts), described_pictures)
    training.run()
    loader = training.loader
    assert loader.state.phase is Phase.ON, loader.state.proof.why
    assert moved_names(loader) == [
        "Tensor.div", "Tensor.sub", "Conv2d", "Embedding", "TransformerEncoderLayer", "Tensor.mean"
    ]  # fmt: skip
    assert loader.moved >= 20


class Whole(nn.Module):
    """A model whose frozen part is within it."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.backbone, self.head = encoder(), head

    def train(self, mode: bool = True) -> Whole:
        super().train(mode)
        self.backbone.eval()
        return self

    def forward(self, pixels: torch.Tensor) -> Any:
        return self.head(self.backbone(normal(pixels)))


def test_what_is_frozen_within_a_trained_model_moves() -> None:
    def look(head: nn.Module) -> Any:
        model = Whole(head).train()
        return lambda batch: F.cross_entropy(model(batch[0]), batch[1])

    training = Training(lambda: trained(look))
    training.run()
    assert training.loader.moved == 25, training.loader.state.proof.why


def test_an_encoder_that_gives_a_part_of_a_larger_tensor_moves() -> None:
    class First(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(24, 16)

        def forward(self, pixels: torch.Tensor) -> Any:
            return self.layer(pixels.flatten(2).transpose(1, 2).reshape(-1, 8, 24))[:, 1]

    training = Training(program(plain_loss, lambda: frozen(First())))
    training.run()
    assert training.loader.moved == 25, training.loader.state.proof.why


def test_results_of_other_sizes_than_the_batch_are_what_they_are_there() -> None:
    def loss(batch: Any, table: Any, head: nn.Module) -> torch.Tensor:
        pixels, labels = batch
        found, places = torch.unique((pixels.long() * 7919) % 61, return_inverse=True)
        hidden = table(found)[places].mean((1, 2))[:, 0] + found.shape[0]
        return F.cross_entropy(head(hidden.detach()), labels)

    training = Training(program(loss, lambda: nn.Embedding(61, 16)))
    training.run()
    loader = training.loader
    assert loader.moved == 25, loader.state.proof.why
    assert moved_names(loader)[-1] == "functional.unique"


@pytest.mark.parametrize("sizes", [(4, 4, 4, 4, 3), (4, 2, 4, 4, 3)])
def test_the_last_batch_of_an_epoch_moves_too(sizes: tuple[int, ...]) -> None:
    left = iter(sizes * 20)

    def loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
        pixels, labels = batch
        hidden = encode(normal(pixels.view(pixels.shape[0], 3, -1).view(len(pixels), 3, 8, 8)))
        return F.cross_entropy(head(hidden), labels)

    training = Training(program(loss), lambda: pairs(next(left)))
    training.run(epochs=6, steps=5)
    loader = training.loader
    assert loader.state.phase is Phase.ON, loader.state.proof.why
    assert loader.moved == 25 - 11


def after(steps: int, then: Callable[[], Any]) -> Callable[[], bool]:
    """Whether so many calls have been made; ``then``: done once they have."""
    count = iter(range(1_000_000))

    def due() -> bool:
        if found := next(count) == steps:
            then()
        return found

    return due


LATER: dict[str, Callable[[Any, Any], Any]] = {
    "an operator that was not recorded": lambda x, own: x.max(),
    "a draw": lambda x, own: F.dropout(x),
    "a write to the batch": lambda x, own: x.add_(1),
    "a write past the versions": lambda x, own: x.data.add_(1),
    "a write through NumPy": lambda x, own: x.numpy().fill(7),
    "a look at numbers": lambda x, own: x.tolist(),
    "weights written to": lambda x, own: [one.data.mul_(1.5) for one in own.parameters()],
    "weights loaded": lambda x, own: own.load_state_dict(
        {name: one * 2 for name, one in own.state_dict().items()}
    ),
    "training mode": lambda x, own: own.train(),
    "unfrozen": lambda x, own: own.requires_grad_(requires_grad=True),
    "another mode": lambda x, own: torch.set_float32_matmul_precision("high"),
    "the normalisation written to": lambda x, own: own.mean.mul_(2),
    "the normalisation written to past the versions": lambda x, own: own.mean.data.mul_(2),
    "the normalisation replaced": lambda x, own: setattr(own, "mean", own.mean * 2),
}


@pytest.mark.parametrize("name", LATER)
@pytest.mark.parametrize("where", ["batch", "floats", "normalised"])
def test_what_happens_later_is_seen_and_every_loss_is_right(
    name: str, where: str, request: pytest.FixtureRequest
) -> None:
    precision = torch.get_float32_matmul_precision()
    request.addfinalizer(lambda: torch.set_float32_matmul_precision(precision))

    def make() -> Any:
        torch.set_float32_matmul_precision(precision)
        own = encoder()
        own.register_buffer("mean", MEAN.clone())
        return own, iter(range(1_000_000))

    def loss(batch: Any, own: Any, head: nn.Module) -> torch.Tensor:
        pixels, labels = batch
        encode, count = own
        now = next(count) % 40 == 33
        act = LATER[name] if now else lambda x, own: None
        if where == "batch":
            act(pixels if "draw" not in name else pixels.float(), encode)
        x = pixels.float()
        if where == "floats":
            act(x, encode)
        x = (x - encode.mean) / 100
        if where == "normalised":
            act(x, encode)
        with torch.no_grad():
            hidden = encode(x)
        return F.cross_entropy(head(hidden) + x.mean(), labels)

    training = Training(program(loss, make))
    training.run(epochs=4, steps=12)
    assert training.loader.moved >= 5, training.loader.state.proof.why
