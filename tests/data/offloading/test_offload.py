"""Declared functions, with loader and data workers played by hand: what moves, what may not."""

from __future__ import annotations

import copy
import os
import pickle
import random
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

from penstock.base.enums import PartitionPhase as Phase
from penstock.data.hooked import INTERCEPT
from penstock.data.offloading import frozen
from penstock.data.offloading.batch_calls import split, with_results
from penstock.data.offloading.loader_calls import MAX_CALLS, MAX_UNUSED, LoaderCalls
from penstock.data.offloading.offload import offload
from penstock.data.offloading.pace import LEAST, SKIPPED


@pytest.fixture(autouse=True)
def _under_penstock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INTERCEPT, "1")


def declare(function: Any) -> Any:
    """`offload`, of which a type checker knows no counts."""
    return offload(function)


def images(rows: int = 4) -> dict[str, Any]:
    return {"image": torch.rand(rows, 6), "text": ["a b", "c"], "label": torch.arange(rows)}


def encoder() -> torch.nn.Module:
    made = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
    return made.eval().requires_grad_(requires_grad=False)


class Program:
    """A training loop: epochs of one loader, with one call for each batch."""

    def __init__(self, call: Callable[[Any], Any], batch: Callable[[], Any] = images) -> None:
        self.call, self.batch = call, batch
        self.loader = LoaderCalls()

    def epoch(self, steps: int, *, elsewhere: bool = True, why_not: str = "") -> list[Any]:
        """What the calls returned; the stage goes the way that it goes to another process."""
        stage = self.loader.begin_epoch(why_not)
        if stage is not None:
            stage = pickle.loads(cloudpickle.dumps(stage))
        returned = []
        for _ in range(steps):
            batch = self.batch()
            made = stage(copy.deepcopy(batch)) if stage is not None and elsewhere else batch
            if made is not batch:
                batch = made["batch"]
            got = self.loader.deliver(made)
            assert got is batch
            returned.append(self.call(got))
        return returned


def test_an_encoder_moves_and_its_results_are_the_same_bit_by_bit() -> None:
    encode = declare(encoder())
    alone = copy.deepcopy(encode)
    seen: list[Any] = []

    def call(batch: Any) -> Any:
        seen.append(alone(batch["image"]))
        return encode(batch["image"])

    program = Program(call)
    for _ in range(3):
        returned = program.epoch(20)
        assert all(map(torch.equal, returned, seen[-20:]))
    counts = encode.offloaded
    assert (counts.calls, counts.compared, counts.moved) == (60, 11, 29)
    assert counts.why == ""
    [note] = program.loader.notes().values()
    assert (note.name, note.state, note.steps, note.moved) == ("Sequential", Phase.ON, 60, 29)
    encode(torch.rand(4, 6))
    counts.stays("it has hooks")
    [note] = program.loader.notes().values()
    assert (note.state, note.why) == (Phase.FELL_BACK, "it has hooks")


def test_a_function_that_was_called_with_what_is_of_no_batch_is_told_of() -> None:
    encode = declare(encoder())
    program = Program(lambda batch: encode(batch["image"] * 2))
    program.epoch(2)
    [note] = program.loader.notes().values()
    assert (note.state, note.moved) == (Phase.FELL_BACK, 0)
    assert "no part of a batch" in note.why


def test_a_batch_that_the_program_made_itself_has_no_results() -> None:
    encode = declare(encoder())
    program = Program(lambda batch: encode(batch["image"]))
    program.epoch(5)
    program.epoch(20, elsewhere=False)
    program.epoch(20)
    assert (encode.offloaded.compared, encode.offloaded.moved) == (11, 9)
    assert "moved=9, compared=11, why=''" in repr(encode.offloaded)
    assert "\n" not in repr(encode.offloaded), "who prints it sees no module"


def test_a_tokeniser_of_texts_and_options_moves() -> None:
    calls: list[Any] = []

    def lengths(texts: list[str], *, most: int) -> dict[str, Any]:
        return {"n": torch.tensor([min(len(one), most) for one in texts]), "most": most}

    tokenise = declare(lengths)
    program = Program(lambda batch: calls.append(tokenise(batch["text"], most=2)))
    for _ in range(2):
        program.epoch(20)
    assert tokenise.offloaded.moved == 9
    assert all(one["n"].tolist() == [2, 1] and one["most"] == 2 for one in calls)


def test_columns_of_words_are_parts_of_the_batch_as_default_collate_makes_them() -> None:
    def hashed(columns: list[tuple[str, ...]], names: tuple[str, ...]) -> torch.Tensor:
        return torch.tensor([[len(one) for one in column] for column in columns]) + len(names)

    def batch() -> dict[str, Any]:
        return {"words": [("a", "bc"), ("def", "")], "image": torch.rand(4, 6)}

    look_up = declare(hashed)
    program = Program(lambda b: look_up(b["words"], ("word", "and another")), batch)
    for _ in range(2):
        returned = program.epoch(20)
    assert look_up.offloaded.moved == 9, look_up.offloaded.why
    assert all(one.tolist() == [[3, 4], [5, 2]] for one in returned)


def test_a_function_of_the_whole_batch_and_one_of_several_parts_move_side_by_side() -> None:
    def whole(batch: dict[str, Any]) -> Any:
        return batch["image"] * 2

    def several(parts: list[Any], scale: float) -> Any:
        return parts[0].sum(1) * scale + parts[1]

    one, other = declare(whole), declare(several)
    program = Program(lambda b: (one(b), other([b["image"], b["label"]], 0.5)))
    program.epoch(3)
    returned = program.epoch(15)
    assert (one.offloaded.moved, other.offloaded.moved) == (4, 4)
    assert len(returned) == 15


def test_the_modes_of_the_program_go_with_the_call() -> None:
    encode = declare(encoder())

    def call(batch: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            return encode(batch["image"])

    program = Program(call)
    program.epoch(3)
    returned = program.epoch(15)
    assert {one.dtype for one in returned} == {torch.bfloat16}
    assert encode.offloaded.moved == 4


def test_results_of_other_sizes_are_compared_before_they_are_used() -> None:
    encode = declare(encoder())
    rows = iter([4] * 16 + [3, 3, 2])
    program = Program(lambda batch: encode(batch["image"]), lambda: images(next(rows)))
    program.epoch(3)
    program.epoch(16)
    assert (encode.offloaded.compared, encode.offloaded.moved) == (10 + 1 + 2, 3)


def numbered(change: Callable[[Any, int], None]) -> tuple[Any, Program]:
    """An encoder that the program changes before each of its steps."""
    encode = declare(encoder())
    steps = iter(range(1000))

    def call(batch: Any) -> Any:
        change(encode, next(steps))
        return encode(batch["image"])

    return encode, Program(call)


def at(step: int, change: Callable[[Any], None]) -> Callable[[Any, int], None]:
    return lambda encode, now: change(encode) if now == step else None


def write_past_pytorch(encode: Any) -> None:
    for one in encode.parameters():
        one.data.mul_(0.5)


def assign(encode: Any) -> None:
    encode[0].weight = torch.nn.Parameter(torch.ones(5, 6), requires_grad=False)


@pytest.mark.parametrize("kept", [True, False])
def test_a_program_with_another_loader_for_each_epoch_is_told(
    kept: bool, caplog: pytest.LogCaptureFixture
) -> None:
    encode = offload(torch.nn.Linear(6, 5).eval().requires_grad_(requires_grad=False))
    loaders = []
    for _ in range(5):
        loader = LoaderCalls()
        loader.begin_epoch(seed=0)
        for _ in range(4):
            encode(loader.deliver({"image": torch.rand(4, 6)})["image"])
        loaders.append(loader if kept else None)
        del loader
    told = [one for one in caplog.messages if "another loader for each epoch" in one]
    assert len(told) == (not kept)


@pytest.mark.parametrize("copied", [0, frozen.COPIED_BYTES])
def test_a_write_past_pytorch_is_seen_with_copies_of_the_bytes_and_without(
    copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frozen, "COPIED_BYTES", copied)
    encode = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)).eval()
    encode.requires_grad_(requires_grad=False)
    seen = frozen.Frozen(encode)
    assert [seen.change() for _ in range(8)] == [None] * 8
    encode[1].bias.data.mul_(0.5)
    assert "1.bias was written to" in [seen.change() for _ in range(4)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda encode: encode[1].bias.requires_grad_(), "1.bias requires a gradient"),
        (lambda encode: encode[1].train(), "1 was put into training mode"),
        (lambda encode: encode[1].bias.mul_(0.5), "1.bias was written to"),
        (lambda encode: setattr(encode[1].bias, "data", torch.zeros(4)), "1.bias was written to"),
        (lambda encode: encode[1].register_buffer("more", torch.ones(1)), "1 changed"),
        (lambda encode: encode[1].register_parameter("bias", None), "1 changed"),
        (lambda encode: encode.__setitem__(1, torch.nn.Identity()), "the module changed"),
        (lambda encode: encode.append(torch.nn.Identity()), "the module changed"),
        (lambda encode: encode.pop(1), "the module changed"),
    ],
)
@pytest.mark.parametrize("made_in", [torch.no_grad, torch.inference_mode])
def test_what_pytorch_knows_of_a_module_is_seen_at_once(
    made_in: Any, change: Callable[[Any], None], said: str
) -> None:
    with made_in():
        encode = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4)).eval()
    encode.requires_grad_(requires_grad=False)
    seen = frozen.Frozen(encode)
    assert seen.change() is None
    with made_in():
        change(encode)
    assert said in [seen.change() for _ in range(1 if made_in is torch.no_grad else 4)]


@pytest.mark.parametrize("step", [1, 17, 20])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda encode: encode.requires_grad_(), "requires a gradient"),
        (lambda encode: encode.train(), "training mode"),
        (lambda encode: encode[0].weight.mul_(0.5), "0.weight was written to"),
        (write_past_pytorch, "was written to"),
        (assign, "0 changed"),
    ],
)
def test_an_encoder_that_changes_runs_in_the_program_from_then_on(
    step: int, change: Callable[[Any], None], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    encode, program = numbered(at(step, change))
    own = copy.deepcopy(encode)
    expected: list[Any] = []

    def remember(batch: Any) -> Any:
        returned = program_call(batch)
        own.load_state_dict(encode.state_dict())
        with torch.no_grad():
            expected.append(own(batch["image"]))
        return returned

    program_call, program.call = program.call, remember
    returned = [*program.epoch(3), *program.epoch(20), *program.epoch(5)]
    assert all(map(torch.equal, returned, expected))
    assert said in encode.offloaded.why
    assert encode.offloaded.moved == max(0, step - 14)
    assert len([one for one in caplog.records if "runs in the program" in one.message]) == 1


def test_a_moving_average_that_pytorch_does_not_count_never_moves() -> None:
    encode, program = numbered(lambda encode, step: write_past_pytorch(encode) if step else None)
    program.epoch(3)
    program.epoch(20)
    assert encode.offloaded.moved == 0
    assert "was written to" in encode.offloaded.why


class Counting:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, batch: Any) -> Any:
        self.calls += 1
        return batch["image"] + self.calls


CALLS: list[int] = []


def noting(batch: Any) -> Any:
    CALLS.append(len(batch["label"]))
    return batch["image"] + 1


def printing(batch: Any) -> Any:
    print("called")
    return batch["image"] + 1


def writing(batch: Any) -> Any:
    Path(os.devnull).write_text("called")
    return batch["image"] + 1


def elsewhere() -> Any:
    made = encoder()
    made.register_buffer("mean", torch.zeros(1, device="meta"))
    return lambda batch: made(batch["image"])


def in_place(batch: Any) -> Any:
    return batch["image"].mul_(2)


def of_itself(weight: torch.Tensor) -> Callable[[Any], Any]:
    return lambda batch: weight[:2]


def hooked() -> Callable[[Any], Any]:
    made: Any = encoder()
    made[0].register_forward_hook(lambda *_: None)
    return lambda batch: made(batch["image"])


def with_lock() -> Callable[[Any], Any]:
    lock = threading.Lock()
    return lambda batch: batch["image"] + lock.locked()


def with_generator() -> Callable[[Any], Any]:
    own = torch.Generator().manual_seed(1)
    return lambda batch: batch["image"] + torch.rand(1, generator=own)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda batch: batch["image"] + torch.rand(1), "draws random numbers"),
        (lambda batch: batch["image"] * random.random(), "draws random numbers"),
        (with_generator(), "a random generator of its own (own)"),
        (in_place, "writes to its arguments"),
        (lambda batch: batch["image"][:, :2], "shares memory with its arguments"),
        (of_itself(torch.ones(3)), "is a part of itself"),
        (Counting(), "calling it changes calls"),
        (noting, "calling it changes CALLS"),
        (printing, "it prints, or writes to files"),
        (writing, "it prints, or writes to files"),
        (elsewhere(), "mean is on meta: data workers compute on CPUs"),
        (lambda batch: torch.nn.Dropout()(batch["image"]), "draws random numbers"),
        (torch.nn.Identity(), "training mode: call its eval()"),
        (torch.nn.Linear(6, 2).eval(), "requires a gradient: it is trained"),
        (hooked(), "has hooks"),
        (lambda batch: {1j: batch["image"] + 1}, "its result cannot be sent"),
        (with_lock(), "it cannot be pickled"),
    ],
)
def test_what_is_not_stateless_or_cannot_be_sent_stays_and_says_why(
    function: Any, said: str
) -> None:
    declared = declare(function)
    whole = not isinstance(function, torch.nn.Module)
    program = Program(lambda batch: declared(batch if whole else batch["image"]))
    program.epoch(5)
    program.epoch(20)
    assert said in declared.offloaded.why
    assert declared.offloaded.moved == 0


def test_a_function_that_fills_a_cache_once_moves(tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    def cached(batch: Any) -> Any:
        if not kept.exists():
            kept.write_text("kept")
        return batch["image"] + 1

    declared = declare(cached)
    program = Program(declared)
    program.epoch(5)
    program.epoch(20)
    assert declared.offloaded.moved > 0, declared.offloaded.why


def test_one_bit_that_another_kind_of_machine_makes_otherwise_ends_it_with_its_name() -> None:
    encode = declare(encoder())
    program = Program(lambda batch: encode(batch["image"]))
    program.epoch(3)
    program.epoch(15)
    assert encode.offloaded.moved == 4
    stage = program.loader.begin_epoch()
    assert stage is not None
    batch, [result] = split(stage(images()))
    other = result.value.clone().view(torch.int32)
    other[0, 0] ^= 1
    came = replace(result, value=other.view(torch.float32), place="torch 2.13, SVE, aarch64")
    got = program.loader.deliver(with_results(batch, [came]))
    assert torch.equal(encode(got["image"]), result.value)
    assert "its result is another there" in encode.offloaded.why
    assert "it was made with torch 2.13, SVE, aarch64, and the program runs" in encode.offloaded.why
    assert program.loader.begin_epoch() is None


def test_a_function_that_gives_something_else_elsewhere_is_found_by_comparing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    declared = declare(lambda batch: batch["image"] + float(os.environ.get("HIDDEN", "0")))
    program = Program(declared)
    program.epoch(3)
    stage = program.loader.begin_epoch()
    assert stage is not None
    with monkeypatch.context() as elsewhere:
        elsewhere.setenv("HIDDEN", "1")
        made = stage(images())
    batch = program.loader.deliver(made)
    assert torch.equal(declared(batch), batch["image"])
    assert "as a data worker has it, its result is another there" in declared.offloaded.why
    assert program.loader.begin_epoch() is None


def test_what_was_made_of_a_batch_or_written_to_is_no_part_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    encode = declare(encoder())
    program = Program(lambda batch: encode(batch["image"] / 2))
    program.epoch(5)
    program.call = lambda batch: encode(batch["image"].mul_(2))
    program.epoch(5)
    assert "no part of a batch" in encode.offloaded.why
    assert len(caplog.records) == 1
    assert program.loader.begin_epoch() is None


def test_results_that_nobody_asks_for_are_not_made_for_ever() -> None:
    encode = declare(encoder())
    program = Program(lambda batch: encode(batch["image"]))
    program.epoch(3)
    program.call = lambda batch: None
    program.epoch(MAX_UNUSED + 5)
    assert "did not ask" in encode.offloaded.why
    assert program.loader.begin_epoch() is None


def test_constants_that_vary_end_it_and_are_bounded() -> None:
    steps = iter(range(1000))
    scale = declare(lambda batch, by: batch["image"] * by)
    program = Program(lambda batch: scale(batch, next(steps)))
    program.epoch(MAX_CALLS + 5)
    assert f"more than {MAX_CALLS} calls" in scale.offloaded.why


def test_a_loader_that_cannot_have_results_says_why() -> None:
    encode = declare(encoder())
    program = Program(lambda batch: encode(batch["image"]))
    program.epoch(3)
    program.epoch(20, why_not="its loader has persistent workers")
    assert encode.offloaded.why == "its loader has persistent workers"
    assert encode.offloaded.moved == 0


def test_what_is_slower_with_its_calls_moved_is_given_up() -> None:
    encode = declare(encoder())
    clock = {"now": 0.0, "step": 1.0}

    def tick() -> float:
        clock["now"] += clock["step"]
        return clock["now"]

    program = Program(lambda batch: encode(batch["image"]))
    program.loader = LoaderCalls(tick)
    program.epoch(SKIPPED + LEAST)
    clock["step"] = 0.5
    program.epoch(SKIPPED + LEAST)
    assert program.loader.begin_epoch() is not None
    clock["step"] = 1.1
    program.epoch(SKIPPED + LEAST)
    assert program.loader.begin_epoch() is None
    assert "slower than none by" in encode.offloaded.why


def test_without_penstock_run_it_is_the_function_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(INTERCEPT)
    module = encoder()
    assert offload(len) is len
    assert offload(module) is module
    assert "forward" not in module.__dict__


def test_only_what_can_be_called_can_be_declared() -> None:
    with pytest.raises(TypeError, match="must be a function or a module"):
        offload(3)


def test_a_declared_thing_is_what_it_was_to_everybody_else() -> None:
    module = encoder()
    names = list(module.state_dict())
    declared = declare(module)
    assert declared is module
    assert declare(declared) is declared
    assert list(declared.state_dict()) == names
    again = pickle.loads(pickle.dumps(declared))
    x = torch.rand(2, 6)
    assert torch.equal(again(x), declared(x))
    assert getattr(again, "offloaded", None) is None
    function = declare(Counting())
    assert function.calls == 0
    assert type(copy.copy(function)) is Counting


def test_a_module_with_a_forward_of_its_own_stays(caplog: pytest.LogCaptureFixture) -> None:
    module = encoder()
    module.forward = lambda x: x + 1  # as torch.compile and others do
    assert offload(module) is module
    x = torch.rand(2, 6)
    assert torch.equal(module(x), x + 1)
    assert "as torch.compile makes it" in caplog.text
