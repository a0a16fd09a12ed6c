"""Programs that declare nothing, with loader and data workers played by hand: what moves."""

from __future__ import annotations

import copy
import itertools
import pickle
import warnings
from collections import UserDict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import nn

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.offloading import portable
from penstock.data.offloading.batch_calls import split, with_results
from penstock.data.torchpartition import loader_steps
from penstock.data.torchpartition import prefix as prefixes
from penstock.data.torchpartition.replay import LostError
from tests.data.torchpartition.training import (
    MEAN,
    Training,
    encoder,
    everything_is_worth_it,
    frozen,
    moved_names,
    normal,
    pairs,
    plain_loss,
    program,
    trained,
)

F = nn.functional


@pytest.fixture(autouse=True)
def _everything_is_worth_it() -> Iterator[None]:
    """What is judged here is whether calls may move."""
    with everything_is_worth_it():
        yield


def test_a_frozen_encoder_moves_with_what_is_before_it() -> None:
    training = Training(program(plain_loss))
    training.run()
    loader = training.loader
    assert loader.state.phase is Phase.ON, loader.state.proof.why
    assert moved_names(loader) == [
        "Tensor.float", "Tensor.div", "Tensor.sub", "Tensor.div", "Sequential"
    ]  # fmt: skip
    assert (loader.compared, loader.moved) == (11, 25)
    assert loader.plan is not None
    stays = [item.name.split(": ")[1] for item in loader.plan.items if not item.moves]
    assert stays == ["nn.functional.linear", "nn.functional.cross_entropy"], "of one step"
    [note] = loader.notes().values()
    assert (note.name, note.state, note.steps, note.moved) == ("the loader", Phase.ON, 48, 25)
    assert note.prefix.startswith("5 calls move (Tensor.float")
    assert note.crossing_bytes
    loader.give_up("the encoder was trained")
    [note] = loader.notes().values()
    assert (note.state, note.why) == (Phase.FELL_BACK, "the encoder was trained")


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
    left = itertools.cycle(sizes)

    def loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
        pixels, labels = batch
        hidden = encode(normal(pixels.view(pixels.shape[0], 3, -1).view(len(pixels), 3, 8, 8)))
        return F.cross_entropy(head(hidden), labels)

    training = Training(program(loss), lambda: pairs(next(left)))
    training.run(epochs=6, steps=5)
    loader = training.loader
    assert loader.state.phase is Phase.ON, loader.state.proof.why
    assert loader.moved == 25 - 11


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


def wide_encoder() -> nn.Module:
    """Of 2 MiB."""
    return frozen(nn.Sequential(nn.Flatten(), nn.Linear(192, 2700), nn.ReLU(), nn.Linear(2700, 16)))


def test_weights_do_not_count_as_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "MAX_PIPELINE_BYTES", 1 << 20)
    training = Training(program(plain_loss, wide_encoder))
    training.run()
    assert training.loader.state.phase is Phase.ON, training.loader.state.proof.why
    assert training.loader.moved == 25


@pytest.mark.parametrize("copied", [True, False])
def test_a_value_of_weights_that_were_written_to_is_what_it_was_or_an_error(
    copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not copied:
        monkeypatch.setattr(loader_steps, "COPIED_BYTES", 1 << 20)

    def make() -> Any:
        return wide_encoder(), iter(range(1_000_000))

    def loss(batch: Any, own: Any, head: nn.Module) -> torch.Tensor:
        encode, count = own
        pixels, labels = batch
        hidden = encode(normal(pixels))
        crosses = hidden * 2
        if next(count) == 40:
            with torch.no_grad():
                encode[1].weight.mul_(2)
            crosses = crosses + hidden.cumsum(0)
        return F.cross_entropy(head(crosses), labels)

    training = Training(program(loss, make))
    if copied:
        training.run()
        assert training.loader.state.phase is Phase.FELL_BACK
    else:
        with pytest.raises(LostError, match="the weights of Sequential were written to"):
            training.run()


def ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Some programs take the next batch before they use the last one."""
    last: Any = None
    for number, batch in enumerate(batches):
        if number:
            yield last
        last = batch
    yield last


def placed(batch: Any) -> Any:
    """As accelerate's loaders do it, before they take the next batch."""
    return [one.to("cpu") for one in batch]


@pytest.mark.parametrize("early", [list, placed])
def test_a_program_that_takes_the_next_batch_first_is_understood(
    early: Callable[[Any], Any],
) -> None:
    class Ahead(Training):
        def delivered(self, epoch: list[Any]) -> Iterator[Any]:
            yield from ahead(map(early, super().delivered(epoch)))

    training = Ahead(program(plain_loss))
    training.run(epochs=5)
    assert training.loader.moved >= 30, training.loader.state.proof.why
    assert "Sequential" in moved_names(training.loader)


class Grouped(Training):
    """As transformers' Trainer accumulates gradients: it takes all batches of a step first."""

    count = 4
    between: Callable[[], Any] | None = None

    def delivered(self, epoch: list[Any]) -> Iterator[Any]:
        batches = ahead(map(placed, super().delivered(epoch)))
        while group := list(itertools.islice(batches, self.count)):
            yield from group
            if self.between is not None:
                self.between()


@pytest.mark.parametrize("count", [2, 3, 4, 7])
def test_a_program_that_takes_several_batches_first_is_understood(count: int) -> None:
    training = Grouped(program(plain_loss))
    training.count = count
    training.run(epochs=5, steps=30)
    loader = training.loader
    assert loader.state.phase is Phase.ON, loader.state.proof.why
    assert "Sequential" in moved_names(loader)
    assert loader.moved >= 80, loader.state.proof.why


def test_an_encoder_that_is_called_between_steps_of_several_batches_ends_nothing() -> None:
    own = encoder()
    training = Grouped(program(plain_loss, lambda: own))
    training.between = lambda: own(normal(torch.ones(2, 3, 8, 8)))
    training.run(epochs=5, steps=30)
    assert training.loader.state.phase is Phase.ON, training.loader.state.proof.why
    assert training.loader.moved >= 80


def test_batches_that_a_program_passes_over_are_not_taken_for_taken_first() -> None:
    class Passing(Training):
        def delivered(self, epoch: list[Any]) -> Iterator[Any]:
            for number, batch in enumerate(super().delivered(epoch)):
                if number >= 6:
                    yield batch

        def alone(self, epochs: int = 4, steps: int = 12) -> list[Any]:
            return self._losses([epoch[6:] for epoch in self._batches(epochs, steps)])

    training = Passing(program(plain_loss), lambda: tuple(pairs()))
    training.run(epochs=5, steps=30)
    assert training.loader._open.ahead <= 1
    assert "the program calls nothing with its batches" in training.loader.state.proof.why


def test_more_batches_at_once_than_are_looked_at_are_named() -> None:
    training = Grouped(program(plain_loss))
    training.count = 80
    training.run(epochs=3, steps=160)
    why = "the program takes more than 64 batches before it uses the first of them"
    assert why in training.loader.state.proof.why
    assert training.loader.moved == 0


class Encoded(UserDict[str, Any]):
    """As the batches that tokenizers of transformers give."""


def test_batches_may_be_dicts_of_a_librarys_own() -> None:
    def batch() -> Encoded:
        return Encoded(described_pictures())

    training = Training(program(diffusion_loss, diffusion_parts), batch)
    training.run()
    assert training.loader.state.phase is Phase.ON, training.loader.state.proof.why
    assert training.loader.moved >= 20


class Doubled(torch.autograd.Function):
    """A function with a gradient of its own, which reads what is looked at."""

    @staticmethod
    def forward(context: Any, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        context.save_for_backward(x)
        return weight * x * 2

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        (x,) = context.saved_tensors
        return (gradients[0] * x * 2).sum(), None


def scripted() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.trace(lambda x: (x * 3).relu(), torch.rand(4, 16))


USES: dict[str, Callable[[torch.Tensor, nn.Module, Any], Any]] = {
    "autograd function": lambda x, head, own: Doubled.apply(own.weight, x),
    "checkpoint": lambda x, head, own: torch.utils.checkpoint.checkpoint(
        own.layer, x, use_reentrant=False
    ),
    "vmap": lambda x, head, own: torch.vmap(lambda row: row.sin() * 2)(x),
    "scripted": lambda x, head, own: own.scripted[0](x),
    "deep copy": lambda x, head, own: copy.deepcopy(x),
    "pickle": lambda x, head, own: pickle.loads(pickle.dumps(x)),
    "rows": lambda x, head, own: torch.stack(list(x)),
    "numbers": lambda x, head, own: torch.tensor(x.tolist()),
    "NumPy": lambda x, head, own: torch.from_numpy(x.numpy() * 2),
    "memory": lambda x, head, own: x + (x.data_ptr() != 0),
    "the last one": lambda x, head, own: x + own.kept(x),
    "inference": lambda x, head, own: own.inferred(x),
    "its own memory": lambda x, head, own: (x * 2).add_(1),
    "a view written to": lambda x, head, own: own.view_written(x),
    "text": lambda x, head, own: x * (len(repr(x)) > 0),
    "equal": lambda x, head, own: x if torch.equal(x, x) else x * 2,
    "grad": lambda x, head, own: own.penalty(x, head),
    "chunks": lambda x, head, own: torch.cat(x.chunk(2, 1)[::-1], 1),
    "out": lambda x, head, own: torch.add(x, 1, out=torch.empty(0)),
    "attention": lambda x, head, own: own.attention(x),
    "recurrent": lambda x, head, own: own.recurrent(x.unsqueeze(1))[0][:, 0],
}


class Own(nn.Module):
    """What programs have beside their frozen parts."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.layer = nn.Linear(16, 16)
        self.layers = nn.TransformerEncoderLayer(16, 2, 16, batch_first=True)
        self.recurrent = nn.GRU(16, 16, batch_first=True)
        self.scripted = [scripted()]
        self.last: Any = None

    def kept(self, x: torch.Tensor) -> Any:
        last, self.last = self.last, x
        return 0 if last is None else last

    def inferred(self, x: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            y = x * 2
            y.add_(1)
        return y.clone()

    def view_written(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 1
        first = y[:, 0]
        y[:, 0] = 5
        return y + first[:, None]

    def penalty(self, x: torch.Tensor, head: nn.Module) -> torch.Tensor:
        x = x.detach().requires_grad_()
        (found,) = torch.autograd.grad(head(x).sum(), x, create_graph=True)
        return x.detach() + found

    def attention(self, x: torch.Tensor) -> Any:
        self.layers.eval()  # trained, and asked without gradients: the way of the fast path
        with torch.no_grad():
            return self.layers(x.unsqueeze(1))[:, 0]


@pytest.mark.parametrize("name", USES)
def test_whatever_a_program_does_with_what_moves_every_loss_is_the_same(name: str) -> None:
    def make() -> Any:
        return encoder(), Own()

    def loss(batch: Any, parts: Any, head: nn.Module) -> torch.Tensor:
        encode, own = parts
        pixels, labels = batch
        with torch.no_grad():
            hidden = encode(normal(pixels))
        return F.cross_entropy(head(USES[name](hidden, head, own)), labels)

    training = Training(program(loss, make))
    training.run()
    assert training.loader.moved == 25, training.loader.state.proof.why


def test_a_program_that_asks_for_the_type_is_found_out() -> None:
    def loss(batch: Any, encode: Any, head: nn.Module) -> torch.Tensor:
        pixels, labels = batch
        x = normal(pixels)
        hidden = encode(x if type(x) is torch.Tensor else x * 2)
        return F.cross_entropy(head(hidden), labels)

    training = Training(program(loss))
    with pytest.raises(AssertionError, match="step 1 of"):  # where it was first looked at
        training.run()
    loader = training.loader
    assert (loader.moved, loader.compared) == (0, 1)
    assert "in a step that nobody looked at" in loader.state.proof.why


@pytest.mark.parametrize("where", ["unobserved", "observed"])
def test_one_bit_that_another_kind_of_machine_makes_otherwise_ends_it_with_its_name(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Elsewhere(Training):
        def delivered(self, epoch: list[Any]) -> Iterator[Any]:
            stage = self.loader.begin_epoch()
            for batch in epoch:
                self.loader.end_step()
                made = batch
                if stage is not None:
                    own, [result] = split(stage(copy.deepcopy(batch)))
                    variant, crossing, metas = result.value
                    if self.loader.moved or where == "unobserved":
                        crossing[0].view(torch.int32)[0] ^= 1
                        result = replace(result, place="torch 2.13, SVE, aarch64")
                    value = (variant, crossing, metas)
                    made = with_results(own, [replace(result, value=value)])
                yield self.loader.deliver(made)
            self.loader.end_step()

    training = Elsewhere(program(plain_loss))
    training.run()
    assert training.loader.state.phase is Phase.FELL_BACK
    [line] = [one for one in caplog.messages if "FellBack" in one]
    assert "it was made with torch 2.13, SVE, aarch64, and the program runs with torch" in line


def test_where_a_batch_is_made_only_what_is_still_read_lies_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(program(plain_loss))
    training.run()
    assert training.loader._sent is not None
    prefix = training.loader._sent.prefix
    most = 0

    class Counted(prefixes._Made):
        """It knows how many of the values were there at once."""

        def add(self, key: int, value: torch.Tensor) -> Any:
            nonlocal most
            found = super().add(key, value)
            most = max(most, len(self.values))
            return found

    monkeypatch.setattr(prefixes, "_Made", Counted)
    batch = pairs()
    place, [crossing], written = prefix(batch)
    assert (place, len(prefixes.metas_of(written))) == (0, 7), "two of the batch, and five"
    assert most == 4, "the batch's, what a call reads and what it puts out"
    assert isinstance(written, bytes), "one piece, however many values"
    [encode] = [call.module for call in prefix.variants[0].calls if call.module is not None]
    assert torch.equal(crossing, encode(normal(batch[0])))


def test_memory_is_that_of_all_values_in_it_until_the_last_is_gone() -> None:
    whole = torch.rand(4)
    made = prefixes._Made([whole])
    assert made.add(1, whole[:2]) == (("float32", 1), 0)
    made.let_go(0)
    assert made.add(2, whole[2:]) == (("float32", 1), 0), "a view of it is there"
    for key in (1, 2):
        made.let_go(key)
    assert made.add(3, whole) == (("float32", 1), 3), "as of memory that was given out again"
    assert [key for key, *_ in made.metas] == [0, 1, 2, 3]


def test_a_step_of_several_batches_is_recorded_up_to_what_its_optimizer_does() -> None:
    def followed(head: nn.Module) -> Callable[[Any], torch.Tensor]:
        own, count = encoder(), itertools.count(1)

        def look(batch: Any) -> torch.Tensor:
            loss = plain_loss(batch, own, head)
            if not next(count) % 3:  # the last batch of a step
                next(own.parameters()).data.mul_(0.99)
            return loss

        return look

    training = Training(lambda: trained(followed))
    loader, alone = training.loader, training.alone()
    epochs, losses = training._batches(4, 12), []
    torch.manual_seed(2)
    step = training.program()
    for epoch in epochs:
        stage = loader.begin_epoch()
        for number, batch in enumerate(epoch):
            made = stage(copy.deepcopy(batch)) if stage else batch
            losses.append(step(loader.deliver(made, first=number % 3 == 0)).detach().clone())
    loader.end_step()
    assert all(torch.equal(one, other) for one, other in zip(losses, alone, strict=True))
    assert moved_names(loader) == ["Tensor.float", "Tensor.div", "Tensor.sub", "Tensor.div"]
    assert loader.plan is not None
    [why] = [one.why for one in loader.plan.items if one.name.endswith(": Sequential")]
    assert why == "Mutated: it was written to"
    assert loader.steps == 48
    assert loader.moved > 0
