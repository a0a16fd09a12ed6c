from __future__ import annotations

from pathlib import Path

import pytest

from penstock.sim.errors import BrokenTraceError
from penstock.sim.traces.philly import read_jobs
from penstock.sim.traces.shapes import JobShape


def test_jobs_are_ordered_and_times_count_from_the_first(tmp_path: Path) -> None:
    path = tmp_path / "j.csv"
    path.write_text(
        "timestamp,duration,num_gpus\n2017-10-09 07:01:55,66.0,1\n2017-10-09 07:00:55,30.5,4\n"
    )
    assert read_jobs(path) == [JobShape(0.0, 30.5, 4), JobShape(60.0, 66.0, 1)]


@pytest.mark.parametrize("row", ["soon,1,1", "2017-10-09,1,0", "2017-10-09,-1,1", "2017-10-09,,1"])
def test_a_broken_job_names_file_and_line(tmp_path: Path, row: str) -> None:
    path = tmp_path / "j.csv"
    path.write_text(f"timestamp,duration,num_gpus\n{row}\n")
    with pytest.raises(BrokenTraceError, match=r"j\.csv, line 2"):
        read_jobs(path)
