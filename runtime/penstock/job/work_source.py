"""The words for how a training process gets its share of a job's work."""

from __future__ import annotations

from enum import StrEnum


class Part(StrEnum):
    """How a training process gets its share of the job's work."""

    OWN = "own"  # by a process group of its own making, if at all
    SESSION = "session"  # penstock.trainer.elastic
    SERVERS = "servers"  # penstock.trainer.ps
    SHARDS = "shards"  # penstock.trainer.shards
    CLOSED = "closed"  # it was one of these, and is through
