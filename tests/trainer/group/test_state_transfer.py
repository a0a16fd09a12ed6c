"""A state that goes to others arrives as it was, whatever its tensors and the pieces it goes in."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from penstock.trainer.group.state_codec import lend, receive, send
from tests.trainer.group.line import Line, arrived


def sent(state: Any, piece_bytes: int) -> tuple[Any, list[int]]:
    line = Line()
    return arrived(lend(state), piece_bytes, line), line.sizes


@given(st.lists(st.integers(0, 40), max_size=8), st.sampled_from([0, 1, 7, 8, 64, 1 << 20]))
def test_what_arrives_is_what_was_sent(sizes: list[int], piece_bytes: int) -> None:
    state = {str(at): torch.arange(size, dtype=torch.int16) + at for at, size in enumerate(sizes)}
    found, pieces = sent(state, piece_bytes)
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) for name in state)
    total = 2 * sum(sizes)
    assert sum(pieces) == total
    assert all(size == (piece_bytes or total) for size in pieces[:-1])


def test_tensors_of_any_kind_and_layout_arrive() -> None:
    state = {
        "transposed": torch.arange(60.0).reshape(3, 20).t(),
        "half": torch.arange(9, dtype=torch.bfloat16),
        "one": torch.tensor(3),
        "nested": [(torch.ones(2, 2, dtype=torch.bool), "text", None)],
    }
    found, _ = sent(state, 16)
    assert torch.equal(found["transposed"], state["transposed"])  # type: ignore[arg-type]  # a tensor
    assert torch.equal(found["half"], state["half"])  # type: ignore[arg-type]  # a tensor
    assert int(found["one"]) == 3
    [(flags, text, nothing)] = found["nested"]
    assert bool(flags.all())
    assert (text, nothing) == ("text", None)


@pytest.mark.parametrize("piece_bytes", [0, 4096])
def test_what_was_received_is_memory_of_its_own_for_each_tensor(piece_bytes: int) -> None:
    """So that what nobody keeps is given back, whatever was sent beside it."""
    line, packed = Line(), lend([torch.ones(1000), torch.zeros(2000)])
    send(packed, line.give, piece_bytes)
    first, second = receive(packed.header, line.take, piece_bytes)
    assert first.untyped_storage().nbytes() == 4000
    assert second.untyped_storage().nbytes() == 8000
