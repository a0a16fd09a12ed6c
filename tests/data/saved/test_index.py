"""The index of saved batches: what is written is read, and what was changed is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.data.errors import SavedError
from penstock.data.saved.index import (
    MAGIC,
    Index,
    Row,
    Shard,
    _check_of,
    pack_table,
    read_index,
    read_table,
    shard_name,
    table_digest,
    write_index,
)


def shard(first: int, sizes: list[tuple[int, int]]) -> tuple[Shard, bytes]:
    at, rows = len(MAGIC), []
    for structure, body in sizes:
        rows.append(Row(at, structure, body, bytes(16)))
        at = rows[-1].stop + 3
    table = pack_table(rows)
    size = at + len(table)
    return Shard(shard_name(first), first, len(rows), size, table_digest(first, table)), table


sizes = st.lists(st.tuples(st.integers(0, 1 << 31), st.integers(0, 1 << 60)), min_size=1)


@given(st.lists(sizes, max_size=5), st.booleans(), st.text(max_size=20))
def test_what_is_written_is_read(
    shards: list[list[tuple[int, int]]], full: bool, name: str
) -> None:
    index = Index({"dataset": name, "batches": None})
    for one in shards:
        made, table = shard(index.batches, one)
        assert [(row.structure_bytes, row.body_bytes) for row in read_table(made, table)] == one
        index = index.with_shard(made)
    index = Index(index.source, index.shards, full)
    assert read_index(write_index(index)) == index


@given(st.binary())
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(SavedError):
        read_index(content)


@given(st.data())
def test_an_index_that_was_cut_or_changed_is_refused(data: st.DataObject) -> None:
    index = Index({"dataset": "Images"}).with_shard(shard(0, [(10, 20)])[0])
    content = write_index(index)
    cut = data.draw(st.integers(0, len(content) - 3))
    with pytest.raises(SavedError):
        read_index(content[:cut])
    told = json.loads(content)
    told["complete"] = True
    with pytest.raises(SavedError, match="changed"):
        read_index(json.dumps(told).encode())


@pytest.mark.parametrize("name", ["name", "first", "batches", "bytes"])
@pytest.mark.parametrize("value", ["x", None, 1.5, [], True])
def test_a_field_of_another_kind_is_refused(name: str, value: object) -> None:
    content = write_index(Index({}).with_shard(shard(0, [(10, 20)])[0]))
    told = {**json.loads(content), "shards": [{**json.loads(content)["shards"][0], name: value}]}
    told["check"] = _check_of({key: told[key] for key in told if key != "check"})
    with pytest.raises(SavedError, match=f"{name}: |shards: "):
        read_index(json.dumps(told).encode())


@pytest.mark.parametrize("source", [None, "x", 5, [1]])
def test_a_source_of_another_kind_is_refused(source: object) -> None:
    told = {**json.loads(write_index(Index({}))), "source": source}
    told["check"] = _check_of({key: told[key] for key in told if key != "check"})
    with pytest.raises(SavedError, match="cannot be read"):
        read_index(json.dumps(told).encode())


def test_deep_nonsense_is_refused() -> None:
    with pytest.raises(SavedError, match="no index"):
        read_index(b"[" * 100_000)


def test_of_another_version_both_are_named() -> None:
    told = json.loads(write_index(Index({})))
    told["version"] = 7
    with pytest.raises(SavedError, match="version: 7; this release reads 1"):
        read_index(json.dumps(told).encode())


@given(sizes, st.data())
def test_a_table_that_was_changed_or_is_anothers_is_refused(
    of: list[tuple[int, int]], data: st.DataObject
) -> None:
    made, table = shard(0, of)
    changed = bytearray(table)
    changed[data.draw(st.integers(0, len(table) - 1))] ^= 1
    for wrong in (bytes(changed), table[:-1], table + bytes(36), b""):
        with pytest.raises(ValueError, match="digest"):
            read_table(made, wrong)
    elsewhere, same = shard(9, of)
    assert same == table
    with pytest.raises(ValueError, match="digest"):
        read_table(Shard(made.name, 0, made.batches, made.bytes, elsewhere.digest), table)


@pytest.mark.parametrize("row", [Row(0, 1, 1, bytes(16)), Row(16, 1, 1 << 40, bytes(16))])
def test_a_table_whose_batches_lie_outside_of_the_file_is_refused(row: Row) -> None:
    table = pack_table([row])
    with pytest.raises(ValueError, match="outside"):
        read_table(Shard(shard_name(0), 0, 1, 1000, table_digest(0, table)), table)
