"""What stands behind ``--nproc-per-node`` is run as torchrun would; launchers are refused."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from penstock.trainer.launch.rank_command import rank_command


def test_scripts_and_modules_are_run_by_this_interpreter_and_programs_as_they_are(
    tmp_path: Path,
) -> None:
    script = tmp_path / "train.py"
    script.touch()
    assert rank_command([str(script), "--epochs=2"]) == [sys.executable, str(script), "--epochs=2"]
    assert rank_command(["-m", "my.train"]) == [sys.executable, "-m", "my.train"]
    for words in (["bash", "-c", "true"], ["accelerate", "env"], ["python", "-m", "my.train"]):
        assert rank_command(words) == words


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("torchrun --nproc-per-node=2 train.py", "torchrun"),
        ("/usr/bin/torchrun train.py", "torchrun"),
        ("accelerate launch train.py", "accelerate launch"),
        ("accelerate-launch train.py", "accelerate-launch"),
        ("fabric run train.py", "fabric run"),
        ("deepspeed train.py", "deepspeed"),
        ("dlrover-run --nnodes=2 train.py", "dlrover-run"),
        ("srun --ntasks=2 python train.py", "srun"),
        ("colossalai run --nproc_per_node 2 train.py", "colossalai run"),
        ("python -u -m torch.distributed.run train.py", "torch.distributed.run"),
        ("-m accelerate.commands.launch train.py", "accelerate.commands.launch"),
    ],
)
def test_a_launcher_is_refused_by_its_name(command: str, launcher: str) -> None:
    with pytest.raises(ValueError, match=f"^{launcher}: --nproc-per-node starts the processes"):
        rank_command(command.split())


def test_a_script_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"gone\.py: there is no such script"):
        rank_command(["gone.py"])
