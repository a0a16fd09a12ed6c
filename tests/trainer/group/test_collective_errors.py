"""What is told from the errors of NCCL, gloo and the stores: texts that these really raise."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import distributed

from penstock.trainer.group.collective_errors import (
    CONFIGURATION_TEXTS,
    LOST_MEMBER_TEXTS,
    MAX_WORDS,
    Cause,
    cause_of,
    classify,
    first_words,
)

GLOO = "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] "
ADVICE = ". This is typically caused by a remote worker crashing. Check the logs. GLHF!"
DUPLICATE = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:94, invalid usage "
    "(run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9\n"
    "ncclInvalidUsage: This usually reflects invalid usage of NCCL library.\n"
    "Last error:\n"
    "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
)
REMOTE = (
    "NCCL error: remote process exited or there was a network error, NCCL version 2.28.9\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
    "prematurely.\nLast error:\n"
    "socketProgress: Connection closed by remote peer worker-1<45678>"
)
CASES = [
    ("DistBackendError", DUPLICATE, Cause.CONFIGURATION),
    ("DistBackendError", "NCCL version mismatch: 2.28.9 and 2.27.3", Cause.CONFIGURATION),
    ("RuntimeError", "Invalid scalar type", Cause.CONFIGURATION),
    ("RuntimeError", "Tensors must be CUDA and dense", Cause.CONFIGURATION),
    ("RuntimeError", "Cannot resolve 10.99.9.9 to a (local) address", Cause.CONFIGURATION),
    ("OutOfMemoryError", "CUDA out of memory. Tried to allocate 2 GiB", Cause.CONFIGURATION),
    ("AcceleratorError", "CUDA error: device-side assert triggered", Cause.CONFIGURATION),
    ("DistBackendError", REMOTE, Cause.LOST_MEMBER),
    ("DistBackendError", "NCCL communicator was aborted on rank 0", Cause.LOST_MEMBER),
    (
        "RuntimeError",
        GLOO + "Read error [127.0.0.1]:28037: Connection reset by peer" + ADVICE,
        Cause.LOST_MEMBER,
    ),
    (
        "RuntimeError",
        GLOO + "Connection closed by peer [127.0.0.1]:26497" + ADVICE,
        Cause.LOST_MEMBER,
    ),
    (
        "RuntimeError",
        GLOO + "Timed out waiting 5000ms for recv operation to complete",
        Cause.LOST_MEMBER,
    ),
    ("DistStoreError", "wait timeout after 2000ms, keys: /gloo/0/1", Cause.LOST_MEMBER),
    ("DistNetworkError", "failed to recv, got 0 bytes", Cause.LOST_MEMBER),
    ("RuntimeError", "something else", Cause.UNKNOWN),
    ("DistBackendError", "NCCL error: internal error - please report", Cause.UNKNOWN),
]


@pytest.mark.parametrize(("kind", "text", "cause"), CASES)
def test_the_cause_is_told_by_type_and_text(kind: str, text: str, cause: Cause) -> None:
    assert classify([kind, "RuntimeError", "Exception"], text) is cause


def test_the_types_are_those_that_pytorch_raises() -> None:
    assert cause_of(torch.OutOfMemoryError("")) is Cause.CONFIGURATION
    # Its stub does not declare them.
    assert cause_of(distributed.DistStoreError("")) is Cause.LOST_MEMBER
    assert cause_of(distributed.DistNetworkError("")) is Cause.LOST_MEMBER
    assert cause_of(distributed.DistBackendError("")) is Cause.UNKNOWN
    assert cause_of(ConnectionResetError("")) is Cause.LOST_MEMBER
    assert cause_of(RuntimeError("")) is Cause.UNKNOWN


@given(st.sampled_from(CONFIGURATION_TEXTS), st.sampled_from(LOST_MEMBER_TEXTS), st.text())
def test_a_wrong_configuration_outweighs_the_losses_that_follow_from_it(
    wrong: str, lost: str, between: str
) -> None:
    assert classify(["RuntimeError"], f"{lost}{between}{wrong.upper()}") is Cause.CONFIGURATION
    assert classify(["DistStoreError"], wrong) is Cause.CONFIGURATION


@given(st.text(), st.lists(st.text()))
def test_every_error_has_a_cause_and_one_short_line(text: str, types: list[str]) -> None:
    assert classify(types, text) in Cause
    words = first_words(text)
    assert len(words) <= MAX_WORDS
    assert len(words.splitlines()) <= 1


def test_the_line_says_what_happened_and_nothing_around_it() -> None:
    duplicate = "Duplicate GPU detected : rank 0 and rank 1 both on CUDA device 60"
    assert first_words(DUPLICATE) == duplicate
    closed = "Connection closed by peer [127.0.0.1]:26497"
    assert first_words(GLOO + closed + ADVICE) == closed
    assert first_words("NCCL error: oops\nLast error:\n\n") == "NCCL error: oops"
    assert first_words("") == ""
