"""Keys by purpose: none is the token, or another's."""

from __future__ import annotations

from penstock.data.keys import Purpose, derive_key
from penstock.data.signature import sign


def test_each_purpose_has_a_key_of_its_own() -> None:
    keys = {derive_key(token, purpose) for token in ("one", "two") for purpose in Purpose}
    assert len(keys) == 2 * len(Purpose)
    assert all(len(key) == 32 and b"one" not in key for key in keys)


def test_whoever_has_the_key_for_calls_cannot_sign_a_pipeline() -> None:
    call = derive_key("token", Purpose.CALL)
    assert sign("token", b"pipeline") != sign(call.hex(), b"pipeline")
