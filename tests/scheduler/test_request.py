from __future__ import annotations

import pytest

from penstock.scheduler.errors import InvalidRequestError
from penstock.scheduler.request import Request


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("milli_cpu", {"milli_cpu": -1}),
        ("memory_bytes", {"memory_bytes": -1}),
        ("accelerators", {"accelerators": -1}),
        ("accelerator_milli", {"accelerators": 1, "accelerator_milli": 0}),
        ("accelerator_milli", {"accelerators": 1, "accelerator_milli": 1001}),
        ("accelerators", {"accelerators": 2, "accelerator_milli": 500}),
    ],
)
def test_an_impossible_request_is_refused_with_its_field(
    field: str, values: dict[str, int]
) -> None:
    with pytest.raises(InvalidRequestError) as error:
        Request(**values)
    assert error.value.field == field


def test_a_share_is_a_part_of_one_device() -> None:
    assert Request(accelerators=1, accelerator_milli=999).is_share
    assert not Request(accelerators=1).is_share
    assert not Request(milli_cpu=1, accelerator_milli=500).is_share
    assert Request(accelerators=4).total_accelerator_milli == 4000
