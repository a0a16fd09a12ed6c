"""What a data worker of a later stage has of the stage before: batches that others have begun.

The implementation is `penstock.data.relaying.relay`, which is a training process's end of the data
plane and therefore not of this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from penstock.data.pipeline import AnyPipeline, PackedPipeline
from penstock.data.protocol import ConsumerEntry
from penstock.data.serving.consumer_connection import ConsumerConnection, Request

STAGE: Final = 1
"""Of data workers that run batched stages; those of stage 0 make batches of samples."""


class StageBefore(Protocol):
    """See the module's docstring. All but `take` may be called in any thread."""

    @property
    def entry(self) -> ConsumerEntry:
        """Where data workers of the stage before find this one."""

    def note(self, packed: PackedPipeline, opened: AnyPipeline) -> None:
        """A pipeline was opened here."""

    def feed(self, requests: Sequence[Request]) -> None:
        """Ask for what is asked of this data worker."""

    def take(self, request: Request) -> tuple[bool, Any]:
        """What has come for a request, and True; False: make all of it here.

        Raises:
            BadSampleError: three data workers died while they made it.
        """

    def drop(self, line: ConsumerConnection, stream: int) -> None:
        """Nothing more is wanted of a stream."""

    def leave(self, line: ConsumerConnection) -> None:
        """A training process is gone."""

    def close(self) -> None:
        """Say goodbye to the stage before."""
