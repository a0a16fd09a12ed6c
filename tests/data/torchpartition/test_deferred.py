"""Which step is told of a call, where tensors of several are in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from penstock.data.torchpartition.observation.deferred import Deferred, with_numbers


class Told:
    """A step that only notes what it is told of."""

    def __init__(self, number: int) -> None:
        self.number, self.open = number, True
        self.names: list[str] = []

    def call(self, name: str, function: Any, args: Any, kwargs: Any) -> Any:
        self.names.append(name)

    module = unseen = plain = call


def of(step: Any) -> Deferred:
    return with_numbers(torch.ones(3), step, 0)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda newer, older: newer * 1.5, "torch.Tensor.mul"),
        (lambda newer, older: torch.add(newer, torch.ones(3)), "torch.add"),
        (torch.add, "torch.add"),
        (lambda newer, older: torch.add(older, newer), "torch.add"),
        (lambda newer, older: torch.add(older, other=newer), "torch.add"),
        (lambda newer, older: torch.stack([newer, older]), "torch.stack"),
        (lambda newer, older: torch.stack((older, newer)), "torch.stack"),
    ],
)
def test_of_several_the_newest_is_told(call: Callable[[Any, Any], Any], name: str) -> None:
    older, newer = Told(1), Told(2)
    call(of(newer), of(older))
    assert (newer.names, older.names) == ([name], [])


def test_one_that_is_over_is_told_where_there_is_no_other() -> None:
    older, newer = Told(1), Told(2)
    newer.open = False
    torch.add(of(newer), of(older))
    assert (newer.names, older.names) == ([], ["torch.add"])
    torch.neg(of(newer))
    assert newer.names == ["torch.neg"]
