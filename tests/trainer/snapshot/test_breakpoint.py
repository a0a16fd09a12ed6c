"""A training process that is killed under its agent: it goes on where it was, and so does a pod."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from penstock.trainer.checkpoint_file import read

ENVIRON = {key: value for key, value in os.environ.items() if not key.startswith("PENSTOCK_")}

PROGRAM = """
import os, signal, sys
import torch
from penstock.trainer import elastic

model = torch.nn.Linear(4, 1)
session = elastic.session(
    model=model,
    optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
    dataset_size=400, global_batch=4, epochs=1,
    checkpoint_dir=sys.argv[1], checkpoint_every_steps=int(os.environ.get("EVERY", "50")),
     snapshot_every_steps=1,
)
with session:
    begun = None
    for step in session:
        if begun is None:
            begun = step.number
            print("begins at", begun, flush=True)
        if step.number == begun + 7:
            session._checkpoints.wait()  # the newest snapshot is whole by now
            os.kill(os.getpid(), signal.SIGKILL)
        for micro in step:
            micro.backward(model(torch.ones(len(micro), 4)).square().mean())
        step.commit()
"""


def run(tmp_path: Path, **environ: str) -> tuple[int, str]:
    """Exit code and output of an agent that starts the program again once."""
    program = [sys.executable, "-c", PROGRAM, str(tmp_path / "checkpoints")]
    done = subprocess.run(
        [sys.executable, "-m", "penstock.cli", "run", "--max-restarts", "1", "--", *program],
        capture_output=True,
        text=True,
        env={**ENVIRON, **environ},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_where_nothing_was_added_for_snapshots_checkpoints_are_all_that_is_kept(
    tmp_path: Path,
) -> None:
    code, said = run(tmp_path, PENSTOCK_SNAPSHOT_MEMORY="0", EVERY="5")
    assert code == 128 + signal.SIGKILL, said
    assert re.findall(r"begins at (\d+)", said) == ["0", "5"], "from the checkpoint: " + said
    assert "at most 0 MB are used for it" in said
    names = sorted(file.name for file in (tmp_path / "checkpoints").glob("step-*"))
    assert names == ["step-000000000005.penstock", "step-000000000010.penstock"], said


def test_a_killed_process_is_started_again_from_memory_and_the_last_leaves_a_checkpoint(
    tmp_path: Path,
) -> None:
    code, said = run(tmp_path)
    assert code == 128 + signal.SIGKILL, said
    assert re.findall(r"begins at (\d+)", said) == ["0", "7"], said
    assert "exit code 137: it is started again, and 0 times more" in said
    files = sorted((tmp_path / "checkpoints").glob("step-*"))
    assert [file.name for file in files] == [
        "step-000000000007.penstock",
        "step-000000000014.penstock",
    ], said
    content = read(files[-1])
    assert content["step"] == 14
    assert content["audit"] is not None
