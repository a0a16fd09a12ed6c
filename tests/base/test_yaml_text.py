"""YAML that a person wrote: as kubectl reads it, and nothing that exhausts the reader."""

from __future__ import annotations

import pytest

from penstock.base.yaml_text import documents

BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{after}: &{after} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, after in zip("abcdef", "bcdefg", strict=True)
)


def test_what_kubectl_takes_is_taken() -> None:
    text = "when: 2026-01-01\n5: five\nyes: no\nbase: &b {x: 1}\nmore: {<<: *b, x: 2}\nagain: *b\n"
    assert documents(text + "---\n---\n- 1\n") == [
        {
            "when": "2026-01-01",
            "5": "five",
            "true": False,
            "base": {"x": 1},
            "more": {"x": 2},
            "again": {"x": 1},
        },
        None,
        [1],
    ]
    assert documents("[{a: 1}, {a: {a: 2}}]") == [[{"a": 1}, {"a": {"a": 2}}]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: {c: 1}\na: 2", "^line 3: not YAML: 'a' is there twice$"),
        ("a: {x: {}, y: [], x: 1}", "'x' is there twice"),
        ("a: [", "^line [12]: not YAML"),
        ("a: \x07", "^not YAML"),
        ("a: !!binary aGVsbG8=", "unsupported type: bytes"),
        ("a: !!set {b}", "unsupported type: set"),
        ("a: .nan", "unsupported value: nan"),
        ("? [a]\n: 1", "not YAML: found unhashable key"),
        ("null: 1", "unsupported map key"),
        ("!!python/object:os.system x", "line 1: not YAML: could not determine a constructor"),
        ("a: &m {b: *m}", r"^\*m stands within what it stands for$"),
        ("a: " + "[" * 20_000, "exceeded max depth"),
        ("{a: " * 20_000, "exceeded max depth"),
        (BOMB, "excessive aliasing"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        documents(text)
