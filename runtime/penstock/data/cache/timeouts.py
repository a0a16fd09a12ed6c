"""For how long each part of the cache waits for the next, all in one place: pure.

A program waits for the daemon of its node, that for the daemon which is a file's home, and that for
whoever is reading the file in. Each waits longer than the next one may take, so that what comes in
time there is still waited for here. Whatever takes longer than a moment is announced first
(`READING`): who says nothing for `ANSWER_SECONDS` hangs, and is not waited for whatever the size.
"""

from __future__ import annotations

from typing import Final

ANSWER_SECONDS: Final = 0.5
"""A program: for the daemon of its node to say anything."""
PEER_ANSWER_SECONDS: Final = 0.05
"""A daemon: for another's answer to begin and end, but for the time that its bytes take."""
CONNECT_SECONDS: Final = 0.2
"""A daemon: for another to take a connection, and again for the proofs of the token."""
UNANNOUNCED_SECONDS: Final = 0.2
"""What may take a daemon longer than this it announces to the program."""
SLOWEST_LINK: Final = 10 << 20
"""Bytes a second that come from another node at least."""
SLOWEST_STORAGE: Final = 2 << 20
"""Bytes a second that somebody reads from storage at least."""


def answer_seconds(length: int, answer: float = PEER_ANSWER_SECONDS) -> float:
    """For an answer of another node that has the bytes."""
    return answer + length / SLOWEST_LINK


def read_in_seconds(length: int) -> float:
    """For somebody else to read so many bytes in."""
    return 1.0 + length / SLOWEST_STORAGE


def fetch_seconds(length: int, answer: float = PEER_ANSWER_SECONDS) -> float:
    """For other nodes, all together: to find the home, have it read, and take the bytes."""
    return 1.0 + read_in_seconds(length) + answer_seconds(length, answer)


def announced_seconds(length: int) -> float:
    """A program: for a daemon that has announced that it takes longer."""
    return 0.5 + fetch_seconds(length)
