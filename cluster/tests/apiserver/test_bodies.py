"""Request bodies: what cannot be read is refused in the words of Go's decoder."""

from __future__ import annotations

import pytest

from penstock_cluster.apiserver.content import bodies
from penstock_cluster.registry import ApiError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": ', "unexpected end of JSON input"),
        ('{"a": "b', "unexpected end of JSON input"),
        ("", "unexpected end of JSON input"),
        ("nope", "invalid character 'n' looking for beginning of value"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a": 1 "b": 2}', "invalid character '\"' after object key:value pair"),
        ("{a: 1}", "invalid character 'a' looking for beginning of object key string"),
        ("{} x", "invalid character 'x' after top-level value"),
    ],
)
def test_faults_of_json(text: str, message: str) -> None:
    with pytest.raises(ValueError) as fault:
        bodies.parse_json(text.encode())
    assert str(fault.value) == message


def test_yaml_keeps_times_as_text_and_is_never_code() -> None:
    document = bodies.decode_object(
        b"metadata: {name: a}\nspec: {time: 2001-01-01T00:00:00Z, n: 1}",
        "application/yaml",
        "X",
        needs_kind=False,
    )
    assert document["spec"] == {"time": "2001-01-01T00:00:00Z", "n": 1}
    with pytest.raises(ApiError) as refusal:
        bodies.decode_object(
            b"a: !!python/object/apply:os.system [true]", "application/yaml", "X", needs_kind=False
        )
    assert refusal.value.code == 400


@pytest.mark.parametrize("content_type", ["application/xml", "text/plain"])
def test_other_media_types_are_refused(content_type: str) -> None:
    with pytest.raises(ApiError) as refusal:
        bodies.decode_object(b"{}", content_type, "Pod", needs_kind=False)
    assert refusal.value.code == 415


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ('{"a": 1, "b": {"c": [{"d": 1, "d": 2}]}}', ["b.c[0].d"]),
        ('{"a": 1, "a": 2}', ["a"]),
        ('{"a": "x\\":y", "b": 1}', []),
        ('{"a" : 1, "b" : 2}', []),
        ("{}", []),
    ],
)
def test_keys_that_come_twice_are_found(text: str, twice: list[str]) -> None:
    document = bodies.parse_json(text.encode())
    assert bodies.duplicate_fields(text.encode(), document) == twice


def test_written_yaml_quotes_what_could_be_read_as_something_else() -> None:
    text = bodies.to_yaml({"a": "1", "b": "true", "c": "plain", "d": "x: y", "e": "a\nb", "f": ""})
    lines = text.decode().splitlines()
    assert lines[0] == 'a: "1"'
    assert lines[1] == 'b: "true"'
    assert lines[2] == "c: plain"
    assert lines[4] == "e: |-"
