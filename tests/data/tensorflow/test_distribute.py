"""`distribute` in a program without data workers, on a stand-in for TensorFlow."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pytest

from penstock.data.errors import NotPortableError
from penstock.data.tensorflow import distribute
from penstock.data.tensorflow.distributed import place_among
from penstock.data.tensorflow.element_spec import ElementSpecError
from penstock.data.tensorflow.shard_dataset import ShardDataset, Shards
from penstock.data.tensorflow.shard_order import ShardOrder

SIZES = [7, 3, 0, 5, 9, 1, 4]


class Point(NamedTuple):
    x: Any
    y: Any


def numbers(shard: int) -> Any:
    """Batches of two of a shard's numbers, which are 100 * shard and those that follow."""
    import tensorflow as tf

    return tf.data.Dataset.range(100 * shard, 100 * shard + SIZES[shard]).shuffle(9).batch(2)


def values(elements: Any) -> list[int]:
    return [int(one) for element in elements for one in element.numpy()]


EVERY = sorted(100 * shard + one for shard, size in enumerate(SIZES) for one in range(size))


@pytest.mark.parametrize("cycle_length", [1, 2, 3, 7])
def test_each_element_comes_once_in_each_epoch(tf: Any, cycle_length: int) -> None:
    data = distribute(numbers, shards=len(SIZES), cycle_length=cycle_length, seed=3)
    epochs = [values(data) for _ in range(3)]
    assert [sorted(one) for one in epochs] == [EVERY] * 3
    assert len({tuple(one) for one in epochs}) == 3
    again = distribute(numbers, shards=len(SIZES), cycle_length=cycle_length, seed=3)
    assert [values(again) for _ in range(3)] == epochs


def test_training_processes_divide_the_shards(tf: Any) -> None:
    parts = [distribute(numbers, len(SIZES), seed=1, index=index, count=3) for index in range(3)]
    for _ in range(2):
        assert sorted(one for part in parts for one in values(part)) == EVERY


def test_the_dataset_is_one_of_tensorflow_and_each_iteration_an_epoch(tf: Any) -> None:
    data = distribute(numbers, len(SIZES))
    assert isinstance(data.dataset, tf.data.Dataset)
    assert data.dataset.element_spec is data.element_spec
    first, second = values(data.dataset), values(data.dataset)
    assert sorted(first) == sorted(second) == EVERY
    assert first != second


def test_the_shards_are_the_items_of_a_list(tf: Any) -> None:
    seen: Counter[str] = Counter()

    def of_file(name: str) -> Any:
        seen[name] += 1
        return numbers(int(name.removeprefix("part-")))

    data = distribute(of_file, [f"part-{shard}" for shard in range(len(SIZES))])
    assert sorted(values(data)) == EVERY
    assert seen == {**{f"part-{shard}": 1 for shard in range(len(SIZES))}, "part-0": 2}


def test_structures_texts_and_the_last_batch_arrive_as_they_are(tf: Any) -> None:
    def nested(shard: int) -> Any:
        texts = np.array([b"a", b"", "\u00e9".encode()], object)
        pixels = tf.data.Dataset.from_tensor_slices({"x": np.ones((3, 4), np.float32) * shard})
        spec = Point(
            tf.TensorSpec([None, 4], tf.float32), {"text": tf.TensorSpec([None], tf.string)}
        )
        batches = list(pixels.batch(2).as_numpy_iterator())
        made = [
            Point(batch["x"], {"text": texts[2 * number : 2 * number + len(batch["x"])]})
            for number, batch in enumerate(batches)
        ]
        return tf.data.Dataset.from_generator(lambda: iter(made), spec)

    elements = list(distribute(nested, 2, shuffle=False))
    assert [type(one) for one in elements] == [Point] * 4
    assert [one.x.shape for one in elements] == [(2, 4), (2, 4), (1, 4), (1, 4)]
    assert [one.x.numpy()[0, 0] for one in elements] == [0, 1, 0, 1]
    assert elements[0].y["text"].numpy().tolist() == [b"a", b""]
    assert elements[2].y["text"].numpy().tolist() == ["\u00e9".encode()]


@pytest.mark.parametrize("stop", range(18))
def test_a_program_goes_on_in_the_middle_of_an_epoch(tf: Any, stop: int) -> None:
    def made() -> Any:
        return distribute(numbers, len(SIZES), cycle_length=3, seed=5, prefetch=4)

    whole = made()
    epochs = [[one.numpy().tolist() for one in whole] for _ in range(3)]
    assert len(epochs[0]) == 17
    data, had = made(), []
    had.append([one.numpy().tolist() for one in data])
    iterator = iter(data)
    second = [next(iterator).numpy().tolist() for _ in range(stop)]
    state = json.loads(json.dumps(data.state_dict()))
    resumed = made()
    resumed.load_state_dict(state)
    if stop < 17:
        second += [one.numpy().tolist() for one in resumed]
    elif state["epoch"] == 1:  # whoever stops before the end is told has nothing left of the epoch
        assert not list(resumed)
    assert [*had, second] == epochs[:2]
    assert [one.numpy().tolist() for one in resumed] == epochs[2]
    assert resumed.state_dict()["epoch"] == 3


def test_a_state_is_taken_and_resumed_again_and_again(tf: Any) -> None:
    data = distribute(numbers, len(SIZES), cycle_length=2, seed=5)
    whole, pieces = values(data), []
    state = distribute(numbers, len(SIZES), cycle_length=2, seed=5).state_dict()
    while True:
        data = distribute(numbers, len(SIZES), cycle_length=2, seed=5)
        data.load_state_dict(state)
        got = [element.numpy().tolist() for element in islice(data, 2)]
        pieces += [one for batch in got for one in batch]
        if len(got) < 2:
            break
        state = data.state_dict()
    assert pieces == whole


def test_who_iterates_the_dataset_says_what_it_has_had(tf: Any) -> None:
    data = distribute(numbers, len(SIZES), cycle_length=3, prefetch=6)
    whole = values(data)
    data = distribute(numbers, len(SIZES), cycle_length=3, prefetch=6)
    iterator = iter(data.dataset)
    had = [one for _ in range(4) for one in next(iterator).numpy().tolist()]
    with pytest.raises(ValueError, match="given: not said"):
        data.state_dict()
    with pytest.raises(ValueError, match="given: 11; of epoch 0 from 0 to 10"):
        data.state_dict(given=11)
    state = data.state_dict(given=4)
    data.load_state_dict(state)
    assert had + values(data) == whole


def test_who_goes_on_with_an_epoch_that_another_has_ended_is_told(tf: Any) -> None:
    data = distribute(numbers, len(SIZES), prefetch=1)
    first = iter(data.dataset)
    next(first)
    assert sorted(values(data)) == EVERY
    with pytest.raises(tf.errors.OpError, match="EpochClosedError: the next epoch"):
        list(first)
    assert data.state_dict()["epoch"] == 2


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"seed": 4}, "seed: the state was saved with 3, this dataset has 4"),
        ({"cycle_length": 2}, "cycle_length"),
        ({"shards": 6}, "shards"),
        ({"index": 1, "count": 2}, "index"),
    ],
)
def test_a_state_of_another_dataset_is_refused(
    tf: Any, options: dict[str, int], field: str
) -> None:
    state = distribute(numbers, shards=7, seed=3, cycle_length=3).state_dict()
    other = distribute(numbers, **{"shards": 7, "seed": 3, "cycle_length": 3, **options})
    with pytest.raises(ValueError, match=field):
        other.load_state_dict(state)
    with pytest.raises(ValueError, match="version"):
        other.load_state_dict({})


def test_what_the_function_raises_is_raised_in_the_program(tf: Any) -> None:
    def broken(shard: int) -> Any:
        if shard == 4:
            raise KeyError("no such file")
        return numbers(shard)

    with pytest.raises(KeyError, match="no such file") as caught:
        values(distribute(broken, len(SIZES)))
    assert "stream" in caught.value.__notes__[0]


def test_a_function_that_gives_no_dataset_is_named(tf: Any) -> None:
    with pytest.raises(
        ElementSpecError, match=r"shard 0 \('a'\): the function gave a builtins.list"
    ):
        distribute(lambda _: [1, 2], ["a"])


def test_a_dataset_without_end_is_refused_unless_the_program_says_so(tf: Any) -> None:
    def endless(shard: int) -> Any:
        return numbers(shard).repeat()

    with pytest.raises(ElementSpecError, match=r"shard 0: .* no end.*take\(n\).*endless=True"):
        distribute(endless, 2)
    data = iter(distribute(endless, 2, endless=True))
    seen = Counter(one for _ in range(60) for one in next(data).numpy().tolist())
    assert set(seen) == {*range(7), *range(100, 103)}
    with pytest.raises(ValueError, match="shards: 300"):
        distribute(endless, 300, endless=True)


def test_a_shard_that_differs_is_named_with_its_component(tf: Any) -> None:
    def differing(shard: int) -> Any:
        array = np.zeros((4, 2 + shard), np.float32)
        return tf.data.Dataset.from_tensor_slices({"x": array}).batch(2)

    with pytest.raises(
        ElementSpecError, match=r"shard 1: component \['x'\]: float32 \[\?, 3\], and"
    ):
        list(distribute(differing, 2))
    spec = {"x": tf.TensorSpec([None, None], tf.float32)}
    shapes = {one["x"].shape for one in distribute(differing, 2, element_spec=spec)}
    assert shapes == {(2, 2), (2, 3)}


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("RaggedTensorSpec", r"component \['x'\]: RaggedTensorSpec: tensor.to_tensor\(\)"),
        ("variant", "variant: only numbers and texts travel"),
    ],
)
def test_what_does_not_travel_is_refused_by_name(tf: Any, spec: str, says: str) -> None:
    leaf = tf.TensorSpec([], tf.variant) if spec == "variant" else tf.RaggedTensorSpec()
    with pytest.raises(ElementSpecError, match=says):
        distribute(numbers, 2, element_spec={"x": leaf})


@pytest.mark.parametrize(
    ("arguments", "error", "field"),
    [
        ((7, 2), TypeError, "make_dataset: 7"),
        ((numbers, "a file"), TypeError, "shards: 'a file'"),
        ((numbers, True), TypeError, "shards: True"),
        ((numbers, []), ValueError, "shards: 0"),
    ],
)
def test_arguments_that_cannot_be_are_named(
    tf: Any, arguments: Any, error: type[Exception], field: str
) -> None:
    with pytest.raises(error, match=field):
        distribute(*arguments)
    with pytest.raises(ValueError, match="prefetch: 0"):
        distribute(numbers, 2, prefetch=0)
    with pytest.raises(TypeError, match="seed: 'a'"):
        # arg-type: what is refused.
        distribute(numbers, 2, seed="a")  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["Tensor", "Variable"])
def test_tensors_of_the_program_do_not_travel(tf: Any, kind: str) -> None:
    held = getattr(tf, kind)(np.ones(3))

    def holding(shard: int) -> Any:
        return numbers(shard).map(lambda x: x + held)

    dataset = ShardDataset(holding, Shards(None, ShardOrder(2), ()))
    with pytest.raises(NotPortableError, match=rf"a tf.{kind} of shape \(3,\)"):
        pickle.dumps(dataset)


def test_the_function_travels_by_value(tf: Any) -> None:
    base = 100

    def local(shard: int) -> Any:
        return numbers(shard + base)

    sent = pickle.dumps(ShardDataset(local, Shards(None, ShardOrder(2), ())))
    base = 200
    assert pickle.loads(sent)._make.__closure__[0].cell_contents == 100


def config(kind: str, index: int, **cluster: int) -> str:
    """A ``TF_CONFIG``."""
    addresses = {role: ["host:1"] * count for role, count in cluster.items()}
    return json.dumps({"cluster": addresses, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"RANK": "3"}, (0, 1)),
        ({"TF_CONFIG": config("worker", 1, worker=2)}, (1, 2)),
        ({"TF_CONFIG": config("worker", 0, chief=1, worker=1)}, (1, 2)),
        ({"TF_CONFIG": config("chief", 0, chief=1, worker=1)}, (0, 2)),
        ({"TF_CONFIG": config("ps", 0, ps=1, worker=1)}, (0, 1)),
        ({"TF_CONFIG": "no JSON"}, (0, 1)),
    ],
)
def test_launchers_tell_the_place_of_a_process(
    environ: dict[str, str], place: tuple[int, int]
) -> None:
    assert place_among(environ) == place
