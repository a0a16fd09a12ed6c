"""A parameter server that just fits its pod is not killed by a save, and its model is saved."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

import pytest

from benchmarks.elastic.processes import running_job
from penstock.crds import environment as names
from tests.memory_group import memory_group

MEGABYTE = 1 << 20
MODEL_MEGABYTES = 192
BESIDE_MEGABYTES = 96
BATCHES = 40

PROGRAM = textwrap.dedent(
    f"""
    import torch
    from penstock.trainer import ps

    model = ps.Embedding({MODEL_MEGABYTES} << 13, 32, std=0.0)
    optimizer = ps.Optimizer(model, "sgd", lr=1.0)
    with ps.session(
        model, optimizer, dataset_size={BATCHES} * 10, batch_size=10, checkpoint_every=15
    ) as session:
        for batch in session:
            optimizer.zero_grad()
            (-model(batch).sum()).backward()
            optimizer.step()
    """
)


@pytest.mark.slow
def test_a_server_without_memory_for_a_copy_loses_no_model(tmp_path: Path) -> None:
    script, saved = tmp_path / "train.py", tmp_path / "saved"
    script.write_text(PROGRAM)
    limit = (MODEL_MEGABYTES + BESIDE_MEGABYTES) * MEGABYTE
    with memory_group(limit) as group, running_job(tmp_path) as job:
        job.start_trainer("--lease-seconds=8")
        job.start_server(0)
        (group.folder / "cgroup.procs").write_text(str(job.servers[0].pid))
        environ = {names.CHECKPOINT_DIR: str(saved)}
        job.start_worker(0, sys.executable, str(script), environ=environ)
        assert job.exit_codes(50) == {0: 0}, job.logs()
        assert job.servers[0].wait(20) == 0, job.logs()
        assert group.kills() == 0
        logs = job.logs()
    assert re.search("written while the training waits: .*no memory for a copy", logs), logs
    assert (saved / f"slots-{BATCHES:012d}.penstock").stat().st_size > MODEL_MEGABYTES * MEGABYTE
