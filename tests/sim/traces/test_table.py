from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sim.errors import BrokenTraceError, MissingTraceError
from penstock.sim.traces.table import read_rows


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_missing_file_says_what_to_fetch(tmp_path: Path) -> None:
    with pytest.raises(MissingTraceError, match=r"nowhere\.csv is not there: fetch the trace"):
        list(read_rows(tmp_path / "nowhere.csv", ("a",), "the trace"))


def test_a_missing_column_names_the_file_and_the_column(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b\n1,2\n")
    with pytest.raises(BrokenTraceError, match=r"trace\.csv, line 1: no column c, d"):
        list(read_rows(path, ("a", "c", "d"), ""))


@pytest.mark.parametrize("line", ["1", "1,2,3", '1,"2'])
def test_a_line_of_another_length_names_its_line(tmp_path: Path, line: str) -> None:
    path = write(tmp_path, f"a,b\n1,2\n{line}\n")
    with pytest.raises(BrokenTraceError, match=r"trace\.csv, line 3"):
        list(read_rows(path, ("a",), ""))


@pytest.mark.parametrize("cell", ["", "x", "nan", "inf", "-1", "1.5"])
def test_a_cell_that_is_no_count_names_line_column_and_value(tmp_path: Path, cell: str) -> None:
    path = write(tmp_path, f"a,b\n{cell},2\n")
    (row,) = read_rows(path, ("a",), "")
    with pytest.raises(BrokenTraceError, match=rf"line 2: a='{cell}': must be"):
        row.integer("a")


def test_an_empty_file_and_empty_lines_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(BrokenTraceError, match="line 1: no column a"):
        list(read_rows(write(tmp_path, ""), ("a",), ""))
    assert len(list(read_rows(write(tmp_path, "a\n\n1\n\n2\n"), ("a",), ""))) == 2


def test_a_default_stands_for_an_empty_cell_only(tmp_path: Path) -> None:
    (row,) = read_rows(write(tmp_path, "a,b\n,x\n"), ("a",), "")
    assert row.integer("a", default=3) == 3
    with pytest.raises(BrokenTraceError):
        row.integer("b", default=3)
