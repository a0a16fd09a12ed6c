"""What a peer of the release before is told: it refuses fields that it does not know."""

from __future__ import annotations

import pytest

from penstock.job.protocol import Message
from penstock.parameter_server.protocol import ServerReport, WorkerReply, WorkerReport


@pytest.mark.parametrize(
    ("kind", "field"),
    [(ServerReport, "uncopied"), (WorkerReport, "read"), (WorkerReply, "save_from")],
)
def test_saves_without_a_copy_are_spoken_of_only_where_there_are_any(
    kind: type[Message], field: str
) -> None:
    assert field not in kind.model_construct().model_dump()
    assert field in kind.model_construct(**{field: 1}).model_dump(warnings=False)
