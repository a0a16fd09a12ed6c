"""Mounted paths are made true where they start a path, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_cluster.kubelet.container.mounts import PathRewriter, volume_variable

REWRITER = PathRewriter({"/data": Path("/pod/v/data"), "/data/inner/": Path("/pod/v/inner")})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/data", "/pod/v/data"),
        ("/data/", "/pod/v/data/"),
        ("/data/x/y", "/pod/v/data/x/y"),
        ("/data/inner/z", "/pod/v/inner/z"),
        ("/data/innermost", "/pod/v/data/innermost"),
        ("--path=/data/x", "--path=/pod/v/data/x"),
        ("/data/a:/data/b", "/pod/v/data/a:/pod/v/data/b"),
        ("cat '/data/x' > \"/data/y\"", "cat '/pod/v/data/x' > \"/pod/v/data/y\""),
        ("file:///data/x", "file:///pod/v/data/x"),
        ('{"dir": "/data"}', '{"dir": "/pod/v/data"}'),
        ("/database", "/database"),
        ("/mnt/data", "/mnt/data"),
        ("x/data", "x/data"),
        ("./data", "./data"),
        ("/data-old /data.bak", "/data-old /data.bak"),
        ("http://host/data", "http://host/data"),
        ("", ""),
    ],
)
def test_rewriting(text: str, expected: str) -> None:
    assert REWRITER.rewrite(text) == expected


def test_what_was_put_in_is_not_replaced_again() -> None:
    rewriter = PathRewriter({"/a": Path("/b/x"), "/b": Path("/c")})
    assert rewriter.rewrite("/a/file") == "/b/x/file"


@given(st.text(alphabet="abc :=,'\"", max_size=40))
def test_text_without_a_path_stays(text: str) -> None:
    assert REWRITER.rewrite(text) == text


def test_without_mounts_nothing_happens() -> None:
    assert PathRewriter({}).rewrite("/data/x") == "/data/x"


def test_volume_variables() -> None:
    assert volume_variable("job-data-2") == "PENSTOCK_VOLUME_JOB_DATA_2"
