"""How many processes ``--nproc-per-node`` means, and what is said where devices are too few."""

from __future__ import annotations

import pytest

from penstock.trainer.launch.process_count import count_processes, without_device


@pytest.mark.parametrize(
    ("text", "devices", "count"),
    [("3", 0, 3), ("gpu", 2, 2), ("cpu", 2, 4), ("auto", 2, 2), ("auto", 0, 4)],
)
def test_what_each_value_means(text: str, devices: int, count: int) -> None:
    assert count_processes(text, lambda: devices, lambda: 4.5) == count


@pytest.mark.parametrize(("text", "rule"), [("0", "from 1 to"), ("two", "must be a number, gpu")])
def test_a_value_that_means_nothing_is_named_with_the_rule(text: str, rule: str) -> None:
    with pytest.raises(ValueError, match=f"^--nproc-per-node: {text}; .*{rule}"):
        count_processes(text, lambda: 2, lambda: 4.0)


@pytest.mark.parametrize(
    ("count", "devices", "ranks"),
    [(3, 2, "LOCAL_RANK 2 have"), (8, 2, "LOCAL_RANK 2 to 7 have")],
)
def test_processes_without_a_device_of_their_own_are_named(
    count: int, devices: int, ranks: str
) -> None:
    said = without_device(count, devices)
    assert ranks in said
    assert "say gpu, or give the pod as many" in said


def test_nothing_is_said_where_each_has_one_or_there_are_none_at_all() -> None:
    assert (without_device(2, 2), without_device(1, 2), without_device(64, 0)) == ("", "", "")
