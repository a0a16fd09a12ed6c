"""Weights in one piece: whatever parts of it are asked for are the bytes that it is named by."""

from __future__ import annotations

import hashlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data import weight_bundle
from penstock.data.errors import PipelineTooLargeError
from penstock.data.weight_bundle import ALIGNMENT, Gathering, Weights

BUFFERS = st.lists(st.binary(min_size=1, max_size=200), min_size=1, max_size=6)


def whole(buffers: list[bytes]) -> bytes:
    joined = b""
    for one in buffers:
        joined += bytes(-len(joined) % ALIGNMENT) + one
    return joined


def gather(buffers: list[bytes]) -> tuple[list[int], Weights]:
    gathering = Gathering()
    offsets = [gathering.add(one) for one in buffers]
    weights = gathering.weights()
    assert weights is not None
    return offsets, weights


@given(buffers=BUFFERS, begin=st.integers(0, 1500), size=st.integers(1, 1500))
def test_any_part_is_that_of_the_bytes_that_the_digest_is_of(
    buffers: list[bytes], begin: int, size: int
) -> None:
    expected = whole(buffers)
    offsets, weights = gather(buffers)
    assert (weights.size, weights.digest) == (len(expected), hashlib.sha256(expected).digest())
    assert b"".join(weights.read(begin, size)) == expected[begin : begin + size]
    for offset, one in zip(offsets, buffers, strict=True):
        assert offset % ALIGNMENT == 0
        assert weights.piece(offset, len(one)) == one


@given(buffers=BUFFERS)
def test_a_copy_has_the_name_alone_until_it_has_the_bytes(buffers: list[bytes]) -> None:
    offsets, weights = gather(buffers)
    copied = pickle.loads(pickle.dumps(weights))
    assert (copied.digest, copied.size, copied.there) == (weights.digest, weights.size, False)
    with pytest.raises(LookupError):
        copied.piece(offsets[-1], 1)
    copied.attach(whole(buffers))
    assert copied.piece(offsets[-1], len(buffers[-1])) == buffers[-1]


def test_nothing_is_gathered_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_bundle, "MAX_BYTES", 100)
    gathering = Gathering()
    assert gathering.weights() is None
    gathering.add(bytes(60))
    with pytest.raises(PipelineTooLargeError):
        gathering.add(bytes(60))
