"""Results of functions that come from the cache: the same bits, the caller's own, or not at all."""

from __future__ import annotations

import copy
import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from penstock.base.enums import CacheForm
from penstock.data.cache import interception, messages
from penstock.data.cache.client import CacheClient
from penstock.data.cache.decoded.exchange import ResultExchange
from penstock.data.cache.decoded.functions import FIRST, KeptFunctions
from penstock.data.cache.decoded.identity import MOST_BYTES, MOST_VALUES, function_digest
from penstock.data.cache.decoded.results import decoded, encoded
from penstock.data.errors import FrameError
from penstock.data.pipeline import Pipeline, Stage
from tests.data.cache.daemons import Daemon, daemon, place

SCALE = 3


class Calls:
    """How often functions were called; no constant of theirs."""

    count = 0


CALLS = Calls()


def load(path: str) -> Any:
    """As an ImageFolder's loader: a picture."""
    CALLS.count += 1
    with open(path, "rb") as file:  # noqa: PTH123 - as torchvision does
        return Image.open(file).convert("RGB")


def scaled(path: str) -> dict[str, Any]:
    """As a stage: arrays."""
    CALLS.count += 1
    values = np.fromfile(path, np.uint8)
    return {"values": values * SCALE, "tensor": torch.from_numpy(values[:9].astype(np.float32))}


class Pictures:
    """As torchvision's ImageFolder."""

    def __init__(self, files: list[str], loader: Any = load) -> None:
        self.files, self.loader = files, loader

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        picture = np.array(self.loader(self.files[index]))
        return (picture + np.random.randint(0, 9), index)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    root = tmp_path_factory.mktemp("data")
    with daemon(place(), root, memory=64 << 20, more=["--private"]) as found:
        yield found, root


@pytest.fixture
def folder(there: tuple[Daemon, Path], request: pytest.FixtureRequest) -> Path:
    made = there[1] / str(abs(hash(request.node.name)))
    made.mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (40, 30, 3), np.uint8)
        Image.fromarray(pixels).save(made / f"{number:02d}.png", dpi=(72, 72))
    CALLS.count = 0
    return made


@pytest.fixture
def stat(there: tuple[Daemon, Path]) -> Callable[[str], int]:
    """What the daemon has counted since the test began."""
    found, root = there
    before = found.stat(root)
    return lambda name: int(found.stat(root)[name] - before[name])


@pytest.fixture
def one(there: tuple[Daemon, Path]) -> Iterator[interception.Interception]:
    yield interception.install(there[0].place, [str(there[1])], CacheForm.DECODED)
    interception.uninstall()


def names(folder: Path) -> list[str]:
    return [str(file) for file in sorted(folder.iterdir())]


def bits(value: Any) -> bytes:
    found = encoded(value)
    assert found is not None
    return found


def test_results_are_found_instead_of_made_and_the_first_of_them_checked(
    one: interception.Interception, stat: Callable[[str], int], folder: Path
) -> None:
    files = names(folder)
    with one.bypassed():
        plain = [bits(load(file)) for file in files]
    kept = KeptFunctions(one).of(load)
    for epoch, calls in enumerate((len(files) + FIRST, FIRST, 0)):
        CALLS.count = 0
        assert [bits(kept(file)) for file in files] == plain
        assert CALLS.count == calls, f"epoch {epoch}"
    assert stat("hits") == 2 * len(files)
    assert stat("held_bytes") == sum(map(len, plain)), "files themselves are not kept beside it"


def test_what_a_program_writes_into_a_result_is_its_own(
    one: interception.Interception, folder: Path
) -> None:
    file = names(folder)[0]
    with one.bypassed():
        kept, plain = KeptFunctions(one).of(scaled), bits(scaled(file))
    for _ in range(FIRST + 4):
        found = kept(file)
        assert bits(found) == plain
        found["values"] += 1
        found["tensor"].zero_()
    assert CALLS.count == 1 + 2 + FIRST


def test_a_file_that_changes_is_loaded_anew(
    one: interception.Interception, stat: Callable[[str], int], folder: Path
) -> None:
    file = names(folder)[0]
    kept = KeptFunctions(one).of(load)
    for _ in range(2 * FIRST):
        kept(file)
    Image.fromarray(np.zeros((40, 30, 3), np.uint8)).save(file)
    with one.bypassed():
        expected = bits(load(file))
    assert bits(kept(file)) == expected
    assert stat("held_bytes") == len(expected), "nothing of the version before"


def drawing(path: str) -> Any:
    return np.array(load(path)) + random.randint(0, 1)


def changing(path: str) -> Any:
    load(path)
    return np.array([CALLS.count])


def odd(path: str) -> Any:
    return object()


@pytest.mark.parametrize(
    ("function", "why"),
    [(drawing, "random numbers"), (changing, "is another each time"), (odd, "result is a")],
)
def test_a_function_that_cannot_be_relied_on_is_called_as_ever(
    one: interception.Interception,
    folder: Path,
    function: Any,
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kept = KeptFunctions(one).of(function)
    with caplog.at_level(logging.WARNING):
        for file in names(folder) * 2:
            kept(file)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert why in said[0]
    assert function.__name__ in said[0]
    assert CALLS.count >= 24 - (function is odd) * 24


def test_a_result_that_is_another_than_what_was_kept_is_found(
    one: interception.Interception, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What no code says: somebody else's setting."""
    file = names(folder)[0]
    os.environ["PENSTOCK_TEST_SCALE"] = "1"

    def hidden(path: str) -> Any:
        return np.fromfile(path, np.uint8) * int(os.environ["PENSTOCK_TEST_SCALE"])

    try:
        KeptFunctions(one).of(hidden)(file)
        os.environ["PENSTOCK_TEST_SCALE"] = "2"
        again = KeptFunctions(one).of(hidden)
        assert bits(again(file)) == bits(hidden(file))
    finally:
        del os.environ["PENSTOCK_TEST_SCALE"]
    assert "is another than the one that was kept" in caplog.text


def test_what_raises_raises(one: interception.Interception, folder: Path) -> None:
    kept = KeptFunctions(one).of(load)
    with pytest.raises(FileNotFoundError):
        kept(str(folder / "none.png"))
    (folder / "bad.png").write_bytes(b"no picture")
    for _ in range(2):
        with pytest.raises(OSError, match="cannot identify"):
            kept(str(folder / "bad.png"))


def test_batches_are_bit_by_bit_as_without(
    one: interception.Interception,
    there: tuple[Daemon, Path],
    stat: Callable[[str], int],
    folder: Path,
) -> None:
    files = names(folder)
    dataset = Pictures(files)
    for seed in range(3):
        cached = Pipeline(dataset, list).make(seed, list(range(12)))
        interception.uninstall()
        plain = Pipeline(Pictures(files), list).make(seed, list(range(12)))
        assert [(p.tobytes(), i) for p, i in cached] == [(p.tobytes(), i) for p, i in plain]
        interception.install(there[0].place, [str(there[1])], CacheForm.DECODED)
        assert dataset.loader is load, "the program's dataset stays as it is"
    assert stat("hits") >= 24, "more, where samples are made again that draw"


def test_a_stage_that_draws_nothing_is_kept_and_others_are_not(
    one: interception.Interception, folder: Path
) -> None:
    files = names(folder)
    for stage, calls in ((Stage(scaled), 24), (Stage(scaled, random=False), 12 + 2 * FIRST)):
        CALLS.count = 0
        made = [Pipeline(files, list, [stage]).make(1, list(range(12))) for _ in range(2)]
        assert bits(made[0]) == bits(made[1])
        assert CALLS.count == calls


def test_a_cache_that_is_full_or_gone_costs_nothing_but_itself(folder: Path) -> None:
    with daemon(place(), folder, memory=10_000, more=["--private"]) as small:
        one = interception.install(small.place, [str(folder)], CacheForm.DECODED)
        try:
            with one.bypassed():
                plain = [bits(load(file)) for file in names(folder)]
            kept = KeptFunctions(one).of(load)
            for _ in range(2):
                assert [bits(kept(file)) for file in names(folder)] == plain
            assert 0 < small.stat(folder)["held_bytes"] <= 10_000
            small.process.kill()
            small.process.wait()
            assert [bits(kept(file)) for file in names(folder)] == plain
        finally:
            interception.uninstall()


def test_a_program_cannot_keep_what_it_says_wrongly(
    there: tuple[Daemon, Path], folder: Path
) -> None:
    client, file, root = CacheClient(there[0].place), names(folder)[0], str(there[1])
    descriptor = os.open(file, os.O_RDONLY)
    try:
        results = ResultExchange(lambda: client)
        results.keep(descriptor, root, b"d" * 32, b"right")
        assert results.ask(descriptor, root, b"d" * 32) == (bytearray(b"right"), True)
        header = [messages.CACHE_PROTOCOL_VERSION, root, b"e" * 32, 5, 1]
        assert client.exchange(messages.KEEP, header, descriptor, b"wrong") is None
        again = CacheClient(there[0].place)
        found = ResultExchange(lambda: again).ask(descriptor, root, b"e" * 32)
        assert found == (None, True)
    finally:
        os.close(descriptor)


def test_functions_are_known_by_what_they_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(constant: int) -> Any:
        return lambda path: (path, constant)

    assert function_digest(of(1)) == function_digest(of(1)) != function_digest(of(2))
    assert function_digest(load) != function_digest(scaled)
    before = function_digest(scaled)
    assert before == function_digest(scaled, {})
    assert before != function_digest(scaled, {"PENSTOCK_JOB_TOKEN": "of another job"})
    monkeypatch.setattr(f"{__name__}.SCALE", 4)
    assert before != function_digest(scaled)
    assert function_digest(Pictures([]).__getitem__) is None
    assert function_digest(len) is None


def naming(constant: Any) -> Any:
    """A function that names a constant."""
    return lambda path: (path, constant)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (((1, 2), (3,)), ((1,), (2, 3))),
        ([1], (1,)),
        ([], ()),
        ({1, 2}, {3, 4}),
        ({"a": 1}, {"a": 2}),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.zeros(2, np.float32), np.zeros(1, np.float64)),
        (np.zeros(2), np.ones(2)),
        (torch.zeros(2), torch.ones(2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.int32)),
        (torch.zeros(2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)),
        (range(3), range(4)),
        (Path("/a"), Path("/b")),
    ],
)
def test_functions_that_name_other_constants_are_others(one: Any, other: Any) -> None:
    assert function_digest(naming(one)) == function_digest(naming(copy.deepcopy(one))) is not None
    assert function_digest(naming(one)) != function_digest(naming(other))


class Broken:
    @property
    def __array_interface__(self) -> Any:
        raise ZeroDivisionError


def in_itself() -> Any:
    made: list[Any] = []
    made.append(made)
    return made


def without_a_value() -> Any:
    def function(path: str) -> Any:
        return later(path)

    digest = function_digest(function)

    def later(path: str) -> Any:
        return path

    return digest


@pytest.mark.parametrize(
    "constant",
    [
        in_itself(),
        Broken(),
        np.array([object()]),
        np.zeros(MOST_BYTES + 1, np.uint8),
        torch.zeros(MOST_BYTES + 1, dtype=torch.uint8),
        [0] * (MOST_VALUES + 1),
        torch.zeros(2, device="meta"),
    ],
    ids=lambda constant: type(constant).__name__,
)
def test_what_cannot_be_looked_at_is_not_known(constant: Any) -> None:
    assert function_digest(naming(constant)) is None


def test_a_name_without_a_value_yet_is_not_known() -> None:
    assert without_a_value() is None


def test_a_fifo_is_read_once(one: interception.Interception, folder: Path) -> None:
    fifo = folder / "fifo"
    os.mkfifo(fifo)

    def read(path: str) -> Any:
        with open(path, "rb") as file:  # noqa: PTH123 - as torchvision does
            return np.frombuffer(file.read(), np.uint8)

    assert one.functions is not None
    reading = threading.Thread(target=lambda: found.append(one.functions.of(read)(str(fifo))))
    found: list[Any] = []
    reading.start()
    with fifo.open("wb", buffering=0) as file:
        file.write(b"once")
    reading.join(20)
    if waits := reading.is_alive():  # for somebody else who writes
        fifo.open("wb").close()
        reading.join()
    assert not waits, "it is read a second time"
    assert [bytes(each) for each in found] == [b"once"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
    | st.integers(0, 20).map(lambda size: np.arange(size, dtype=np.int16)),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(VALUES)
def test_a_result_is_the_same_again(value: Any) -> None:
    content = encoded(value)
    if content is not None:  # texts may be none that can be written
        assert encoded(decoded(bytearray(content))) == content


@given(st.binary(max_size=200))
def test_bytes_that_are_no_result_are_refused(content: bytes) -> None:
    for bad in (content, b"PND1" + content):
        with pytest.raises(FrameError):
            decoded(bytearray(bad))
